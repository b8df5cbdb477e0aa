"""Who may import whom (style 1).

It decides the layer of each module. It refuses to know why a module wants what it imports.

    protocol.base ◀── protocol ◀── cores ◀── adapters ◀── wiring
"""

import ast
import sys
from collections.abc import Iterator

from tests.architecture.source import Import, Module, imports_of, is_below

LEAVES = ("protocol.errors", "protocol.limits", "protocol.ids")
"""What even the primitives below the protocol may use; they use only each other."""

INNER = (
    "runnerd.config",
    "runnerd.destination",
    "runnerd.driving",
    "runnerd.flags",
    "runnerd.help",
    "runnerd.ticket",
)
"""Values and ports beside the packages that know no adapter, so that adapters may know them."""

RUNNER_ADAPTERS = ("runnerd.io", "runnerd.harness")
CONTROLLER_ADAPTERS = ("controller_mock.io", "controller_mock.storage", "controller_mock.authority")

# The first row whose packages hold a module says what it may import of the product.
LAYERS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (LEAVES, LEAVES),
    (("protocol.base",), ("protocol.base", *LEAVES)),
    (("protocol",), ("protocol",)),
    (("runnerd.core",), ("protocol", "runnerd.core")),
    (("runnerd.runs",), ("protocol", "runnerd.runs")),
    (("controller_mock.core",), ("protocol", "controller_mock.core")),
    (INNER, ("protocol", "runnerd.core", *INNER)),
    (
        RUNNER_ADAPTERS,
        ("protocol", "runnerd.core", "runnerd.runs", *RUNNER_ADAPTERS, *INNER),
    ),
    (CONTROLLER_ADAPTERS, ("protocol", "controller_mock.core", *CONTROLLER_ADAPTERS)),
    (("runnerd",), ("protocol", "runnerd")),
    (("controller_mock",), ("protocol", "controller_mock")),
)

PURE = ("protocol", "runnerd.core", "runnerd.runs", "controller_mock.core")
IMPURE_ADAPTER_IN_PROTOCOL = "protocol.base.posix_fs"

POSIX_ONLY = frozenset(
    {"crypt", "fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios"}
)
"""Modules of the standard library that another operating system does not have."""
POSIX_ADAPTERS = (
    IMPURE_ADAPTER_IN_PROTOCOL,
    "runnerd.io",
    "runnerd.harness",
    # It wipes a ticket out of this process's own memory.
    "runnerd.ticket",
    "controller_mock.io",
)

# What a package may use beside the standard library.
THIRD_PARTY: tuple[tuple[str, frozenset[str]], ...] = (
    ("protocol.base", frozenset({"msgspec"})),
    ("protocol.json_schema", frozenset({"jsonschema", "msgspec", "referencing"})),
    # The carrier drives websockets' own sans-I/O objects (D10).
    ("protocol", frozenset({"msgspec", "cryptography", "websockets"})),
    ("runnerd.core", frozenset({"msgspec"})),
    ("runnerd.runs", frozenset({"msgspec"})),
    ("controller_mock.core", frozenset({"msgspec"})),
    ("runnerd", frozenset({"anyio", "msgspec", "structlog", "websockets"})),
    ("controller_mock", frozenset({"anyio", "msgspec", "psycopg", "structlog", "websockets"})),
)


def is_pure(name: str) -> bool:
    """Tell whether a module may not touch the world."""
    in_pure = any(is_below(name, package) for package in PURE)
    return in_pure and name != IMPURE_ADAPTER_IN_PROTOCOL


def layer_complaints(module: Module) -> Iterator[str]:
    """Yield each import that the layers forbid."""
    allowed = next(
        allowed
        for packages, allowed in LAYERS
        if any(is_below(module.name, package) for package in packages)
    )
    for imported in imports_of(module):
        target = _target(imported)
        if imported.module == "tests" or imported.module.startswith("tests."):
            yield module.at(imported.node, "the product imports a test")
        elif _is_product(target) and not any(is_below(target, package) for package in allowed):
            yield module.at(imported.node, f"this layer may not import {target}")


def third_party_complaints(module: Module) -> Iterator[str]:
    """Yield each package that this part of the product has no business with."""
    allowed = next(names for package, names in THIRD_PARTY if is_below(module.name, package))
    for imported in imports_of(module):
        top = imported.module.partition(".")[0]
        if top in sys.stdlib_module_names or _is_product(top) or top == "tests":
            continue
        if top not in allowed:
            yield module.at(imported.node, f"this part may not use {top}")


def posix_complaints(module: Module) -> Iterator[str]:
    """Yield each import of what only POSIX has, outside the adapters that may be replaced."""
    if any(is_below(module.name, package) for package in POSIX_ADAPTERS):
        return
    for imported in imports_of(module):
        if imported.module.partition(".")[0] in POSIX_ONLY:
            yield module.at(imported.node, f"only an adapter may use {imported.module}")


def reexport_complaints(module: Module, by_name: dict[str, Module]) -> Iterator[str]:
    """Yield each name that is imported from a module which does not define it."""
    for imported in imports_of(module):
        source = by_name.get(imported.module)
        if source is None or imported.name is None or f"{source.name}.{imported.name}" in by_name:
            continue
        if imported.name not in _defined_in(source):
            yield module.at(imported.node, f"{imported.module} does not define {imported.name}")


def cycle_complaints(modules: list[Module]) -> Iterator[str]:
    """Yield each module that imports itself over others; an import in a function comes late."""
    names = {module.name for module in modules}
    edges = {
        module.name: {
            target
            for imported in imports_of(module)
            if imported.node in module.tree.body
            for target in (f"{imported.module}.{imported.name}", imported.module)
            if target in names
        }
        for module in modules
    }
    for name in sorted(names):
        reached: set[str] = set()
        pending = list(edges[name])
        while pending:
            target = pending.pop()
            if target not in reached:
                reached.add(target)
                pending.extend(edges[target])
        if name in reached:
            yield f"{name}: imports itself over others"


def _target(imported: Import) -> str:
    """Return the dotted name that is reached, which may be a module or a name in one."""
    return f"{imported.module}.{imported.name}" if imported.name else imported.module


def _is_product(name: str) -> bool:
    return name.partition(".")[0] in ("protocol", "runnerd", "controller_mock")


def _defined_in(module: Module) -> set[str]:
    names: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names.update(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
    return names
