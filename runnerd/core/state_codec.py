"""Bytes of the durable half, and the checks that a loaded state must pass.

It decides whether a state can be believed. It refuses to repair one.
"""

from typing import Final

import msgspec

from protocol import replay_filter
from protocol.errors import ErrorCode, PrpError
from protocol.limits import (
    COMMAND_RECORDS_MAX,
    DIAGNOSTIC_BYTES_MAX,
    DIAGNOSTICS_MAX,
    REQUESTS_PENDING_MAX,
    REQUESTS_SETTLED_MAX,
    TOOL_CALLS_SETTLED_MAX,
    TOOL_RESULT_BUDGET_BYTES,
)
from runnerd.core.outbox import outbox_bytes
from runnerd.core.state import Durable, Settings
from runnerd.core.tool_calls import reserved_bytes


class _Numbered(msgspec.Struct, rename="camel"):
    """What a stored event must say about itself."""

    source_seq: int


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Durable)
_NUMBERED: Final = msgspec.json.Decoder(_Numbered)


def encode(durable: Durable) -> bytes:
    """Return the JSON of everything that a restarted process knows; event bodies are copied."""
    return _ENCODER.encode(durable)


def load(content: bytes, settings: Settings) -> Durable:
    """Read a state and check that its parts fit each other and the command line.

    Returns:
        The state. Or raises ``state_foreign`` if it belongs to another identity,
        ``state_corrupt`` if anything in it contradicts anything else.

    Source: runner-behaviour 3.2.
    """
    durable = _decoded(content)
    if durable.identity != settings.identity:
        raise PrpError(ErrorCode.STATE_FOREIGN, "the state belongs to another run or runner")
    return _checked(durable)


def believe(content: bytes) -> Durable:
    """Read a state of whatever identity; otherwise as `load`, for a look from beside."""
    return _checked(_decoded(content))


def _decoded(content: bytes) -> Durable:
    try:
        return _DECODER.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise PrpError(ErrorCode.STATE_CORRUPT, "the state does not have its form") from None


def _checked(durable: Durable) -> Durable:
    for holds, what in (
        (_outbox_holds(durable), "outbox"),
        (_commands_hold(durable), "command journal"),
        (_calls_hold(durable), "record of tool calls"),
        (_requests_hold(durable), "record of requests"),
        (_rest_holds(durable), "cursors and facts"),
    ):
        if not holds:
            raise PrpError(ErrorCode.STATE_CORRUPT, f"the {what} of the state contradicts itself")
    return durable


def _outbox_holds(durable: Durable) -> bool:
    expected = durable.acked_source_seq + 1
    for entry in durable.outbox:
        if entry.source_seq != expected or _stored_seq(entry.body) != expected:
            return False
        expected += 1
    return expected == durable.next_source_seq and durable.acked_source_seq >= 0


def _stored_seq(body: msgspec.Raw) -> int | None:
    # Its bytes were judged when it was produced, and are covered by the file's digest.
    try:
        return _NUMBERED.decode(body).source_seq
    except (msgspec.MsgspecError, RecursionError):
        return None


def _commands_hold(durable: Durable) -> bool:
    seqs = [record.controller_seq for record in durable.commands]
    first = durable.compacted_through_controller_seq + 1
    if first < 1 or seqs != list(range(first, durable.last_controller_command_seq + 1)):
        return False
    if len(seqs) > COMMAND_RECORDS_MAX or not _filter_holds(durable):
        return False
    ids = {record.command_id for record in durable.commands}
    return len(ids) == len(seqs) and all(
        record.result is None
        or (record.result.command_id, record.result.controller_seq)
        == (record.command_id, record.controller_seq)
        for record in durable.commands
    )


def _filter_holds(durable: Durable) -> bool:
    if durable.compacted_commands != durable.compacted_through_controller_seq:
        return False
    return _has_ids(durable.compacted_command_filter, durable.compacted_commands)


def _has_ids(stored: str | None, count: int) -> bool:
    if stored is None:
        return count == 0
    try:
        return any(replay_filter.from_hex(stored)) == (count > 0)
    except PrpError:
        return False


def _calls_hold(durable: Durable) -> bool:
    calls = durable.tool_calls
    has_result = {"pending": (False, False), "completed": (True, True), "settled": (False, True)}
    return (
        len({call.call_id for call in calls}) == len(calls)
        and reserved_bytes(calls) <= TOOL_RESULT_BUDGET_BYTES
        and sum(call.state == "settled" for call in calls) <= TOOL_CALLS_SETTLED_MAX
        and _has_ids(durable.compacted_call_filter, durable.compacted_calls)
        and all(
            has_result[call.state]
            == (isinstance(call.result, msgspec.Raw), call.result_digest is not None)
            for call in calls
        )
    )


def _requests_hold(durable: Durable) -> bool:
    asked = durable.requests
    is_answered = ("answered", "resolved")
    return (
        len({request.request_id for request in asked}) == len(asked)
        and sum(request.is_open for request in asked) <= REQUESTS_PENDING_MAX
        and len(asked) <= REQUESTS_PENDING_MAX + REQUESTS_SETTLED_MAX
        and all(
            (request.answer_digest is not None) == (request.state in is_answered)
            and isinstance(request.answer, msgspec.Raw) == (request.state == "answered")
            for request in asked
        )
    )


def _rest_holds(durable: Durable) -> bool:
    turn, fence = durable.turn, durable.terminal_delivery
    return (
        durable.peak_outbox_bytes >= outbox_bytes(durable.outbox, durable.identity)
        and len(durable.diagnostics) <= DIAGNOSTICS_MAX
        and all(len(text.encode()) <= DIAGNOSTIC_BYTES_MAX + 32 for text in durable.diagnostics)
        and durable.lines_accepted >= 0
        and durable.turns_started >= 0
        and durable.generation >= 0
        and (
            turn is None or (turn.generation == durable.generation and durable.provider is not None)
        )
        and (fence is None or fence.controller_seq <= durable.last_controller_command_seq)
    )
