"""Words with one home: error codes, and what may be said in a log (style 6 and 8).

It decides which words are reserved. It refuses to know when they are said.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.architecture.source import Module, name_of

LOG_CALLS = frozenset({"debug", "info", "warning", "error", "critical", "exception", "noted"})
LOG_OBJECTS = re.compile(r"(^|\.)_?(log|logger)$")
EVENT_NAME = re.compile(r"[a-z]+(_[a-z0-9]+)*")
SECRET_WORDS = frozenset(
    {"ticket", "token", "key", "keys", "secret", "secrets", "proof", "password", "reveal", "body"}
)
# Public names that contain a secret's word.
HARMLESS = frozenset({"credential_id", "idempotency_key"})


def code_literal_complaints(module: Module, codes: frozenset[str]) -> Iterator[str]:
    """Yield each text that stands where a code belongs and spells one.

    The same words may be the name of a fact in a log or a word of the wire.
    """
    for node in module.nodes:
        for value in _places_of_codes(node):
            for part in ast.walk(value):
                if isinstance(part, ast.Constant) and part.value in codes:
                    yield module.at(part, f"spells the code {part.value!r}; use ErrorCode")


def _places_of_codes(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.keyword) and _means_code(node.arg or ""):
        yield node.value
    elif isinstance(node, ast.Compare) and any(
        _means_code(name_of(side)) for side in (node.left, *node.comparators)
    ):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(_means_code(name_of(target)) for target in targets):
            yield node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "code":
                yield value
    elif isinstance(node, ast.Call) and name_of(node.func).rpartition(".")[2] == "PrpError":
        yield from node.args[:1]


def _means_code(name: str) -> bool:
    last = name.removesuffix(".value").rpartition(".")[2].lower()
    return last == "code" or last.endswith("_code")


def log_complaints(module: Module) -> Iterator[str]:
    """Yield each log call with a sentence for a name, or with a secret's word in it."""
    for node in module.nodes:
        if not isinstance(node, ast.Call) or not _is_log(node):
            continue
        event = node.args[0] if node.args else None
        if (
            len(node.args) != 1
            or not isinstance(event, ast.Constant)
            or not isinstance(event.value, str)
            or not EVENT_NAME.fullmatch(event.value)
        ):
            yield module.at(node, "the first and only argument is a snake_case fact")
        for keyword in node.keywords:
            if words := _secret_words(keyword):
                yield module.at(node, f"logs {', '.join(sorted(words))}")


def table_complaints(module: Module, table: str, codes: frozenset[str]) -> Iterator[str]:
    """Yield each member of ErrorCode that a table in ``module`` names not exactly once.

    A dictionary cannot show this when it is loaded: the later entry wins silently.
    """
    [value] = [
        node.value
        for node in module.tree.body
        if isinstance(node, ast.AnnAssign) and name_of(node.target) == table
    ]
    assert value is not None
    counts = Counter(
        node.attr
        for node in ast.walk(value)
        if isinstance(node, ast.Attribute) and name_of(node.value) == "ErrorCode"
    )
    for code in sorted(codes | set(counts)):
        if counts[code] != (code in codes):
            yield f"{table} names ErrorCode.{code} {counts[code]} times"


def _is_log(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in LOG_CALLS:
        return False
    return LOG_OBJECTS.search(name_of(node.func.value)) is not None


def _secret_words(keyword: ast.keyword) -> set[str]:
    names = {keyword.arg or ""}
    for node in ast.walk(keyword.value):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    words = {word for name in names - HARMLESS for word in name.lower().split("_")}
    return words & SECRET_WORDS
