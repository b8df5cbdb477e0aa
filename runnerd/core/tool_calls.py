"""Calls of the controller's tools: made once, answered once, and kept beyond the turn.

It decides whether a call may be made and what becomes of its result. It refuses to know the
tools, and never alters what is passed: an input arrives bit for bit or is refused by name.

    called ─▶ pending ─semantic_tool.result─▶ completed ─program was told─▶ settled
                │                                └─ nobody waits: kept for the next program
                └─ turn over: still pending; no new turn until its result is there
"""

from typing import Final

import msgspec
from msgspec import structs

from protocol import replay_filter
from protocol.base.clock import Now
from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.events import event_id
from protocol.ids import SourceSeq, is_stable_id
from protocol.limits import (
    SEMANTIC_INPUT_BYTES_MAX,
    TOOL_CALLS_COMPACTED_MAX,
    TOOL_CALLS_SETTLED_MAX,
    TOOL_RESULT_BUDGET_BYTES,
    TOOL_RESULT_BYTES_MAX,
    TURN_END_ROOM_BYTES,
    TURN_ID_LENGTH_MAX,
)
from protocol.redaction import redact_value
from runnerd.core import budget, dialogue, tool_schemas
from runnerd.core.conversation import ToolCall
from runnerd.core.harness_messages import Called
from runnerd.core.outbox import Draft, produce, soft_room
from runnerd.core.state import Runner, Turn
from runnerd.core.transition import advance

INPUT_EVENT: Final = "semantic_tool.input"


# --- the harness calls ------------------------------------------------------------------------


def call(runner: Runner, turn: Turn, called: Called, now: Now) -> Runner | ErrorCode:
    """Take a call of the live program.

    Returns:
        The call as pending, with its one `semantic_tool.input` and the room for its largest
        result in the same revision. A call that an earlier program made with the same
        content waits for the same result, or gets the one that is stored. Or the code of a
        refusal, in which case nothing was made known to anybody: ``tool_call_invalid``,
        ``tool_not_authorized``, ``tool_input_invalid``, ``tool_input_too_large``,
        ``tool_input_holds_credential``, ``tool_call_conflict`` for a known id with another
        content, ``tool_call_settled``, ``tool_call_id_possibly_reused``,
        ``budget_exceeded``, ``tool_calls_exhausted``, ``tool_calls_full``, ``outbox_full``.

    Source: runner-behaviour 15; durable-recovery, "Lossless arguments and bounded transport".
    """
    tools = runner.durable.tools
    if not is_stable_id(called.call_id, TURN_ID_LENGTH_MAX):
        return ErrorCode.TOOL_CALL_INVALID
    if called.idempotency_key is not None and not 1 <= len(called.idempotency_key) <= 240:
        return ErrorCode.TOOL_CALL_INVALID
    if called.fault is not None:
        return called.fault
    if tools is None or called.operation_id not in tools.operation_ids:
        return ErrorCode.TOOL_NOT_AUTHORIZED
    try:
        exact = canonical_bytes(called.input)
    except PrpError:
        return ErrorCode.TOOL_INPUT_INVALID
    if len(exact) > SEMANTIC_INPUT_BYTES_MAX:
        return ErrorCode.TOOL_INPUT_TOO_LARGE
    digest = sha256_label(exact)
    known = find(runner, called.call_id)
    if known is not None:
        return _call_again(runner, turn, known, called, digest)
    if (code := _no_room(runner, called.call_id)) is not None:
        return code
    if tool_schemas.input_misfit(tools, called.operation_id, called.input) is not None:
        return ErrorCode.TOOL_INPUT_INVALID
    # What would have to be altered is refused: an altered input is another input (I19).
    if redact_value(called.input) != called.input:
        return ErrorCode.TOOL_INPUT_HOLDS_CREDENTIAL
    return _make(runner, turn, called, digest, now)


def input_digest(called: Called) -> str:
    """Return the digest of an input that `call` has found to be spellable."""
    return sha256_label(canonical_bytes(called.input))


def _make(runner: Runner, turn: Turn, called: Called, digest: str, now: Now) -> Runner | ErrorCode:
    draft = Draft(INPUT_EVENT, 0, {"semantic_tool": _input(runner, called, digest)})
    seq = runner.durable.next_source_seq
    try:
        longer = produce(runner, (draft,), now)
    except PrpError as error:
        is_large = error.code is ErrorCode.EVENT_TOO_LARGE
        return ErrorCode.TOOL_INPUT_TOO_LARGE if is_large else ErrorCode.TOOL_INPUT_INVALID
    if soft_room(longer) < TURN_END_ROOM_BYTES:
        return ErrorCode.OUTBOX_FULL
    made = ToolCall(
        call_id=called.call_id,
        operation_id=called.operation_id,
        input_digest=digest,
        idempotency_key=called.idempotency_key,
        source_event_id=event_id(runner.settings.identity, SourceSeq(seq)),
        generation=turn.generation,
    )
    return advance(longer, tool_calls=(*longer.durable.tool_calls, made))


def _call_again(
    runner: Runner, turn: Turn, known: ToolCall, called: Called, digest: str
) -> Runner | ErrorCode:
    same = (known.operation_id, known.input_digest, known.idempotency_key)
    if same != (called.operation_id, digest, called.idempotency_key):
        return ErrorCode.TOOL_CALL_CONFLICT
    if known.state == "settled":
        return ErrorCode.TOOL_CALL_SETTLED
    if known.generation == turn.generation:
        return runner
    waiting = structs.replace(known, generation=turn.generation)
    runner = replace(runner, waiting)
    return runner if known.state == "pending" else tell_result(runner, waiting)


def _no_room(runner: Runner, call_id: str) -> ErrorCode | None:
    """Return why no further call can be admitted: an admitted one can always store its result."""
    durable = runner.durable
    if not budget.allows_call(durable):
        return ErrorCode.BUDGET_EXCEEDED
    if durable.compacted_calls >= TOOL_CALLS_COMPACTED_MAX:
        return ErrorCode.TOOL_CALLS_EXHAUSTED
    stored = durable.compacted_call_filter
    if stored is not None and replay_filter.may_contain(replay_filter.from_hex(stored), call_id):
        return ErrorCode.TOOL_CALL_ID_POSSIBLY_REUSED
    reserved = reserved_bytes(durable.tool_calls) + TOOL_RESULT_BYTES_MAX
    if reserved > TOOL_RESULT_BUDGET_BYTES or not dialogue.end_fits(runner):
        return ErrorCode.TOOL_CALLS_FULL
    return None


def reserved_bytes(calls: tuple[ToolCall, ...]) -> int:
    """Return the bytes that results of these calls take, or may come to take."""
    return sum(
        TOOL_RESULT_BYTES_MAX
        if one.state == "pending"
        else len(one.result)
        if isinstance(one.result, msgspec.Raw)
        else 0
        for one in calls
    )


def _input(runner: Runner, called: Called, digest: str) -> dict[str, JsonValue]:
    return {
        **header(runner, "input", called.operation_id, called.call_id, called.idempotency_key),
        "input": called.input,
        "content": content(digest),
    }


def header(
    runner: Runner, phase: str, operation_id: str, call_id: str, idempotency_key: str | None
) -> dict[str, JsonValue]:
    """Return what the payloads of a call's input and of its result begin with."""
    identity = runner.settings.identity
    return {
        "schema": "paperclip.prp.semantic_tool.v1",
        "schemaVersion": 1,
        "phase": phase,
        "operationId": operation_id,
        "callId": call_id,
        "correlation": {
            "runId": identity.run_id,
            "normalizedSessionId": identity.normalized_session_id,
            "turnId": identity.turn_id,
            "itemId": identity.item_id,
        },
        "idempotencyKey": idempotency_key,
    }


def content(digest: str) -> dict[str, JsonValue]:
    """Return how a payload proves its content."""
    return {"digest": digest, "redactionDisposition": "digest_only", "references": []}


# --- what the program is told -----------------------------------------------------------------


def tell_result(runner: Runner, answered: ToolCall) -> Runner:
    """Tell the program the result that it waits for, as it came."""
    assert isinstance(answered.result, msgspec.Raw), "a result is kept until it was told"
    return dialogue.tell(
        runner,
        "semantic_tool.result",
        {
            "callId": answered.call_id,
            "operationId": answered.operation_id,
            "isError": answered.is_error,
            "result": answered.result,
        },
        ("call", answered.call_id),
    )


def tell_refusal(runner: Runner, call_id: str, operation_id: str, code: ErrorCode) -> Runner:
    """Tell the program that its call was not passed on: nothing was executed."""
    return dialogue.tell(
        runner,
        "semantic_tool.result",
        {
            "callId": call_id,
            "operationId": operation_id,
            "isError": True,
            "result": {
                "code": ErrorCode.SEMANTIC_TOOL_NOT_DISPATCHED.value,
                "reason": code.value,
            },
        },
    )


def told(runner: Runner, call_id: str) -> Runner:
    """Settle a call whose result the program has."""
    known = find(runner, call_id)
    if known is None or known.state != "completed":
        return runner
    return settle(runner, known)


def settle(runner: Runner, known: ToolCall) -> Runner:
    """Keep of an answered call what tells a repetition from a contradiction."""
    return _compacted(
        replace(runner, structs.replace(known, state="settled", result=msgspec.UNSET))
    )


def settle_completed(runner: Runner) -> Runner:
    """Settle every answered call: the run has ended, so no program will ask for the result."""
    for known in runner.durable.tool_calls:
        if known.state == "completed":
            runner = settle(runner, known)
    return runner


# --- what is remembered -----------------------------------------------------------------------


def find(runner: Runner, call_id: str) -> ToolCall | None:
    """Return a call that is known exactly."""
    for one in runner.durable.tool_calls:
        if one.call_id == call_id:
            return one
    return None


def has_pending(runner: Runner) -> bool:
    """Tell whether the outcome of a call is not known yet."""
    return any(one.state == "pending" for one in runner.durable.tool_calls)


def replace(runner: Runner, changed: ToolCall) -> Runner:
    """Return the runner with another state of one call."""
    return advance(
        runner,
        tool_calls=tuple(
            changed if one.call_id == changed.call_id else one for one in runner.durable.tool_calls
        ),
    )


def _compacted(runner: Runner) -> Runner:
    """Let the oldest settled calls go; their ids enter the filter in the same revision."""
    durable = runner.durable
    over = sum(one.state == "settled" for one in durable.tool_calls) - TOOL_CALLS_SETTLED_MAX
    if over <= 0:
        return runner
    gone = [one for one in durable.tool_calls if one.state == "settled"][:over]
    stored = durable.compacted_call_filter
    ids = replay_filter.EMPTY if stored is None else replay_filter.from_hex(stored)
    for one in gone:
        ids = replay_filter.with_id(ids, one.call_id)
    return advance(
        runner,
        tool_calls=tuple(one for one in durable.tool_calls if one not in gone),
        compacted_calls=durable.compacted_calls + len(gone),
        compacted_call_filter=replay_filter.to_hex(ids),
    )
