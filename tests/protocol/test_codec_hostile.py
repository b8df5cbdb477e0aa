"""Hostile text of every kind gives a code on both sides, and nothing else."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.codec import decode_control, decode_runner
from protocol.errors import ErrorCode, PrpError
from protocol.limits import JSON_DEPTH_MAX, JSON_NODES_MAX
from tests.protocol.samples import (
    BINDING,
    CONTROL_PAYLOADS,
    EVENT,
    IDENTITY,
    RUNNER_PAYLOADS,
    WELCOME,
    envelope,
    plaintext,
)

HOLE: Final = "the hole"
NOT_JSON: Final = ErrorCode.MESSAGE_NOT_JSON
INVALID: Final = ErrorCode.MESSAGE_INVALID
TOO_LARGE: Final = ErrorCode.MESSAGE_TOO_LARGE
CODES: Final = frozenset(
    {
        NOT_JSON,
        INVALID,
        TOO_LARGE,
        ErrorCode.MESSAGE_UNKNOWN_KIND,
        ErrorCode.MESSAGE_UNEXPECTED,
        ErrorCode.PROTOCOL_VERSION_MISMATCH,
        ErrorCode.IDENTITY_MISMATCH,
        ErrorCode.COMMAND_INVALID,
        ErrorCode.EVENT_INVALID,
        ErrorCode.SEMANTIC_DIGEST_MISMATCH,
    }
)
"""Every code that the codec may answer with."""

Decoder = Callable[[bytes], object]


def control(data: bytes) -> object:
    return decode_control(data, version=2, identity=IDENTITY, connection=BINDING)


def first_control(data: bytes) -> object:
    return decode_control(data, version=2, identity=IDENTITY, connection=None)


def runner(data: bytes) -> object:
    return decode_runner(data, BINDING)


DECODERS: Final[tuple[Decoder, ...]] = (control, first_control, runner)


def code_of(decode: Decoder, data: bytes) -> ErrorCode | None:
    """The code of the refusal, None for a message that was taken."""
    try:
        decode(data)
    except PrpError as error:
        return error.code
    return None


def filled(template: dict[str, Any], text: bytes) -> bytes:
    """The template's JSON with raw text in place of the hole."""
    before, after = msgspec.json.encode(template).split(f'"{HOLE}"'.encode())
    return before + text + after


HOSTILE: Final[dict[str, tuple[bytes, ErrorCode]]] = {
    "NaN": (b"NaN", NOT_JSON),
    "Infinity": (b"-Infinity", NOT_JSON),
    "beyond a double": (b"1e999", INVALID),
    "minus beyond a double": (b"[-1e999]", INVALID),
    "integer of 5,000 digits": (b"7" * 5000, INVALID),
    "negative integer of 5,000 digits": (b"-" + b"7" * 5000, INVALID),
    "integer beyond 2**53 - 1": (b"9007199254740992", INVALID),
    "integer beyond 64 bits": (b"18446744073709551616", INVALID),
    "leading zero": (b"01", NOT_JSON),
    "plus sign": (b"+1", NOT_JSON),
    "hex": (b"0x10", NOT_JSON),
    "lone high surrogate": (b'"\\ud800"', INVALID),
    "lone low surrogate": (b'"\\udfff"', INVALID),
    "surrogates in the wrong order": (b'"\\udc00\\ud800"', INVALID),
    "lone surrogate in a name": (b'{"\\ud800":1}', INVALID),
    "surrogate as UTF-8": (b'"\xed\xa0\x80"', NOT_JSON),
    "broken UTF-8": (b'"\xff\xfe"', NOT_JSON),
    "overlong UTF-8": (b'"\xc0\xaf"', NOT_JSON),
    "truncated UTF-8": (b'"\xe2\x82"', NOT_JSON),
    "NUL in a string": (b'"a\x00b"', NOT_JSON),
    "NUL between tokens": (b"1\x00", NOT_JSON),
    "newline in a string": (b'"a\nb"', NOT_JSON),
    "unknown escape": (b'"\\x41"', NOT_JSON),
    "repeated name": (b'{"a":1,"a":2}', INVALID),
    "repeated name in two spellings": (b'{"a":1,"\\u0061":1}', INVALID),
    "repeated __proto__": (b'{"__proto__":1,"__proto__":1}', INVALID),
    "array of depth 100,000": (b"[" * 100_000 + b"]" * 100_000, TOO_LARGE),
    "unclosed array of depth 100,000": (b"[" * 100_000, TOO_LARGE),
    "object of depth 100,000": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, TOO_LARGE),
    "depth just beyond the limit": (
        b"[" * (JSON_DEPTH_MAX + 2) + b"]" * (JSON_DEPTH_MAX + 2),
        TOO_LARGE,
    ),
    "nodes just beyond the limit": (b"[" + b"0," * JSON_NODES_MAX + b"0]", TOO_LARGE),
    "single quotes": (b"'a'", NOT_JSON),
    "trailing comma": (b"[1,]", NOT_JSON),
    "comment": (b"1/**/", NOT_JSON),
    "nothing": (b"", NOT_JSON),
    "two values": (b"1 2", NOT_JSON),
}
STRANGE_BUT_VALID: Final[dict[str, bytes]] = {
    "minus zero": b"-0",
    "minus zero as a double": b"-0.0",
    "tiny": b"1e-400",
    "huge string": b'"' + b"x" * 500_000 + b'"',
    "__proto__": b'{"__proto__":{"toString":1},"constructor":null}',
    "escaped NUL": b'"\\u0000"',
    "noncharacters": '"\ufffe\uffff\U0010ffff"'.encode(),
    "separators": '"\u2028\u2029\u0085"'.encode(),
    "astral pair": b'"\\ud83d\\ude00"',
    "white space": b" \t\r\n1 \t\r\n",
    "empty name": b'{"":""}',
}

HOLES: Final[dict[str, tuple[Decoder, dict[str, Any]]]] = {
    "control envelope": (control, envelope("ack", {"ackedSourceSeq": 1}, novel=HOLE)),
    "control payload": (control, envelope("ack", {"ackedSourceSeq": 1, "novel": HOLE})),
    "command payload": (
        control,
        envelope("command", CONTROL_PAYLOADS["command"] | {"payload": {"a": HOLE}}),
    ),
    "welcome": (first_control, envelope("welcome", WELCOME | {"leaseBinding": HOLE})),
    "runner envelope": (runner, envelope("event", EVENT, novel=HOLE)),
    "event": (runner, envelope("event", EVENT | {"novel": HOLE})),
    "event payload": (runner, envelope("event", EVENT | {"payload": {"a": HOLE}})),
    "result": (
        runner,
        envelope("command_result", RUNNER_PAYLOADS["command_result"] | {"result": {"a": HOLE}}),
    ),
}
"""Places where any JSON value may stand."""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_value_gives_its_code_wherever_any_value_may_stand(name: str) -> None:
    text, expected = HOSTILE[name]

    for decode, template in HOLES.values():
        assert code_of(decode, filled(template, text)) is expected
    for decode in DECODERS:
        assert code_of(decode, text) is expected


def test_message_of_a_million_members_is_too_large() -> None:
    members = b",".join(b'"%d":0' % number for number in range(1_000_000))
    decode, template = HOLES["event payload"]

    assert code_of(decode, filled(template, b"{" + members + b"}")) is TOO_LARGE


@pytest.mark.parametrize("name", STRANGE_BUT_VALID)
def test_strange_but_valid_value_is_taken_wherever_any_value_may_stand(name: str) -> None:
    for decode, template in HOLES.values():
        assert code_of(decode, filled(template, STRANGE_BUT_VALID[name])) is None
    for decode in DECODERS:
        assert code_of(decode, STRANGE_BUT_VALID[name]) in CODES


@pytest.mark.parametrize("around", [b"\xef\xbb\xbf%b", b"%b\x00", b"\x00%b", b"%b,", b"\xff%b"])
def test_bytes_around_a_message_are_refused(around: bytes) -> None:
    assert code_of(runner, around % plaintext("event", EVENT)) is NOT_JSON
    assert code_of(control, around % plaintext("ping", {})) is NOT_JSON
    assert code_of(first_control, around % plaintext("welcome", WELCOME)) is NOT_JSON


def test_repeated_member_is_refused_in_every_object_of_a_message() -> None:
    for decode, data in (
        (runner, plaintext("event", EVENT)),
        (control, plaintext("ack", {"ackedSourceSeq": 1})),
        (first_control, plaintext("welcome", WELCOME)),
    ):
        names = {b'"kind"': b'"kind":"x",', b'"payload"': b'"payload":{},'}
        for name, repeated in names.items():
            assert code_of(decode, data.replace(name, repeated + name, 1)) is INVALID


WRONG: Final[tuple[JsonValue, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    2**53 - 1,
    "",
    "x",
    "x" * 5000,
    "\x00\u2028",
    [],
    [None],
    {},
    {"a": 1},
    [[[]]],
)


def broken_everywhere(value: JsonValue) -> list[JsonValue]:
    """The value with each member in turn missing or of each wrong type, at any depth."""
    broken: list[JsonValue] = [other for other in WRONG if other != value]
    if isinstance(value, dict):
        for name, member in value.items():
            rest = {key: kept for key, kept in value.items() if key != name}
            broken.append(rest)
            broken += [rest | {name: other} for other in broken_everywhere(member)]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            broken += [
                [*value[:index], other, *value[index + 1 :]] for other in broken_everywhere(item)
            ]
    return broken


@pytest.mark.parametrize("kind", RUNNER_PAYLOADS)
def test_runner_message_of_wrong_types_gives_a_code_or_is_a_message(kind: str) -> None:
    refused = [
        code_of(runner, msgspec.json.encode(broken))
        for broken in broken_everywhere(envelope(kind, RUNNER_PAYLOADS[kind]))
    ]

    assert set(refused) <= CODES | {None}
    assert len([code for code in refused if code is not None]) > len(refused) // 2


@pytest.mark.parametrize("kind", CONTROL_PAYLOADS)
def test_control_message_of_wrong_types_gives_a_code_or_is_a_message(kind: str) -> None:
    refused = [
        code_of(control, msgspec.json.encode(broken))
        for broken in broken_everywhere(envelope(kind, CONTROL_PAYLOADS[kind]))
    ]

    assert set(refused) <= CODES | {None}
    assert len([code for code in refused if code is not None]) > len(refused) // 2


def test_welcome_of_wrong_types_gives_a_code_or_is_a_welcome() -> None:
    refused = [
        code_of(first_control, msgspec.json.encode(broken))
        for broken in broken_everywhere(envelope("welcome", WELCOME))
    ]

    assert set(refused) <= CODES | {None}
    assert len([code for code in refused if code is not None]) > len(refused) // 2


JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SEEDS: Final = tuple(
    plaintext(kind, payload)
    for kind, payload in {
        **CONTROL_PAYLOADS,
        **RUNNER_PAYLOADS,
        "welcome": WELCOME,
    }.items()
)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_code(data: bytes) -> None:
    for decode in DECODERS:
        assert code_of(decode, data) in CODES


@settings(max_examples=300, deadline=None)
@given(seed=st.sampled_from(SEEDS), at=st.integers(0, 10_000), junk=st.binary(max_size=6))
def test_message_with_any_bytes_changed_gives_a_code_or_is_a_message(
    seed: bytes, at: int, junk: bytes
) -> None:
    place = at % len(seed)

    for decode in DECODERS:
        assert code_of(decode, seed[:place] + junk + seed[place + len(junk) :]) in CODES | {None}
        assert code_of(decode, seed[:place] + junk + seed[place:]) in CODES | {None}
        assert code_of(decode, seed[:place]) in CODES


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from([*CONTROL_PAYLOADS, *RUNNER_PAYLOADS, "welcome"]) | st.text(max_size=5),
    payload=JSON_VALUES,
)
def test_any_value_as_payload_gives_a_code_or_is_a_message(kind: str, payload: object) -> None:
    data = msgspec.json.encode(envelope(kind, payload))

    for decode in DECODERS:
        assert code_of(decode, data) in CODES | {None}
