"""Sizes, stubs and package files (style 4 and 6).

It decides how large is too large and what an unfinished place looks like. It refuses to
know what the code does.
"""

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import Module, functions_of, name_of

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN_MAX = 12

# Modules that were longer when the rule came; they may shrink and never grow.
LINES_ONCE = {"protocol.codec": 405}

_UNFINISHED = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b")


def size_complaints(module: Module) -> Iterator[str]:
    """Yield the module if it is too long, and each function that is."""
    lines = len(module.text.splitlines())
    ceiling = LINES_ONCE.get(module.name, MODULE_LINES_MAX)
    if lines > ceiling and not _is_table(module):
        yield f"{module.name}: {lines} lines, the ceiling is {ceiling}"
    for function in functions_of(module):
        if (length := lines_of(function)) > FUNCTION_LINES_MAX:
            yield module.at(function, f"{function.name} has {length} lines")


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def package_complaints(module: Module) -> Iterator[str]:
    """Yield a package file that holds anything but one docstring."""
    if module.is_package and not (len(module.tree.body) == 1 and ast.get_docstring(module.tree)):
        yield f"{module.name}: a package file holds one docstring only"


def docstring_complaints(module: Module) -> Iterator[str]:
    """Yield a module without a docstring, or one that says only what it decides."""
    text = ast.get_docstring(module.tree)
    if not text:
        yield f"{module.name}: no docstring"
    elif not module.is_package and "refuses to" not in " ".join(text.split()):
        yield f"{module.name}: the docstring does not say what the module refuses to know"


def stub_complaints(module: Module) -> Iterator[str]:
    """Yield each place that stands for code which was not written."""
    for number, line in enumerate(module.text.splitlines(), start=1):
        if _UNFINISHED.search(line):
            yield f"{module.name}:{number}: an unfinished place"
    in_protocols = {
        function
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and _is_protocol(node)
        for function in node.body
    }
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield module.at(node, "NotImplementedError in the product")
        elif isinstance(node, ast.Assert) and _is_always_false(node.test):
            yield module.at(node, "an assertion that always fails")
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node not in in_protocols
            and _is_empty(node)
        ):
            yield module.at(node, f"{node.name} does nothing")


def _is_table(module: Module) -> bool:
    """Tell whether a module holds only constants and types of data."""
    return not any(functions_of(module))


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(name_of(base).rpartition(".")[2] == "Protocol" for base in bases)


def _is_always_false(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and not test.value


def _is_empty(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether nothing is done and nothing says why; a docstring alone may say why."""
    last = function.body[-1]
    is_dots = (
        isinstance(last, ast.Expr)
        and isinstance(last.value, ast.Constant)
        and last.value.value is ...
    )
    is_first = last is function.body[0] or (
        len(function.body) == 2 and ast.get_docstring(function) is not None
    )
    return is_first and (is_dots or isinstance(last, ast.Pass))
