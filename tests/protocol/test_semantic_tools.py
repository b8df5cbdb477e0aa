"""What binds a call of a tool to its run, its input and its answer."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.events import Event
from protocol.limits import SEMANTIC_INPUT_BYTES_MAX
from protocol.semantic_tools import (
    SemanticInput,
    answers,
    authorized_tools,
    catalog_digest,
    read_semantic_input,
    result_command_id,
    result_command_payload,
)
from tests.protocol.samples import EVENT, IDENTITY, without

CORRELATION = {
    "runId": "run_1",
    "normalizedSessionId": "session_1",
    "turnId": "turn_1",
    "itemId": "item_1",
}


def call(value: Any, **changes: Any) -> dict[str, Any]:
    content: dict[str, object] = {
        "digest": sha256_label(canonical_bytes(value)),
        "redactionDisposition": "digest_only",
        "references": [],
    }
    return {
        "schema": "paperclip.prp.semantic_tool.v1",
        "schemaVersion": 1,
        "phase": "input",
        "operationId": "op",
        "callId": "call_1",
        "correlation": CORRELATION,
        "idempotencyKey": None,
        "input": value,
        "content": content,
        **changes,
    }


def refusal(payload: Any) -> ErrorCode:
    with pytest.raises(PrpError) as raised:
        read_semantic_input(payload, IDENTITY)
    return raised.value.code


def test_call_is_read_with_its_complete_input() -> None:
    value: JsonValue = {"token": "secret", "list": [1.5, None]}

    read = read_semantic_input({"semantic_tool": call(value, idempotencyKey="k")}, IDENTITY)

    assert read == SemanticInput(
        operation_id="op",
        call_id="call_1",
        idempotency_key="k",
        input=value,
        input_digest=sha256_label(b'{"list":[1.5,null],"token":"secret"}'),
    )


def test_call_is_invalid_when_it_or_a_member_is_missing() -> None:
    assert refusal({}) is ErrorCode.EVENT_INVALID
    assert refusal({"semantic_tool": None}) is ErrorCode.EVENT_INVALID
    assert refusal(None) is ErrorCode.EVENT_INVALID
    for name in call({}):
        assert refusal({"semantic_tool": without(call({}), name)}) is ErrorCode.EVENT_INVALID
    for name in CORRELATION:
        broken = call({}, correlation=without(CORRELATION, name))
        assert refusal({"semantic_tool": broken}) is ErrorCode.EVENT_INVALID


def test_call_of_another_run_is_refused() -> None:
    for name in CORRELATION:
        foreign = call({}, correlation=CORRELATION | {name: "other"})
        assert refusal({"semantic_tool": foreign}) is ErrorCode.IDENTITY_MISMATCH


def test_call_is_refused_when_its_digest_is_of_another_input() -> None:
    for value in ({"a": 2}, {}, None, {"a": "1"}):
        broken = call({"a": 1}) | {"input": value}
        assert refusal({"semantic_tool": broken}) is ErrorCode.SEMANTIC_DIGEST_MISMATCH


def test_call_is_invalid_when_its_input_is_too_large() -> None:
    fitting = "x" * (SEMANTIC_INPUT_BYTES_MAX - 2)

    assert read_semantic_input({"semantic_tool": call(fitting)}, IDENTITY).input == fitting
    assert refusal({"semantic_tool": call(fitting + "x")}) is ErrorCode.EVENT_INVALID


def test_payload_of_the_answer_is_bound_to_its_call() -> None:
    event = msgspec.json.decode(
        msgspec.json.encode(EVENT | {"eventType": "mcp_app.tool_input"}), type=Event
    )
    read = read_semantic_input({"semantic_tool": call({"b": 1, "a": 2.0})}, IDENTITY)

    payload = result_command_payload(read, event, IDENTITY, {"ok": True}, is_error=False)

    assert payload == {
        "callId": "call_1",
        "operationId": "op",
        "inputDigest": read.input_digest,
        "sourceEventId": "event_1",
        "sourceEventType": "mcp_app.tool_input",
        "correlation": CORRELATION,
        "result": {"ok": True},
        "isError": False,
    }
    assert answers(read, event, IDENTITY, payload)
    whole: dict[str, JsonValue] = without(payload, "inputDigest")
    whole["input"] = {"a": 2, "b": 1}
    assert answers(read, event, IDENTITY, whole)
    assert not answers(read, event, IDENTITY, whole | {"input": "other"})
    for name in ("callId", "operationId", "inputDigest", "sourceEventId", "sourceEventType"):
        assert not answers(read, event, IDENTITY, payload | {name: "other"})
        assert not answers(read, event, IDENTITY, without(payload, name))
    wider: JsonValue = {**CORRELATION, "x": 1}
    assert not answers(read, event, IDENTITY, payload | {"correlation": wider})
    assert not answers(read, event, IDENTITY, payload | {"inputDigest": "sha256:"})
    assert not answers(read, event, IDENTITY, [])


def test_command_of_an_answer_is_a_function_of_run_and_call() -> None:
    ids = {result_command_id(*pair) for pair in [("r", "c"), ("r", "d"), ("s", "c"), ("", "rc")]}

    assert len(ids) == 4
    assert all(len(name) == len("command_tool_") + 32 for name in ids)


def test_tools_are_listed_by_utf16_code_units() -> None:
    names = ["\uffff", "😀", "b", "a"]

    tools = authorized_tools([{"operationId": name} for name in names])

    operations: JsonValue = [{"operationId": name} for name in ["a", "b", "😀", "\uffff"]]
    assert tools == {
        "schema": "paperclip.runner.authorized-tools.v1",
        "schemaVersion": 1,
        "catalogDigest": sha256_label(canonical_bytes(operations)),
        "operations": operations,
    }
    assert tools["catalogDigest"] == catalog_digest(tools["operations"])
