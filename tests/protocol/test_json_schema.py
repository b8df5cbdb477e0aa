"""Schemas of tools: well formed or refused, a misfit by its place, and nothing fetched."""

import socket
from typing import Final

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.json_schema import POINTER_LENGTH_MAX, misfit, schema_misfit


def judged(schema: JsonValue, value: JsonValue) -> str | None:
    assert schema_misfit(schema) is None
    return misfit(msgspec.json.encode(schema), value)


SCHEMAS: Final[tuple[JsonValue, ...]] = (
    {},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{}]},
)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_is_taken(schema: JsonValue) -> None:
    assert schema_misfit(schema) is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (True, "not an object"),
        ([], "not an object"),
        ({"type": "objekt"}, "/type: anyOf"),
        ({"properties": {"a": {"minLength": -1}}}, "/properties/a/minLength: minimum"),
        ({"$schema": "https://example.test/mine"}, "/$schema names a dialect that is not known"),
        ({"$schema": 7}, "/$schema names a dialect that is not known"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(schema: JsonValue, words: str) -> None:
    assert schema_misfit(schema) == words


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"type": "object", "required": ["title"]}, {}, "/: required"),
        ({"properties": {"n": {"type": "integer"}}}, {"n": "hunter2"}, "/n: type"),
        ({"properties": {"a/b~": {"const": 1}}}, {"a/b~": 2}, "/a~1b~0: const"),
        ({"items": {"enum": ["x"]}}, ["x", "y"], "/1: enum"),
        ({"uniqueItems": True}, [1, True, 1.0], "/: uniqueItems"),
        ({"additionalProperties": False}, {"x": 1}, "/: additionalProperties"),
        ({"type": "integer"}, 1.5, "/: type"),
    ],
)
def test_a_misfit_names_place_and_rule_and_not_the_content(
    schema: JsonValue, value: JsonValue, words: str
) -> None:
    assert judged(schema, value) == words


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [1, True, "1", None, [1], {"a": 1}]),
        ({"uniqueItems": False}, [1, 1]),
        ({"type": "integer"}, 1.0),
        ({"pattern": "^\\d+$"}, "12"),
        ({"format": "date"}, "not a date"),
    ],
)
def test_a_value_that_fits_has_no_misfit(schema: JsonValue, value: JsonValue) -> None:
    assert judged(schema, value) is None


def test_a_long_list_of_unlike_items_is_compared_in_one_pass() -> None:
    """Items that cannot be sorted are compared by their spelling, each once."""
    value: list[JsonValue] = []
    for number in range(20_000):
        value.extend((number, str(number), [number]))

    assert judged({"uniqueItems": True}, value) is None
    assert judged({"uniqueItems": True}, [*value, "7"]) == "/: uniqueItems"


def test_a_foreign_reference_is_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def ask(*options: object, **named: object) -> None:
        asked.append((options, named))

    monkeypatch.setattr(socket, "socket", ask)
    schema: JsonValue = {"$ref": "http://127.0.0.1:9/schema.json"}

    assert judged(schema, {}) == "the schema refers to something that it does not hold"
    assert asked == []


def test_a_schema_that_refers_to_itself_for_ever_is_a_misfit() -> None:
    assert judged({"$ref": "#"}, {}) == "nested too deep"


@pytest.mark.parametrize(
    "schema",
    [
        {"if": {"$ref": "#"}, "then": {}},
        {"not": {"$ref": "#"}},
        {"anyOf": [{"allOf": [{"oneOf": [{"$ref": "#"}]}]}]},
        {"unevaluatedProperties": False, "allOf": [{"$ref": "#"}]},
        {"unevaluatedItems": False, "$dynamicRef": "#"},
    ],
)
def test_a_schema_without_end_is_a_misfit_wherever_it_turns_back(schema: JsonValue) -> None:
    assert judged(schema, {"a": [1]}) == "nested too deep"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/a", "a": 5}, {}),
        ({"$ref": "#/title", "title": "x"}, {}),
        ({"$ref": "#/a", "a": {"type": "objekt"}}, {}),
        ({"$ref": "#/a", "a": {"pattern": "("}}, "x"),
        ({"$ref": "#/a", "a": {"multipleOf": 0}}, 5),
        ({"$ref": "#/a", "a": {"properties": 5}}, {}),
        ({"$id": "http://[", "$ref": "x"}, {}),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "patternProperties": {"(": {}},
            },
            {"a": 1},
        ),
    ],
)
def test_no_value_fits_a_schema_that_cannot_be_applied(schema: JsonValue, value: JsonValue) -> None:
    assert judged(schema, value) == "the schema cannot be applied"


def test_a_pattern_that_cannot_be_built_is_no_schema() -> None:
    assert schema_misfit({"pattern": "(a{99999999999})"}) == "the schema cannot be applied"


def test_a_schema_that_doubles_with_each_step_is_given_up() -> None:
    doubled: dict[str, JsonValue] = {}
    for number in range(40):
        following: JsonValue = {"$ref": f"#/$defs/d{number + 1}"}
        doubled[f"d{number}"] = {"allOf": [following, following]}
    schema: JsonValue = {"$ref": "#/$defs/d0", "$defs": {**doubled, "d40": {}}}

    assert judged(schema, {}) == "the schema costs too much"


def test_a_long_text_is_searched_only_for_a_pattern_without_repeats() -> None:
    """Where a repeat may begin at each character, the search costs the square of the length."""
    long = "1" * 400_000 + "x"

    assert judged({"pattern": "\\d+$"}, long) == "a text is too long for a pattern"
    assert judged({"pattern": "\\dx$"}, long) is None
    assert judged({"pattern": "\\d+x$"}, long[-4_096:]) is None
    assert judged({"pattern": "\\d+$"}, {"not": "a text"}) is None


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
def test_a_long_name_is_not_searched_for_a_pattern(keyword: str) -> None:
    schema: JsonValue = {keyword: False, "patternProperties": {"\\d+$": {}}}

    assert judged(schema, {"1" * 400_000 + "x": 1}) == "a name is too long for a pattern"
    assert judged(schema, {"1": 1}) is None


def test_a_value_as_deep_as_a_message_may_be_fits_a_schema_that_recurs() -> None:
    value: JsonValue = {}
    for _ in range(62):
        value = {"a": value}

    assert judged({"type": "object", "properties": {"a": {"$ref": "#"}}}, value) is None


def test_a_pointer_is_bounded() -> None:
    words = judged({"additionalProperties": {"type": "null"}}, {"k" * 10_000: 1})

    assert words is not None
    assert len(words) <= POINTER_LENGTH_MAX + len(": type")
