"""Results of the controller's tools, as `semantic_tool.result` brings them.

It decides which call a result belongs to, whether it came before, and whether anybody waits
for it. It refuses to know what it says, and to execute anything again: a result is final.
"""

import re
from typing import Final

import msgspec
from msgspec import structs

from protocol.base.clock import Now
from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.commands import WireCommand
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.ids import is_stable_id
from protocol.limits import TURN_END_ROOM_BYTES, TURN_ID_LENGTH_MAX
from runnerd.core import dialogue
from runnerd.core.actions import ProviderKind
from runnerd.core.admission import Refused
from runnerd.core.answer import Answer
from runnerd.core.conversation import ToolCall
from runnerd.core.outbox import Draft, produce, soft_room
from runnerd.core.run_fact import EFFECT_WORDS, EffectWord
from runnerd.core.state import Runner
from runnerd.core.tool_calls import (
    INPUT_EVENT,
    content,
    find,
    header,
    replace,
    settle,
    tell_result,
)
from runnerd.core.tool_schemas import response_misfit

RECONCILES_DELIVERY: Final[frozenset[ProviderKind]] = frozenset({"jsonl"})
"""Drivers whose next program may be handed a result that the one before it did not get."""

_CODE: Final = re.compile(r"[a-z][a-z0-9_.:-]{0,159}", re.ASCII)
_BOUNDARIES: Final = frozenset(
    ["company", "actor", "active_task", "grant", "governed_action", "lock", "revision"]
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result that was read: the exact value, its bytes and its digest."""

    call_id: str
    value: JsonValue
    body: bytes
    digest: str
    is_error: bool


def take_result(runner: Runner, command: WireCommand, now: Now) -> Answer | Refused:
    """Take the result of a call; the first one holds, however late it is.

    Returns:
        Completed, status ``delivered`` to the program that waits, or ``stored``: its turn is
        over, and nothing is said to an obsolete one. The same result once more: completed,
        ``duplicate``. Another result for an answered call: failed, ``tool_result_conflict``
        with call, operation and both digests. Or a rejection: ``tool_result_invalid``,
        ``tool_call_unknown``, ``tool_call_conflict`` if it names the call wrongly.

    Source: prp-wire 9.2; durable-recovery, "Semantic operations that outlive a turn".
    """
    payload = parse_strict(bytes(command.payload))
    assert isinstance(payload, dict), "validate_command has seen an object"
    read = _read(payload)
    if read is None:
        return Refused(
            ErrorCode.TOOL_RESULT_INVALID,
            "payload needs callId, operationId, input or inputDigest, result and isError",
        )
    known = find(runner, read.call_id)
    if known is None:
        return Refused(ErrorCode.TOOL_CALL_UNKNOWN, "no such call, or it is long settled")
    if (member := _mismatch(runner, known, payload)) is not None:
        return Refused(ErrorCode.TOOL_CALL_CONFLICT, f"{member} is not that of the call")
    if known.state != "pending":
        return _again(runner, known, read, now)
    # An error is an answer of its own and has no schema.
    words = (
        None
        if read.is_error
        else response_misfit(runner.durable.tools, known.operation_id, read.value)
    )
    if words is not None:
        return Refused(
            ErrorCode.TOOL_RESULT_INVALID, f"the result departs from its schema: {words}"
        )
    return _store(runner, command, known, read, now)


def _store(runner: Runner, command: WireCommand, known: ToolCall, read: Result, now: Now) -> Answer:
    is_waited_for = dialogue.listens(runner, known.generation)
    answered = structs.replace(
        known,
        state="completed",
        result=msgspec.Raw(read.body),
        result_digest=read.digest,
        is_error=read.is_error,
        effect=_effect(read),
    )
    drafts = (Draft("semantic_tool.result", 0, _event(runner, command, known, read)),)
    stored = produce(replace(runner, answered), drafts, now)
    provider = runner.durable.provider
    if is_waited_for:
        stored = tell_result(stored, answered)
    elif runner.durable.run_terminal or (
        provider is None or provider.kind not in RECONCILES_DELIVERY
    ):
        # Nobody will ask for it any more.
        stored = settle(stored, answered)
    status = "delivered" if is_waited_for else "stored"
    return Answer(runner=stored, members={"callId": known.call_id, "status": status})


def _again(runner: Runner, known: ToolCall, read: Result, now: Now) -> Answer:
    names: dict[str, JsonValue] = {"callId": known.call_id, "operationId": known.operation_id}
    if (known.result_digest, known.is_error) != (read.digest, read.is_error):
        members: dict[str, JsonValue] = {
            "code": ErrorCode.TOOL_RESULT_CONFLICT.value,
            **names,
            "storedResultDigest": known.result_digest,
            "resultDigest": read.digest,
        }
        return Answer(runner=runner, members=members, status="failed")
    diagnostic: dict[str, JsonValue] = {
        "code": ErrorCode.SEMANTIC_TOOL_RESULT_DUPLICATE.value,
        **names,
    }
    noted = produce(runner, (Draft("runner.diagnostic", 2, diagnostic),), now)
    if soft_room(noted) < TURN_END_ROOM_BYTES:
        noted = runner
    return Answer(runner=noted, members={"callId": known.call_id, "status": "duplicate"})


def _read(payload: dict[str, JsonValue]) -> Result | None:
    call_id, is_error = payload.get("callId"), payload.get("isError")
    if not isinstance(call_id, str) or not isinstance(is_error, bool) or "result" not in payload:
        return None
    value = payload["result"]
    return Result(
        call_id=call_id,
        value=value,
        body=msgspec.json.encode(value),
        digest=sha256_label(canonical_bytes(value)),
        is_error=is_error,
    )


def _effect(read: Result) -> EffectWord:
    """Return what the controller says of the effect; an error that says nothing leaves it open.

    Its word is its member `effect`. A denial says by itself that nothing was executed.
    """
    said = read.value if isinstance(read.value, dict) and read.is_error else {}
    for word in EFFECT_WORDS:
        if said.get("effect") == word:
            return word
    if said.get("outcome") == "denied":
        return "not_started"
    return "unknown" if read.is_error else "committed"


def _mismatch(runner: Runner, known: ToolCall, payload: dict[str, JsonValue]) -> str | None:
    correlation = header(runner, "result", "", "", None)["correlation"]
    expected: dict[str, JsonValue] = {
        "operationId": known.operation_id,
        "sourceEventId": known.source_event_id,
        "sourceEventType": INPUT_EVENT,
        "correlation": correlation,
    }
    for member, value in expected.items():
        if payload.get(member) != value:
            return member
    if "inputDigest" in payload:
        return None if payload["inputDigest"] == known.input_digest else "inputDigest"
    if "input" not in payload:
        return "inputDigest"
    try:
        digest = sha256_label(canonical_bytes(payload["input"]))
    except PrpError:
        return "input"
    return None if digest == known.input_digest else "input"


def _event(
    runner: Runner, command: WireCommand, known: ToolCall, read: Result
) -> dict[str, JsonValue]:
    """Return the event about a result: its digest and what it says of itself, never its body."""
    said = read.value if isinstance(read.value, dict) else {}
    code, receipt = said.get("code"), said.get("operationReceiptId")
    boundary, retryable = said.get("authorizationBoundary"), said.get("retryable")
    fallback = "failed" if read.is_error else "succeeded"
    is_code = isinstance(code, str) and _CODE.fullmatch(code)
    is_boundary = isinstance(boundary, str) and boundary in _BOUNDARIES
    is_receipt = isinstance(receipt, str) and is_stable_id(receipt, TURN_ID_LENGTH_MAX)
    named = {
        "outcome": fallback,
        "code": code if is_code else fallback,
        "retryable": retryable if isinstance(retryable, bool) else False,
        "authorizationBoundary": boundary if is_boundary else "active_task",
        "operationReceiptId": receipt if is_receipt else _receipt_id(command),
    }
    header_ = header(runner, "result", known.operation_id, known.call_id, known.idempotency_key)
    return {"semantic_tool": {**header_, **named, "content": content(read.digest)}}


def _receipt_id(command: WireCommand) -> str:
    """Return the id of the command that brought the result, as one that an event can carry."""
    if is_stable_id(command.command_id, TURN_ID_LENGTH_MAX):
        return command.command_id
    return f"command_{command.controller_seq}"
