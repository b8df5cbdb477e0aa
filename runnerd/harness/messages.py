"""Lines of a program that speaks messages, read into what the core knows.

It decides which line is a message and which payload says something. It refuses to know when a
message may be said.

    {"schema": "paperclip.fake_harness.message.v1", "messageSeq": 1, "type": ..., "payload": {}}

    ready       {driverVersion?}
    event       {eventType, payload, itemId?}
    request     {requestId, requestKind, expiresInMs?, ...}     a question; all but the time
                                                                that it waits is digested
    request     {requestKind: "semantic_tool", callId, operationId, input, idempotencyKey?}
    result      a `paperclip.run_result.v1`
    terminal    {turnTerminalState, runTerminalState, reportedWorkDisposition}
    log         {stream, text}
    diagnostic  {code, message}
"""

from collections.abc import Callable, Mapping
from typing import Final

from protocol.canonical_json import JsonValue, parse_strict, parse_tolerant
from protocol.errors import ErrorCode, PrpError
from protocol.limits import REQUEST_EXPIRY_MS_CEILING
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

MESSAGE_SCHEMA: Final = "paperclip.fake_harness.message.v1"
TOOL_REQUEST: Final = "semantic_tool"

Payload = dict[str, JsonValue]


def read_message(line: bytes, message_seq: int) -> HarnessMessage:
    """Read one line.

    Args:
        message_seq: the number that this message must have.

    Returns:
        The message; `Misspoken` if its payload is not what its type needs; `Called` with a
        fault if the input of a call is more than JSON on the wire may be. Or raises
        ``harness_message_invalid``, without the text of the line.

    Source: runner-behaviour 12; ruling R20.
    """
    try:
        value = parse_strict(line)
    except PrpError as error:
        return _unreadable_call(line, message_seq, error)
    if not isinstance(value, dict) or value.get("schema") != MESSAGE_SCHEMA:
        raise _invalid("it is no message of this schema")
    seq, type_, payload = value.get("messageSeq"), value.get("type"), value.get("payload")
    if type(seq) is not int or seq != message_seq:
        raise _invalid(f"its messageSeq is not {message_seq}")
    if not isinstance(type_, str) or type_ not in _READERS:
        raise _invalid("its type is unknown")
    if not isinstance(payload, dict):
        raise _invalid("its payload is not an object")
    return _READERS[type_](payload)


def _unreadable_call(line: bytes, message_seq: int, error: PrpError) -> Called:
    """Return a call that can be answered with a refusal, or raise what is wrong with the line."""
    try:
        message = parse_tolerant(line)
    except PrpError:
        message = None
    payload = message.get("payload") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(payload, dict):
        raise _unreadable(error)
    says = [message.get(name) for name in ("schema", "messageSeq", "type")]
    call_id, operation_id = payload.get("callId"), payload.get("operationId")
    if says != [MESSAGE_SCHEMA, message_seq, "request"] or type(says[1]) is not int:
        raise _unreadable(error)
    if payload.get("requestKind") != TOOL_REQUEST or not _is_text(call_id):
        raise _unreadable(error)
    is_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
    return Called(
        call_id=str(call_id),
        operation_id=str(operation_id) if _is_text(operation_id) else "",
        fault=ErrorCode.TOOL_INPUT_TOO_LARGE if is_large else ErrorCode.TOOL_INPUT_INVALID,
    )


def _unreadable(error: PrpError) -> PrpError:
    return _invalid(f"{error.code.value}, {error.message}")


def _is_text(value: JsonValue) -> bool:
    """Tell whether a value is a text that can be written: no lone surrogate is in it."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value


# --- one reader a type ------------------------------------------------------------------------


def _ready(payload: Payload) -> HarnessMessage:
    version = payload.get("driverVersion")
    return Ready(version if isinstance(version, str) else None)


def _event(payload: Payload) -> HarnessMessage:
    event_type, said = payload.get("eventType"), payload.get("payload")
    item_id = payload.get("itemId", "")
    if not isinstance(event_type, str) or not isinstance(said, dict):
        return _misspoken("event", "it needs eventType (text) and payload (object)")
    if not isinstance(item_id, str) or len(item_id) > 240:
        return _misspoken("event", "its itemId is not a text, or too long")
    return Reported(event_type=event_type, payload=said, item_id=item_id)


def _request(payload: Payload) -> HarnessMessage:
    if payload.get("requestKind") == TOOL_REQUEST:
        return _call(payload)
    request_id, kind = payload.get("requestId"), payload.get("requestKind")
    expires = payload.get("expiresInMs")
    if not isinstance(request_id, str) or not isinstance(kind, str) or not 1 <= len(kind) <= 160:
        reason = "it needs requestId and requestKind (texts)"
        return _misspoken("request", reason, request_id=request_id)
    if expires is not None and (
        type(expires) is not int or not 1 <= expires <= REQUEST_EXPIRY_MS_CEILING
    ):
        reason = "its expiresInMs lies outside its range"
        return _misspoken("request", reason, request_id=request_id)
    # How long it waits is no part of what is asked: a later program may have less time.
    question = {name: value for name, value in payload.items() if name != "expiresInMs"}
    return Asked(request_id=request_id, kind=kind, question=question, expires_in_ms=expires)


def _call(payload: Payload) -> HarnessMessage:
    call_id, operation_id = payload.get("callId"), payload.get("operationId")
    key = payload.get("idempotencyKey")
    if (
        not isinstance(call_id, str)
        or not isinstance(operation_id, str)
        or not (key is None or isinstance(key, str))
        or "input" not in payload
    ):
        reason = "a call needs callId, operationId (texts) and input"
        return _misspoken("request", reason, call_id=call_id)
    return Called(
        call_id=call_id, operation_id=operation_id, idempotency_key=key, input=payload["input"]
    )


def _log(payload: Payload) -> HarnessMessage:
    said = payload.get("text")
    return Logged(said) if isinstance(said, str) else _misspoken("log", "it needs text")


def _diagnostic(payload: Payload) -> HarnessMessage:
    code, said = payload.get("code"), payload.get("message", "")
    if not isinstance(code, str) or not isinstance(said, str):
        return _misspoken("diagnostic", "it needs code (text) and may have message (text)")
    return Diagnosed(code, said)


_READERS: Final[Mapping[str, Callable[[Payload], HarnessMessage]]] = {
    "ready": _ready,
    "event": _event,
    "request": _request,
    "result": Proposed,
    "terminal": Concluded,
    "log": _log,
    "diagnostic": _diagnostic,
}


def _misspoken(
    type_: str, reason: str, *, request_id: JsonValue = None, call_id: JsonValue = None
) -> Misspoken:
    return Misspoken(
        type=type_,
        reason=reason,
        request_id=request_id if isinstance(request_id, str) else None,
        call_id=call_id if isinstance(call_id, str) else None,
    )


def _invalid(words: str) -> PrpError:
    return PrpError(ErrorCode.HARNESS_MESSAGE_INVALID, words)
