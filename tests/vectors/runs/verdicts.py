"""Whether an observed verdict is the one that a case asks for (README, "Matching").

It decides what counts as equal. It refuses to know what a case is about.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError

# Cases are JSON of many shapes; only the adapter of a group knows its own.
Json: TypeAlias = Any

_ANY_CODE_KINDS = frozenset({"SessionError"})


def passes(case: dict[str, Json], observed: Json) -> None:
    """Fail the test unless ``observed`` is what the case expects or accepts."""
    expect: JsonValue = case["expect"]
    others: list[JsonValue] = case.get("accept", [])
    if isinstance(expect, dict) and isinstance(choices := expect.get("oneOf"), list):
        allowed = [*others, *choices]
    else:
        allowed = [expect, *others]
    assert any(matches(wanted, observed) for wanted in allowed), (
        f"{case['id']} {case['title']}\n  observed {observed}\n  expected {allowed}"
    )


def matches(wanted: JsonValue, observed: JsonValue) -> bool:
    """Tell whether ``observed`` has everything that ``wanted`` names."""
    if isinstance(wanted, dict):
        return isinstance(observed, dict) and all(
            name in observed and _member_matches(name, value, observed[name])
            for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(observed, list)
            and len(wanted) == len(observed)
            and all(matches(one, other) for one, other in zip(wanted, observed, strict=True))
        )
    return isinstance(wanted, bool) == isinstance(observed, bool) and bool(wanted == observed)


def _member_matches(name: str, wanted: JsonValue, observed: JsonValue) -> bool:
    if name != "error" or not isinstance(wanted, dict):
        return matches(wanted, observed)
    if not isinstance(observed, dict):
        return False
    if wanted.get("code") is None or wanted.get("kind") in _ANY_CODE_KINDS:
        return "code" in observed
    rest = {key: value for key, value in wanted.items() if key != "kind"}
    return matches(rest, observed)


def attempted(action: Callable[[], dict[str, Json]]) -> dict[str, Json]:
    """Return ``{"ok": true, ...}`` of an action, or its refusal as the cases spell one."""
    try:
        return {"ok": True, **action()}
    except PrpError as error:
        return {"ok": False, "error": {"code": error.code.value}}
