"""Rules that a JSON value fits or does not, as values that tables are made of.

It decides how a rule is judged and where a value breaks it. It refuses to know which
messages have which rules.
"""

import re
from collections.abc import Callable, Mapping

from protocol.canonical_json import JsonValue, canonical_bytes

Rule = Callable[[JsonValue], str | None]
"""Returns None if the value fits, else the JSON pointer of the first misfit ("" is the value).

Pointers hold names from the tables and indices only, never text of the sender.
"""


def text(least: int = 0, most: int | None = None, pattern: str | None = None) -> Rule:
    """Ask for a string of so many code points that matches ``pattern`` as a whole."""
    if not least and most is None and pattern is None:
        return _any_text
    compiled: re.Pattern[str] | None = None

    def judge(value: JsonValue) -> str | None:
        nonlocal compiled
        if not isinstance(value, str):
            return ""
        length = len(value)
        if length < least or (most is not None and length > most):
            return ""
        if pattern is None:
            return None
        if compiled is None:
            # A start-up pays for no pattern that it does not use.
            compiled = re.compile(pattern, re.ASCII | re.DOTALL)
        return None if compiled.fullmatch(value) is not None else ""

    return judge


def _any_text(value: JsonValue) -> str | None:
    return None if isinstance(value, str) else ""


def number(least: float | None = None) -> Rule:
    """Ask for a number from ``least``."""

    def judge(value: JsonValue) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return ""
        return None if least is None or value >= least else ""

    return judge


def whole(least: int | None = 0, most: int | None = None) -> Rule:
    """Ask for an integer; `2.0` is one, since JSON knows only numbers."""

    def judge(value: JsonValue) -> str | None:
        if type(value) is not int and not (isinstance(value, float) and value.is_integer()):
            return ""
        assert isinstance(value, int | float)
        if (least is not None and value < least) or (most is not None and value > most):
            return ""
        return None

    return judge


def one_of(*allowed: str | int) -> Rule:
    """Ask for one of a few strings, numbers or booleans; 1 is not true."""
    pairs = frozenset((isinstance(value, bool), value) for value in allowed)

    def judge(value: JsonValue) -> str | None:
        if isinstance(value, str | int | float) and (isinstance(value, bool), value) in pairs:
            return None
        return ""

    return judge


def choice(names: str) -> Rule:
    """Ask for one of a few words, written with spaces between them."""
    return one_of(*names.split())


def flag(value: JsonValue) -> str | None:
    """Ask for true or false."""
    return None if isinstance(value, bool) else ""


def an_object(value: JsonValue) -> str | None:
    """Ask for an object with any members."""
    return None if isinstance(value, dict) else ""


def nullable(rule: Rule) -> Rule:
    """Ask for null or what ``rule`` asks for."""

    def judge(value: JsonValue) -> str | None:
        return None if value is None else rule(value)

    return judge


def either(first: Rule, second: Rule) -> Rule:
    """Ask for what one of the rules asks for."""

    def judge(value: JsonValue) -> str | None:
        return None if first(value) is None or second(value) is None else ""

    return judge


def items(rule: Rule, most: int | None = None, *, unique: bool = False) -> Rule:
    """Ask for an array of at most ``most`` items that all fit ``rule``."""

    def judge(value: JsonValue) -> str | None:
        if not isinstance(value, list) or (most is not None and len(value) > most):
            return ""
        for index, item in enumerate(value):
            misfit = rule(item)
            if misfit is not None:
                return f"/{index}{misfit}"
        if unique and len({canonical_bytes(item) for item in value}) != len(value):
            return ""
        return None

    return judge


def members(fields: Mapping[str, Rule], *, is_open: bool = False) -> Rule:
    """Ask for an object with these members; one whose name ends in `?` may be absent.

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


def closed(schema: str, fields: Mapping[str, Rule]) -> Rule:
    """Ask for exactly these members and the name of their schema."""
    return members({"schema": one_of(schema), **fields})


def opened(schema: str, fields: Mapping[str, Rule]) -> Rule:
    """Ask for these members, the name of their schema and perhaps others."""
    return members({"schema": one_of(schema), **fields}, is_open=True)


def when(rule: Rule, name: str, needs: Mapping[str, str]) -> Rule:
    """Ask for what ``rule`` asks for, and for the member that the value of ``name`` needs."""

    def judge(value: JsonValue) -> str | None:
        misfit = rule(value)
        if misfit is not None:
            return misfit
        assert isinstance(value, dict)
        chosen = value[name]
        needed = needs.get(chosen) if isinstance(chosen, str) else None
        return None if needed is None or needed in value else ""

    return judge
