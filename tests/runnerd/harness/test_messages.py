"""Lines of a program that speaks messages: read strictly, and nothing raises but one code."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.core.harness_messages import (
    Asked,
    Called,
    Concluded,
    Diagnosed,
    HarnessMessage,
    Logged,
    Misspoken,
    Proposed,
    Ready,
    Reported,
)
from runnerd.harness.messages import MESSAGE_SCHEMA, read_message

CALL: dict[str, JsonValue] = {
    "requestKind": "semantic_tool",
    "callId": "c_1",
    "operationId": "create_task",
    "input": {"title": "Grüße\r\n\U0001f600"},
}
QUESTION: dict[str, JsonValue] = {"requestId": "r_1", "requestKind": "permission", "tool": "rm"}


def line(type_: str, payload: object, seq: int = 1) -> bytes:
    message = {"schema": MESSAGE_SCHEMA, "messageSeq": seq, "type": type_, "payload": payload}
    return msgspec.json.encode(message)


READ: list[tuple[str, dict[str, Any], HarnessMessage]] = [
    ("ready", {}, Ready()),
    ("ready", {"driverVersion": "2"}, Ready("2")),
    (
        "event",
        {"eventType": "item.delta", "payload": {"text": "x"}, "itemId": "i"},
        Reported(event_type="item.delta", payload={"text": "x"}, item_id="i"),
    ),
    ("event", {"eventType": "a.b", "payload": {}}, Reported(event_type="a.b", payload={})),
    ("request", QUESTION, Asked(request_id="r_1", kind="permission", question=QUESTION)),
    (
        "request",
        {**QUESTION, "expiresInMs": 5},
        Asked(
            request_id="r_1",
            kind="permission",
            question=QUESTION,
            expires_in_ms=5,
        ),
    ),
    (
        "request",
        CALL,
        Called(call_id="c_1", operation_id="create_task", input=CALL["input"]),
    ),
    (
        "request",
        {**CALL, "input": None, "idempotencyKey": "k"},
        Called(call_id="c_1", operation_id="create_task", idempotency_key="k"),
    ),
    ("result", {"a": 1}, Proposed({"a": 1})),
    ("terminal", {"b": 2}, Concluded({"b": 2})),
    ("log", {"stream": "stdout", "text": "t"}, Logged("t")),
    ("diagnostic", {"code": "c", "message": "m"}, Diagnosed("c", "m")),
    ("diagnostic", {"code": "c"}, Diagnosed("c", "")),
]


@pytest.mark.parametrize(("type_", "payload", "expected"), READ)
def test_each_type_is_read(type_: str, payload: dict[str, Any], expected: HarnessMessage) -> None:
    assert read_message(line(type_, payload, 7), 7) == expected


MISSPOKEN: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("event", {}, None, None),
    ("event", {"eventType": 5, "payload": {}}, None, None),
    ("event", {"eventType": "a", "payload": []}, None, None),
    ("event", {"eventType": "a", "payload": {}, "itemId": 5}, None, None),
    ("event", {"eventType": "a", "payload": {}, "itemId": "i" * 241}, None, None),
    ("request", {}, None, None),
    ("request", {"requestId": "r"}, "r", None),
    ("request", {"requestId": 5, "requestKind": "k"}, None, None),
    ("request", {"requestId": "r", "requestKind": ""}, "r", None),
    ("request", {"requestId": "r", "requestKind": "k" * 161}, "r", None),
    *(
        ("request", {**QUESTION, "expiresInMs": value}, "r_1", None)
        for value in (0, -1, 1.5, "5", True, 10**14)
    ),
    ("request", {**CALL, "callId": 5}, None, None),
    ("request", {**CALL, "operationId": None}, None, "c_1"),
    ("request", {**CALL, "idempotencyKey": 5}, None, "c_1"),
    ("request", {k: v for k, v in CALL.items() if k != "input"}, None, "c_1"),
    ("log", {}, None, None),
    ("diagnostic", {"message": "m"}, None, None),
    ("diagnostic", {"code": "c", "message": 5}, None, None),
]


@pytest.mark.parametrize(("type_", "payload", "request_id", "call_id"), MISSPOKEN)
def test_a_payload_that_says_nothing_names_who_waits(
    type_: str, payload: dict[str, Any], request_id: str | None, call_id: str | None
) -> None:
    message = read_message(line(type_, payload), 1)

    assert isinstance(message, Misspoken)
    assert (message.type, message.request_id, message.call_id) == (type_, request_id, call_id)


INVALID: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello",
    "half an object": line("ready", {})[:-1],
    "two objects": line("ready", {}) * 2,
    "an array": b"[]",
    "a repeated member": b'{"a":1,"a":2}',
    "not UTF-8": line("log", {"text": "x"}).replace(b"x", b"\xff"),
    "a lone surrogate": line("log", {"text": "x"}).replace(b"x", b"\\ud800"),
    "no number": line("log", {"text": 1}).replace(b"1}", b"NaN}"),
    "a number beyond a double": line("log", {"n": 1}).replace(b"1}", b"1e999}"),
    "an integer beyond exactness": line("log", {"n": 2**53}),
    "a byte order mark": b"\xef\xbb\xbf" + line("ready", {}),
    "too deep": line("result", {}).replace(b"{}", b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"),
    "no schema": msgspec.json.encode({"messageSeq": 1, "type": "ready", "payload": {}}),
    "another schema": line("ready", {}).replace(b"fake_harness", b"other"),
    "a number too early": line("ready", {}, 2),
    "a number again": line("ready", {}, 0),
    "true for a number": line("ready", {}).replace(b":1,", b":true,"),
    "an unknown type": line("hello", {}),
    "no type": line("ready", {}).replace(b'"ready"', b"5"),
    "no payload": line("ready", None),
    "a list for a payload": line("ready", []),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_line_that_is_no_message_is_refused_without_its_text(name: str) -> None:
    with pytest.raises(PrpError) as refusal:
        read_message(INVALID[name], 1)

    assert refusal.value.code is ErrorCode.HARNESS_MESSAGE_INVALID
    assert "hello" not in refusal.value.message


def test_a_line_that_a_program_printed_for_people_is_said_to_be_no_json() -> None:
    with pytest.raises(PrpError) as refusal:
        read_message(b"hello", 1)

    assert refusal.value.message == "message_not_json, near character 0"


@pytest.mark.parametrize(
    ("spelled", "fault"),
    [
        (b'"\\ud800"', ErrorCode.TOOL_INPUT_INVALID),
        (b'{"a":1,"a":2}', ErrorCode.TOOL_INPUT_INVALID),
        (b"9007199254740993", ErrorCode.TOOL_INPUT_INVALID),
        (b"[" * 70 + b"]" * 70, ErrorCode.TOOL_INPUT_TOO_LARGE),
        (b"[" + b"0," * 10_001 + b"0]", ErrorCode.TOOL_INPUT_TOO_LARGE),
    ],
)
def test_a_call_with_an_input_that_cannot_be_passed_on_can_be_answered(
    spelled: bytes, fault: ErrorCode
) -> None:
    text = line("request", {**CALL, "input": "HERE"}).replace(b'"HERE"', spelled)

    message = read_message(text, 1)

    assert message == Called(call_id="c_1", operation_id="create_task", fault=fault)


def test_a_call_whose_own_id_cannot_be_written_cannot_be_answered() -> None:
    text = line("request", CALL).replace(b'"c_1"', b'"\\ud800"')

    with pytest.raises(PrpError, match="harness_message_invalid"):
        read_message(text, 1)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_the_one_code(data: bytes) -> None:
    _read(data)


_PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b'"\\ud83d"', b"1", b"1e999", b"null", b"\xff"]
)


@given(st.lists(_PIECES, max_size=12), st.sampled_from(["request", "event", "result", "log"]))
def test_any_payload_gives_a_message_or_the_one_code(pieces: list[bytes], type_: str) -> None:
    _read(line(type_, "HERE").replace(b'"HERE"', b"".join(pieces)))
    _read(line("request", {**CALL, "input": "HERE"}).replace(b'"HERE"', b"".join(pieces)))


def _read(data: bytes) -> None:
    codes: list[ErrorCode] = []
    try:
        read_message(data, 1)
    except PrpError as error:
        codes.append(error.code)
    assert codes in ([], [ErrorCode.HARNESS_MESSAGE_INVALID])
