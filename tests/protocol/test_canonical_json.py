"""The strict reader refuses what the wire forbids; the canonical spelling is one and stable."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.canonical_json import (
    JsonValue,
    canonical_bytes,
    canonicalise,
    parse_strict,
    parse_tolerant,
)
from protocol.errors import ErrorCode, PrpError
from protocol.limits import JSON_DEPTH_MAX, JSON_NODES_MAX, SAFE_INTEGER_MAX

texts = st.text(max_size=12)
numbers = st.integers(-SAFE_INTEGER_MAX, SAFE_INTEGER_MAX) | st.floats(
    allow_nan=False, allow_infinity=False
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def parsed_or_code(data: bytes) -> JsonValue | ErrorCode:
    try:
        return parse_strict(data)
    except PrpError as refusal:
        return refusal.code


def code_of(data: bytes) -> ErrorCode:
    with pytest.raises(PrpError) as refusal:
        parse_strict(data)
    return refusal.value.code


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "nul",
        "[1,]",
        "01",
        "1.",
        "-",
        "'a'",
        "1 2",
        '"\x01"',
        '"\\x"',
        "\ufeff1",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "\x00",
        "{1:2}",
        '{"a":1,}',
    ],
)
def test_strict_reader_refuses_what_is_not_json(text: str) -> None:
    assert code_of(text.encode()) == ErrorCode.MESSAGE_NOT_JSON


@pytest.mark.parametrize("data", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'{"\xff":1}'])
def test_strict_reader_refuses_invalid_utf8(data: bytes) -> None:
    assert code_of(data) == ErrorCode.MESSAGE_NOT_JSON


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"b":{"a":1,"\\u0061":1}}',
        '"\\ud800"',
        '"\\udc00 "',
        '{"\\ud800":1}',
        "1e999",
        "[-1e400]",
        "9007199254740992",
        "-9007199254740992",
        "9" * 5000,
        "[ 12345678901234567890 ]",
    ],
)
def test_strict_reader_refuses_json_that_two_peers_may_read_differently(text: str) -> None:
    assert code_of(text.encode()) == ErrorCode.MESSAGE_INVALID


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-0", 0),
        ("9007199254740991", SAFE_INTEGER_MAX),
        ("-9007199254740991", -SAFE_INTEGER_MAX),
        ("1e21", 1e21),
        (' { "a" : [ 1 , 2 ] } ', {"a": [1, 2]}),
        ('"\\u00e9\\/\\ud83d\\ude00"', "é/😀"),
        ('{"__proto__":{"x":1}}', {"__proto__": {"x": 1}}),
        ('{"A":1,"a":2}', {"A": 1, "a": 2}),
    ],
)
def test_strict_reader_accepts_every_spelling_of_a_safe_value(text: str, value: object) -> None:
    assert parse_strict(text.encode()) == value


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("space", ["", " "])
def test_depth_is_bounded_exactly(opening: str, space: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(depth: int) -> bytes:
        return f"{opening * depth}{space}1{closing * depth}".encode()

    canonical_bytes(parse_strict(nested(JSON_DEPTH_MAX)))
    assert code_of(nested(JSON_DEPTH_MAX + 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(nested(100_000)) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("item", ["0", "0 ", '{"a":[]}'])
def test_nodes_are_bounded_exactly(item: str) -> None:
    nodes = 2 if "{" in item else 1
    fitting = (JSON_NODES_MAX - 1) // nodes

    def items(count: int) -> bytes:
        return f"[{','.join([item] * count)}]".encode()

    canonical_bytes(parse_strict(items(fitting)))
    assert code_of(items(fitting + 1)) == ErrorCode.MESSAGE_TOO_LARGE


def test_canonical_bytes_refuses_a_value_beyond_the_bounds() -> None:
    deep: JsonValue = 1
    for _ in range(JSON_DEPTH_MAX + 1):
        deep = [deep]
    wide: list[JsonValue] = [0] * JSON_NODES_MAX

    for value in (deep, wide):
        with pytest.raises(PrpError) as refusal:
            canonical_bytes(value)
        assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400])
def test_canonical_bytes_refuses_a_number_that_no_double_holds(value: int | float) -> None:
    with pytest.raises(PrpError) as refusal:
        canonical_bytes({"a": [value]})

    assert refusal.value.code == ErrorCode.MESSAGE_INVALID


def test_canonical_bytes_joins_the_halves_of_a_character() -> None:
    assert canonical_bytes("\ud83d\ude00 \ud83d") == '"😀 \\ud83d"'.encode()


@pytest.mark.parametrize(
    "data", [b'{"token":"s3cret"', b'"s3cret\xff"', b'{"s3cret":1,"s3cret":1}']
)
def test_refusal_does_not_quote_the_input(data: bytes) -> None:
    with pytest.raises(PrpError) as refusal:
        parse_strict(data)

    assert "s3cret" not in str(refusal.value)


@given(values)
@example({"\uffff": 1, "😀": [-0.0, 1e21, 1e-7], "": "\x7f\u2028\x00"})
def test_canonical_spelling_is_read_back_as_the_same_value_and_spelled_the_same(value: Any) -> None:
    canonical = canonical_bytes(value)

    assert parse_tolerant(canonical) == value
    assert canonicalise(canonical) == canonical


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(1e-4, 1e16))
@example(1e-3)
@example(1e15)
@example(123456.789)
def test_number_is_spelled_alike_wherever_it_stands(number: float) -> None:
    alone = canonical_bytes(number)

    assert float(alone) == number
    assert canonical_bytes([number, "\ud800"]) == b"[" + alone + b',"\\ud800"]'


@given(values)
def test_canonical_spelling_does_not_depend_on_the_order_or_spelling_of_the_text(
    value: Any,
) -> None:
    shuffled = json.dumps(value, indent=1, sort_keys=True).encode()

    assert canonicalise(shuffled) == canonical_bytes(value)


@given(st.dictionaries(texts, st.just(0)))
@example({"\uffff": 0, "😀": 0})
def test_members_are_sorted_by_utf16_code_units(value: dict[str, JsonValue]) -> None:
    names = list(json.loads(canonical_bytes(value)))

    assert names == sorted(value, key=lambda name: name.encode("utf-16-be"))


@given(values)
def test_strict_reader_gives_the_value_whatever_the_spelling(value: Any) -> None:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    spaced = json.dumps(value).encode()

    assert parse_strict(compact) == value
    assert parse_strict(spaced) == value


JSON_FRAGMENTS = [
    *'{}[],:"\\ \n0123456789.-+eE',
    "\\u",
    "d800",
    "dc00",
    '"a"',
    '"a":',
    "null",
    "true",
    "NaN",
    "1e9",
    "\ud800",
    "\x00",
    "é",
    "😀",
]


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(JSON_FRAGMENTS), max_size=14).map(
        lambda pieces: "".join(pieces).encode("utf-8", "surrogatepass")
    )
)
def test_any_bytes_give_a_value_or_a_code(data: bytes) -> None:
    outcome = parsed_or_code(data)

    if not isinstance(outcome, ErrorCode):
        assert json.dumps(outcome) == json.dumps(json.loads(data))
        assert parse_strict(canonical_bytes(outcome)) == outcome
    else:
        assert outcome in {ErrorCode.MESSAGE_NOT_JSON, ErrorCode.MESSAGE_INVALID}


@given(values, st.integers(0, 200), st.sampled_from([*'{}[],:"\\ 0e', "\\ud800", '"a":1,']))
def test_text_with_one_more_fragment_gives_a_value_or_a_code(
    value: Any, place: int, fragment: str
) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    damaged = (text[:place] + fragment + text[place:]).encode()

    outcome = parsed_or_code(damaged)

    if not isinstance(outcome, ErrorCode):
        assert json.dumps(outcome) == json.dumps(json.loads(damaged))
    else:
        assert outcome in {ErrorCode.MESSAGE_NOT_JSON, ErrorCode.MESSAGE_INVALID}
