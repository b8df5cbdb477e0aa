"""What a pure module may not do (style 1): wait, log, or read the world.

It decides what counts as touching the world. It refuses to know which modules are pure.
"""

import ast
from collections.abc import Iterator

from tests.architecture.source import Module, functions_of, imports_of, name_of

PURE_STANDARD_LIBRARY = frozenset(
    {
        "abc", "base64", "binascii", "bisect", "collections", "contextlib", "dataclasses",
        "datetime", "enum", "errno", "functools", "hashlib", "heapq", "hmac", "ipaddress",
        "itertools", "json", "math", "operator", "re", "string", "struct", "types", "typing",
        "unicodedata", "urllib.parse",
    }
)  # fmt: skip
FORBIDDEN_CALLS = frozenset(
    {"open", "print", "input", "breakpoint", "eval", "exec", "compile", "__import__", "id", "vars"}
)
CLOCK_READINGS = frozenset({"now", "utcnow", "today"})
CLOCK_TYPES = frozenset({"datetime", "date", "datetime.datetime", "datetime.date"})
# These answer from the world although their package is allowed.
FORBIDDEN_NAMES = frozenset({"websockets.utils.generate_key", "websockets.utils.accept_key"})
EXCEPTIONS = frozenset(
    {
        # The library logs frames unless it is given a logger that never speaks.
        ("protocol.carrier", "logging"),
        # The library draws masks and the upgrade key itself; no decision and no secret hangs on
        # them (RFC 6455 10.3).
        ("protocol.carrier", "websockets.utils.generate_key"),
    }
)
SET_MAKERS = frozenset({"set", "frozenset"})
ORDER_KEEPERS = frozenset({"tuple", "list", "iter", "enumerate", "zip", "map", "next", "reversed"})


def world_complaints(module: Module, standard_library: frozenset[str]) -> Iterator[str]:
    """Yield each import and call through which a module could read or change the world.

    Args:
        standard_library: every module name of the standard library.
    """
    for imported in imports_of(module):
        top = imported.module.partition(".")[0]
        full = f"{imported.module}.{imported.name}"
        if not EXCEPTIONS.isdisjoint({(module.name, imported.module), (module.name, full)}):
            continue
        allowed = {imported.module, top} & PURE_STANDARD_LIBRARY
        if top in standard_library and not allowed:
            yield module.at(imported.node, f"pure code may not use {imported.module}")
        elif full in FORBIDDEN_NAMES:
            yield module.at(imported.node, f"pure code may not use {full}")
    for node in module.nodes:
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield module.at(node, "pure code never waits")
        elif isinstance(node, ast.Call):
            yield from _call_complaints(module, node)


def set_order_complaints(module: Module) -> Iterator[str]:
    """Yield each place where the order of a set could decide something, as far as is visible."""
    for scope in (module.tree, *functions_of(module)):
        sets = _names_bound_to_sets(scope)
        for node in _nodes_of(scope):
            for iterated in _iterated(node):
                if _is_set(iterated) or name_of(iterated) in sets:
                    yield module.at(iterated, "the order of a set decides something")


def _call_complaints(module: Module, node: ast.Call) -> Iterator[str]:
    called = name_of(node.func)
    head, _, last = called.rpartition(".")
    if called in FORBIDDEN_CALLS:
        yield module.at(node, f"pure code may not call {called}")
    elif last in CLOCK_READINGS and head in CLOCK_TYPES:
        yield module.at(node, "pure code reads no clock")


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
        for generator in node.generators:
            yield generator.iter
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        called = name_of(node.func)
        if called in ORDER_KEEPERS or (
            isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "extend", "pop")
        ):
            yield from node.args
            if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
                yield node.func.value


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(node.left) or _is_set(node.right)
    return isinstance(node, ast.Call) and name_of(node.func) in SET_MAKERS


def _names_bound_to_sets(scope: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    for node in _nodes_of(scope):
        if isinstance(node, ast.Assign) and _is_set(node.value):
            found.update(name_of(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            found.add(name_of(node.target))
        elif isinstance(node, ast.arg) and node.annotation and _is_set_type(node.annotation):
            found.add(node.arg)
    return frozenset(found)


def _is_set_type(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return name_of(outer) in ("set", "frozenset", "Set", "AbstractSet")


def _nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of the functions in it."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending.extend(ast.iter_child_nodes(node))
