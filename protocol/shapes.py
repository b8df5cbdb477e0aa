"""Rules that a JSON value fits or does not, as values that tables are made of.

It decides how a rule is judged and where a value breaks it. It refuses to know which
messages have which rules.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from protocol.canonical_json import JsonValue
from protocol.ids import STABLE_ID_PATTERN
from protocol.limits import SAFE_INTEGER_MAX

Rule = Callable[[JsonValue], str | None]
"""Returns None if the value fits, else the JSON pointer of the first misfit ("" is the value).

Pointers hold names from the tables and indices only, never text of the sender.
"""


def text(least: int = 0, most: int | None = None, pattern: str | None = None) -> Rule:
    """Ask for a string of so many code points that matches ``pattern`` as a whole."""
    longest = SAFE_INTEGER_MAX if most is None else most
    matches = None if pattern is None else re.compile(pattern, re.ASCII | re.DOTALL).fullmatch

    def judge(value: JsonValue) -> str | None:
        if not isinstance(value, str) or not least <= len(value) <= longest:
            return ""
        return None if matches is None or matches(value) is not None else ""

    return judge


def whole(least: int = 0, most: int = SAFE_INTEGER_MAX) -> Rule:
    """Ask for an integer from ``least`` to ``most``."""

    def judge(value: JsonValue) -> str | None:
        return None if type(value) is int and least <= value <= most else ""

    return judge


def one_of(*allowed: str | int) -> Rule:
    """Ask for one of a few strings or integers."""
    strings = frozenset(value for value in allowed if isinstance(value, str))
    integers = frozenset(value for value in allowed if isinstance(value, int))

    def judge(value: JsonValue) -> str | None:
        if isinstance(value, str):
            return None if value in strings else ""
        return None if type(value) is int and value in integers else ""

    return judge


def choice(names: str) -> Rule:
    """Ask for one of a few words, written with spaces between them."""
    return one_of(*names.split())


def flag(value: JsonValue) -> str | None:
    """Ask for true or false."""
    return None if isinstance(value, bool) else ""


def number(value: JsonValue) -> str | None:
    """Ask for any number."""
    return None if isinstance(value, int | float) and not isinstance(value, bool) else ""


def anything(_value: JsonValue) -> str | None:
    """Ask for nothing."""
    return None


def an_object(value: JsonValue) -> str | None:
    """Ask for an object with any members."""
    return None if isinstance(value, dict) else ""


def nullable(rule: Rule) -> Rule:
    """Ask for null or what ``rule`` asks for."""

    def judge(value: JsonValue) -> str | None:
        return None if value is None else rule(value)

    return judge


def items(rule: Rule, most: int | None = None, *, unique: bool = False) -> Rule:
    """Ask for an array of at most ``most`` items that all fit ``rule``."""
    longest = SAFE_INTEGER_MAX if most is None else most

    def judge(value: JsonValue) -> str | None:
        if not isinstance(value, list) or len(value) > longest:
            return ""
        for index, item in enumerate(value):
            misfit = rule(item)
            if misfit is not None:
                return f"/{index}{misfit}"
        return "" if unique and _has_repeats(value) else None

    return judge


def members(fields: Mapping[str, Rule], *, is_open: bool = False) -> Rule:
    """Ask for an object with these members; a name that ends in `?` may be absent.

    Args:
        is_open: whether other members may stand beside them.
    """
    table = tuple((name.removesuffix("?"), name[-1] != "?", rule) for name, rule in fields.items())

    def judge(value: JsonValue) -> str | None:
        if not isinstance(value, dict):
            return ""
        known = 0
        for name, is_required, rule in table:
            if name in value:
                known += 1
                misfit = rule(value[name])
                if misfit is not None:
                    return f"/{name}{misfit}"
            elif is_required:
                return ""
        return None if is_open or known == len(value) else ""

    return judge


def both(first: Rule, second: Rule) -> Rule:
    """Ask for what both rules ask for."""

    def judge(value: JsonValue) -> str | None:
        misfit = first(value)
        return second(value) if misfit is None else misfit

    return judge


def _has_repeats(value: list[JsonValue]) -> bool:
    seen: set[str] = set()
    for item in value:
        seen.add(_key(item))
    return len(seen) != len(value)


def _key(value: JsonValue) -> str:
    if isinstance(value, dict):
        return repr(sorted((name, _key(member)) for name, member in value.items()))
    return repr(value)


STABLE_ID: Final = text(1, 160, STABLE_ID_PATTERN)
