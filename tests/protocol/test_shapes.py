"""Each kind of rule on both sides of its borders."""

from protocol.canonical_json import JsonValue
from protocol.shapes import (
    Rule,
    an_object,
    choice,
    closed,
    either,
    flag,
    items,
    members,
    nullable,
    number,
    one_of,
    opened,
    text,
    when,
    whole,
)


def fitting(rule: Rule, values: list[JsonValue]) -> list[JsonValue]:
    return [value for value in values if rule(value) is None]


EVERYTHING: list[JsonValue] = [None, True, False, 0, 1, 1.0, 1.5, -1, "", "1", [], {}]


def test_plain_rules_take_their_own_type_only() -> None:
    assert fitting(text(), EVERYTHING) == ["", "1"]
    assert fitting(flag, EVERYTHING) == [True, False]
    assert [type(value) for value in fitting(flag, EVERYTHING)] == [bool, bool]
    assert fitting(an_object, EVERYTHING) == [{}]
    assert [repr(value) for value in fitting(number(), EVERYTHING)] == [
        *("0", "1", "1.0", "1.5", "-1")
    ]
    assert [repr(value) for value in fitting(number(1), EVERYTHING)] == ["1", "1.0", "1.5"]
    assert [repr(value) for value in fitting(whole(None), EVERYTHING)] == ["0", "1", "1.0", "-1"]
    assert [repr(value) for value in fitting(whole(), EVERYTHING)] == ["0", "1", "1.0"]
    assert [repr(value) for value in fitting(whole(1, 1), EVERYTHING)] == ["1", "1.0"]


def test_text_counts_code_points_and_matches_as_a_whole() -> None:
    assert fitting(text(1, 2), ["", "a", "é😀", "abc"]) == ["a", "é😀"]
    assert fitting(text(pattern="[a-z]+"), ["a", "ab", "a1", "1a", "a\n", ""]) == ["a", "ab"]
    assert fitting(text(pattern="a.*"), ["a\n\u2028b", "ba"]) == ["a\n\u2028b"]


def test_choice_tells_one_from_true() -> None:
    assert [repr(value) for value in fitting(one_of(1), EVERYTHING)] == ["1", "1.0"]
    assert [repr(value) for value in fitting(one_of(True), EVERYTHING)] == ["True"]
    assert fitting(choice("a b"), ["a", "b", "a b", "", None]) == ["a", "b"]


def test_nullable_and_either_widen_a_rule() -> None:
    assert fitting(nullable(text(1)), EVERYTHING) == [None, "1"]
    assert fitting(either(text(1), an_object), EVERYTHING) == ["1", {}]


def test_items_are_judged_in_order_and_counted() -> None:
    rule = items(text(), 2, unique=True)

    assert rule(["a", "b"]) is None
    assert rule(["a", 1]) == "/1"
    assert rule(["a", "a"]) == ""
    assert rule(["a", "b", "c"]) == ""
    assert rule({}) == ""
    assert items(an_object, unique=True)([{"a": [1, 2.0]}, {"a": [1, 2]}]) == ""
    assert items(an_object, unique=True)([{"a": "1"}, {"a": 1}]) is None


def test_members_name_the_first_misfit_and_never_an_unknown_name() -> None:
    rule = members({"a": text(), "b?": items(members({"c": flag}))})

    assert rule({"a": ""}) is None
    assert rule({"a": "", "b": [{"c": True}]}) is None
    assert rule({"a": "", "b": [{"c": True}, {"c": 1}]}) == "/b/1/c"
    assert rule({"b": []}) == ""
    assert rule({"a": 1, "evil": 1}) == "/a"
    assert rule({"a": "", "evil": 1}) == ""
    assert rule([]) == ""
    assert members({"a": text()}, is_open=True)({"a": "", "evil": 1}) is None


def test_schema_name_is_part_of_closed_and_open_objects() -> None:
    good: JsonValue = {"schema": "s", "a": ""}
    more: JsonValue = {"schema": "s", "a": "", "b": 1}
    other: JsonValue = {"schema": "t", "a": ""}

    assert fitting(closed("s", {"a": text()}), [good, more, other, {"a": ""}]) == [good]
    assert fitting(opened("s", {"a": text()}), [good, more, other, {"a": ""}]) == [good, more]


def test_member_may_need_another_because_of_its_value() -> None:
    rule = when(members({"a": text()}, is_open=True), "a", {"x": "y"})

    assert rule({"a": "z"}) is None
    assert rule({"a": "x"}) == ""
    assert rule({"a": "x", "y": None}) is None
    assert rule({"a": 1}) == "/a"
