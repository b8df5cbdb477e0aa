"""The command journal: what was received, and the stored answer to it.

It decides whether a command is new, known, altered, old or out of order, and what its
answer is. It refuses to know what a command does: `commands` has one function for each.

    received ─▶ journaled with result (state-only effects)          ─▶ result sent, again if asked
             └▶ journaled without (outside effect) ─▶ effect ─▶ result ─▶ sent, again if asked
                       └─ restart before the result ─▶ indeterminate, never run again
"""

from typing import Final

import msgspec

from protocol import replay_filter
from protocol.base.clock import Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.commands import (
    CommandResult,
    CommandStatus,
    WireCommand,
    command_fingerprint,
    validate_command,
)
from protocol.errors import ErrorCode, PrpError
from protocol.limits import (
    COMMAND_JOURNAL_BYTES_MAX,
    COMMAND_RECORDS_MAX,
    REPLAY_FILTER_IDS_MAX,
    REPLAY_FILTER_WARN_IDS,
)
from runnerd.core.actions import SendResult
from runnerd.core.outbox import Draft, produce
from runnerd.core.state import CommandRecord, Runner
from runnerd.core.transition import Step, advance, claim, refuse

_RECORD_OVERHEAD_BYTES: Final = 256


def known_answer(runner: Runner, command: WireCommand, now: Now) -> Step | None:
    """Answer a command that is not new, or return None if it is the next one.

    Returns:
        For an id in the journal with the same digest: the stored result again, or nothing
        while its effect is under way. With another digest: CloseConnection
        ``command_conflict``. For a sequence at or below the compaction mark: a result
        ``rejected`` with ``command_history_compacted``, not stored. For any other sequence
        than the next: CloseConnection ``command_gap``. For a malformed command:
        CloseConnection ``command_invalid``. For the next sequence under an id that the
        replay filter may have seen: a result ``rejected`` with
        ``command_id_possibly_reused``, stored; zero effects are certain, so the controller
        may ask again under a new id (R14).

    Source: runner-behaviour 7; invariant I6.
    """
    try:
        validate_command(command)
    except PrpError as error:
        return refuse(runner, error.code)
    durable = runner.durable
    record = next((r for r in durable.commands if r.command_id == command.command_id), None)
    if record is not None:
        if record.fingerprint != command_fingerprint(command):
            return refuse(runner, ErrorCode.COMMAND_CONFLICT)
        return Transition(runner) if record.result is None else send(runner, record.result)
    if command.controller_seq <= durable.compacted_through_controller_seq:
        return send(runner, refusal(command, ErrorCode.COMMAND_HISTORY_COMPACTED))
    if command.controller_seq != durable.last_controller_command_seq + 1:
        return refuse(runner, ErrorCode.COMMAND_GAP)
    if _is_full(runner) and durable.commands[0].result is None:
        return send(runner, refusal(command, ErrorCode.COMMAND_QUEUE_FULL))
    if _may_be_reused(runner, command):
        answer = refusal(command, ErrorCode.COMMAND_ID_POSSIBLY_REUSED)
        return send(journal(runner, command, answer, now), answer)
    return None


def journal(runner: Runner, command: WireCommand, result: CommandResult | None, now: Now) -> Runner:
    """Record a new command, with its result if its whole effect is in the same revision.

    The oldest records leave when the bounds are reached; their ids enter the replay filter
    in the same revision.
    """
    record = CommandRecord(
        command_id=command.command_id,
        command_type=command.type,
        controller_seq=command.controller_seq,
        fingerprint=command_fingerprint(command),
        result=result,
    )
    longer = advance(
        runner,
        commands=(*runner.durable.commands, record),
        last_controller_command_seq=command.controller_seq,
    )
    while _is_full(longer, beyond=1) and longer.durable.commands[0].result is not None:
        longer = _compact_oldest(longer, now)
    return longer


def _compact_oldest(runner: Runner, now: Now) -> Runner:
    durable = runner.durable
    oldest, *kept = durable.commands
    shorter = advance(
        runner,
        commands=tuple(kept),
        compacted_through_controller_seq=oldest.controller_seq,
        compacted_commands=durable.compacted_commands + 1,
        compacted_command_filter=replay_filter.to_hex(
            replay_filter.with_id(_filter_of(runner), oldest.command_id)
        ),
    )
    if shorter.durable.compacted_commands != REPLAY_FILTER_WARN_IDS:
        return shorter
    payload: dict[str, JsonValue] = {
        "code": ErrorCode.COMMAND_ID_POSSIBLY_REUSED.value,
        "compactedCommands": REPLAY_FILTER_WARN_IDS,
        "newTurnsRefusedFrom": REPLAY_FILTER_IDS_MAX,
    }
    return produce(shorter, (Draft("runner.diagnostic", 0, payload),), now)


def _filter_of(runner: Runner) -> bytes:
    stored = runner.durable.compacted_command_filter
    return replay_filter.EMPTY if stored is None else replay_filter.from_hex(stored)


def _may_be_reused(runner: Runner, command: WireCommand) -> bool:
    return runner.durable.compacted_commands > 0 and replay_filter.may_contain(
        _filter_of(runner), command.command_id
    )


def complete(runner: Runner, controller_seq: int, result: CommandResult) -> Runner:
    """Store the result of a command that was journaled without one; results are final."""
    return advance(
        runner,
        commands=tuple(
            msgspec.structs.replace(record, result=result)
            if record.controller_seq == controller_seq and record.result is None
            else record
            for record in runner.durable.commands
        ),
    )


def pending(runner: Runner, controller_seq: int) -> CommandRecord | None:
    """Return the record of a command whose effect has no result yet."""
    for record in runner.durable.commands:
        if record.controller_seq == controller_seq and record.result is None:
            return record
    return None


def send(runner: Runner, result: CommandResult) -> Step:
    """Send a result on the present connection, after everything staged is durable."""
    connection = runner.live.connection
    if connection is None:
        return Transition(runner)
    action = SendResult(connection.binding.connection_id, result)
    return Transition(runner, (claim(runner, action),))


def result_of(
    command: WireCommand | CommandRecord,
    status: CommandStatus,
    effects: int | None,
    members: dict[str, JsonValue],
) -> CommandResult:
    """Build a result; ``effects`` is its logical effect count, None when nobody knows."""
    body: dict[str, JsonValue] = {**members, "logicalEffectCount": effects}
    return CommandResult(
        command_id=command.command_id,
        command_type=command.type if isinstance(command, WireCommand) else command.command_type,
        controller_seq=command.controller_seq,
        status=status,
        result=msgspec.Raw(msgspec.json.encode(body)),
    )


def refusal(command: WireCommand, code: ErrorCode, message: str = "") -> CommandResult:
    """Build the result of a command that was not executed: zero effects."""
    members: dict[str, JsonValue] = {"code": code.value}
    if message:
        members["message"] = message
    return result_of(command, "rejected", 0, members)


def indeterminate(record: CommandRecord) -> CommandRecord:
    """Settle a command that a restart found without a result: nobody knows its effect (R1)."""
    members: dict[str, JsonValue] = {"code": ErrorCode.EXECUTION_INDETERMINATE.value}
    return msgspec.structs.replace(record, result=result_of(record, "indeterminate", None, members))


def _is_full(runner: Runner, beyond: int = 0) -> bool:
    commands = runner.durable.commands
    if len(commands) >= COMMAND_RECORDS_MAX + beyond:
        return True
    size = sum(
        _RECORD_OVERHEAD_BYTES + (len(record.result.result) if record.result else 0)
        for record in commands
    )
    return len(commands) > 1 and size > COMMAND_JOURNAL_BYTES_MAX
