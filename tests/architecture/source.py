"""The product's modules as syntax trees.

It decides what counts as product. It refuses to judge it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "runnerd", "controller_mock")


@dataclass(frozen=True)
class Module:
    """One module under its dotted name; a check's own examples are made from text."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    def at(self, node: ast.AST, complaint: str) -> str:
        """Return a complaint that names the place."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}: {complaint}"


@dataclass(frozen=True)
class Import:
    """One imported name: ``from module import name``, or ``import module`` with no name."""

    node: ast.stmt
    module: str
    name: str | None


def product() -> list[Module]:
    """Return every module of the product, sorted by name."""
    return [module for package in PACKAGES for module in _modules_below(ROOT / package)]


def imports_of(module: Module) -> Iterator[Import]:
    """Yield what a module imports, wherever in it; `TYPE_CHECKING` is no excuse."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node, node.module or "", alias.name)


def is_below(name: str, package: str) -> bool:
    """Tell whether a module is the package or lies in it."""
    return name == package or name.startswith(f"{package}.")


def functions_of(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(node: ast.AST) -> str:
    """Return the dotted name that an expression spells, or an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := name_of(node.value)):
        return f"{head}.{node.attr}"
    return ""


def _modules_below(folder: Path) -> Iterator[Module]:
    for path in sorted(folder.rglob("*.py")):
        is_package = path.name == "__init__.py"
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, path.read_text(encoding="utf-8"), is_package)
