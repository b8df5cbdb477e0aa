"""Calls of the controller's tools: what an input event asks and which command answers it.

It decides what a call and its answer are bound to. It refuses to know the tools.
"""

import hashlib
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.event_payloads import SEMANTIC_INPUT
from protocol.events import Event
from protocol.ids import CommandId, Identity
from protocol.limits import SEMANTIC_INPUT_BYTES_MAX

AUTHORIZED_TOOLS_SCHEMA: Final = "paperclip.runner.authorized-tools.v1"

_CORRELATION_MEMBERS: Final = ("runId", "normalizedSessionId", "turnId", "itemId")


class SemanticInput(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a controller's tool, proven to be bound to its run and its input."""

    operation_id: str
    call_id: str
    idempotency_key: str | None
    input: JsonValue
    input_digest: str
    """`sha256:` and the digest of the complete canonical input."""


def read_semantic_input(payload: JsonValue, identity: Identity) -> SemanticInput:
    """Read the call that a `semantic_tool.input` or `mcp_app.tool_input` event carries.

    Args:
        payload: the parsed payload of the event.
        identity: of the connection; the call's correlation must name it.

    Returns:
        The call. Or raises ``event_invalid`` if the call is missing, malformed or too
        large, ``identity_mismatch`` for a foreign correlation, ``semantic_digest_mismatch``
        if the content digest is not that of the complete input.

    Source: prp-wire 9.1.
    """
    misfit = SEMANTIC_INPUT(payload)
    if misfit is not None:
        raise PrpError(ErrorCode.EVENT_INVALID, f"no call of a tool at /payload{misfit}")
    call = _members(_members(payload)["semantic_tool"])
    if "input" not in call:
        raise PrpError(ErrorCode.EVENT_INVALID, "no input at /payload/semantic_tool")
    correlation = _members(call["correlation"])
    if any(correlation[name] != value for name, value in _correlation(identity).items()):
        raise PrpError(ErrorCode.IDENTITY_MISMATCH, "the call names another run")
    canonical = canonical_bytes(call["input"])
    if len(canonical) > SEMANTIC_INPUT_BYTES_MAX:
        raise PrpError(ErrorCode.EVENT_INVALID, "the input at /payload/semantic_tool is too large")
    digest = sha256_label(canonical)
    if _members(call["content"])["digest"] != digest:
        raise PrpError(ErrorCode.SEMANTIC_DIGEST_MISMATCH, "the digest is of another input")
    key = call["idempotencyKey"]
    return SemanticInput(
        operation_id=str(call["operationId"]),
        call_id=str(call["callId"]),
        idempotency_key=key if isinstance(key, str) else None,
        input=call["input"],
        input_digest=digest,
    )


def result_command_id(run_id: str, call_id: str) -> CommandId:
    """Return the id of the one command that answers a call.

    Source: prp-wire 9.2.
    """
    named = hashlib.sha256(run_id.encode() + b"\0" + call_id.encode())
    return CommandId(f"command_tool_{named.hexdigest()[:32]}")


def result_command_payload(
    call: SemanticInput, event: Event, identity: Identity, result: JsonValue, *, is_error: bool
) -> dict[str, JsonValue]:
    """Return the payload of the command that answers a call.

    It names its input by digest, which both peers take: a large input beside a large result
    would fit no command.

    Args:
        event: the committed event that carried the call.
        result: what the tool answered; any JSON value.

    Source: prp-wire 9.2.
    """
    return {
        "callId": call.call_id,
        "operationId": call.operation_id,
        "inputDigest": call.input_digest,
        "sourceEventId": event.source_event_id,
        "sourceEventType": event.event_type,
        "correlation": dict(_correlation(identity)),
        "result": result,
        "isError": is_error,
    }


def answers(call: SemanticInput, event: Event, identity: Identity, payload: JsonValue) -> bool:
    """Tell whether a command's payload answers exactly this call.

    Either the complete `input` or its `inputDigest` binds the payload to the input.
    """
    if not isinstance(payload, dict):
        return False
    if "inputDigest" in payload:
        same_input = payload["inputDigest"] == call.input_digest
    else:
        same_input = (
            "input" in payload
            and sha256_label(canonical_bytes(payload["input"])) == call.input_digest
        )
    return (
        same_input
        and payload.get("callId") == call.call_id
        and payload.get("operationId") == call.operation_id
        and payload.get("sourceEventId") == event.source_event_id
        and payload.get("sourceEventType") == event.event_type
        and payload.get("correlation") == _correlation(identity)
    )


def catalog_digest(operations: JsonValue) -> str:
    """Return the digest of an authorized tool set's operations, in their given order.

    Source: prp-wire 9.3.
    """
    return sha256_label(canonical_bytes(operations))


def authorized_tools(operations: list[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return the tool set of `run.prepare` and `run.attach`.

    Args:
        operations: objects with operationId, version, description, inputSchema and
            responseSchema.

    Source: prp-wire 9.3.
    """
    ordered = sorted(operations, key=lambda one: str(one["operationId"]).encode("utf-16-be"))
    listed: list[JsonValue] = [*ordered]
    return {
        "schema": AUTHORIZED_TOOLS_SCHEMA,
        "schemaVersion": 1,
        "catalogDigest": catalog_digest(listed),
        "operations": listed,
    }


def _correlation(identity: Identity) -> dict[str, JsonValue]:
    values = (
        identity.run_id,
        identity.normalized_session_id,
        identity.turn_id,
        identity.item_id,
    )
    return dict(zip(_CORRELATION_MEMBERS, values, strict=True))


def _members(value: JsonValue) -> dict[str, JsonValue]:
    assert isinstance(value, dict), "the shape was judged before"
    return value
