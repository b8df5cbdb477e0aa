"""Turns: admission, the one harness process that does the work, and the truthful end.

It decides what a turn's outcome is from what was seen. It refuses to start, read or kill
anything: `duties` orders that from the state set here.

    admit ─▶ starting ─HarnessSpawned─▶ running (birth durable, gate opens) ─▶ exited
                │                          │                                      └▶ run.terminal
                │                          └─ runner lost ─▶ turn.interrupted ┐
                └─ HarnessStartFailed ─▶ turn.failed ─────────────────────────┴▶ another turn
"""

from typing import Final, Literal

from msgspec import structs

from protocol.base.clock import Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from protocol.ids import ControllerSeq, Generation
from protocol.limits import TURN_END_ROOM_BYTES
from runnerd.core import command_journal, ending
from runnerd.core.command_journal import result_of
from runnerd.core.inputs import (
    HarnessExited,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    OrphanSettled,
    ProcessExit,
)
from runnerd.core.outbox import Draft, produce, produce_updates, soft_room
from runnerd.core.state import Lifecycle, Runner, Turn
from runnerd.core.transition import Step, advance

TERMINAL_SCHEMA: Final = "paperclip.prp.terminal.v1"
RESULT_SCHEMA: Final = "paperclip.run_result.v1"

TurnState = Literal["completed", "failed", "interrupted", "cancelled"]
RunState = Literal["succeeded", "failed", "cancelled"]


def admit(runner: Runner, controller_seq: ControllerSeq, timeout_ms: int, now: Now) -> Runner:
    """Begin a turn whose program is not started yet."""
    durable = runner.durable
    ordinal = durable.turns_started + 1
    turn = Turn(
        ordinal=ordinal,
        generation=Generation(durable.generation + 1),
        controller_seq=controller_seq,
        timeout_ms=timeout_ms,
    )
    begun = advance(
        runner,
        turn=turn,
        turns_started=ordinal,
        generation=turn.generation,
    )
    drafts = (
        Draft("turn.accepted", 0, {"turnOrdinal": ordinal}),
        Draft("harness.starting", 1, {"generation": turn.generation, "driverKind": "command"}),
    )
    return produce(begun, drafts, now)


def on_spawned(runner: Runner, spawned: HarnessSpawned, now: Now) -> Step:
    """Record the process's birth and complete `turn.start`; the program has not run yet."""
    turn = _turn_of(runner, spawned.generation)
    if turn is None or turn.birth is not None:
        return Transition(runner)
    started = advance(runner, turn=structs.replace(turn, birth=spawned.birth))
    answered = _answer_start(
        started,
        turn,
        "completed",
        1,
        {"turnOrdinal": turn.ordinal, "generation": turn.generation},
    )
    drafts = (
        Draft("turn.started", 0, {"turnOrdinal": turn.ordinal}),
        Draft(
            "harness.ready",
            1,
            {"generation": turn.generation, "driverKind": "command", "transport": "stdio_lines"},
        ),
        Draft("item.started", 2, {"channel": "progress", "turnOrdinal": turn.ordinal}),
    )
    return Transition(produce(answered.state, drafts, now), answered.actions)


def on_start_failed(runner: Runner, failed: HarnessStartFailed, now: Now) -> Step:
    """End a turn whose program never ran: zero effects, the run can have another turn."""
    turn = _turn_of(runner, failed.generation)
    if turn is None or turn.birth is not None:
        return Transition(runner)
    code = ErrorCode.HARNESS_START_FAILED.value
    answered = _answer_start(
        advance(runner, turn=None), turn, "failed", 0, {"code": code, "message": failed.reason}
    )
    draft = Draft(
        "turn.failed",
        0,
        {"turnOrdinal": turn.ordinal, "reason": code, "message": failed.reason},
    )
    return Transition(produce(answered.state, (draft,), now), answered.actions)


def on_output(runner: Runner, output: HarnessOutput, now: Now) -> Step:
    """Turn lines into events; `duties` asks for more only when these are durable."""
    turn = _turn_of(runner, output.generation)
    if turn is None:
        return Transition(runner)
    accepted = _accept_lines(runner, turn, output.lines, now)
    if soft_room(accepted) >= TURN_END_ROOM_BYTES:
        return Transition(accepted)
    # Lines are taken one by one as long as they fit; the first that does not ends the turn.
    for line in output.lines:
        live_turn = runner.durable.turn
        assert live_turn is not None
        longer = _accept_lines(runner, live_turn, (line,), now)
        if soft_room(longer) < TURN_END_ROOM_BYTES:
            return Transition(ending.stop_turn(runner, "overflow"))
        runner = longer
    return Transition(runner)


def _accept_lines(runner: Runner, turn: Turn, lines: tuple[str, ...], now: Now) -> Runner:
    first = runner.durable.lines_accepted + 1
    updates: list[dict[str, JsonValue]] = [
        {"channel": "progress", "text": line + "\n", "stream": "stdout", "lineNumber": number}
        for number, line in enumerate(lines, start=first)
    ]
    size = sum(len(line.encode()) + 1 for line in lines)
    counted = advance(
        runner,
        lines_accepted=runner.durable.lines_accepted + len(lines),
        turn=structs.replace(
            turn, lines=turn.lines + len(lines), output_bytes=turn.output_bytes + size
        ),
    )
    return produce_updates(counted, "item.delta", updates, now)


def on_exited(runner: Runner, exited: HarnessExited, now: Now) -> Step:
    """End the turn with what was seen of its process.

    Returns:
        The state with the turn's last events: exactly one `run.terminal`, unless the
        runner itself ended the process (stop, lost authority): that turn is interrupted,
        its effects are unknown, and the run can have another turn.

    Source: runner-behaviour 12, outcome table.
    """
    turn = _turn_of(runner, exited.generation)
    if turn is None:
        return Transition(runner)
    answered = _answer_start(
        runner, turn, "failed", 0, {"code": ErrorCode.HARNESS_START_FAILED.value}
    )
    facts: dict[str, JsonValue] = {
        "generation": turn.generation,
        "processExit": _exit_facts(exited.exit),
        "logs": {
            "lines": list(exited.logs.lines),
            "retainedBytes": exited.logs.retained_bytes,
            "droppedLines": exited.logs.dropped_lines,
        },
        "outputLines": turn.lines,
        "outputBytes": turn.output_bytes,
    }
    drafts = [_item_completed(turn)]
    ended = advance(answered.state, turn=None)
    if turn.intent in ("stop", "authority"):
        drafts += _interrupted(turn, "runner_stopped", facts)
    else:
        turn_state, run_state, reason = _outcome(turn, exited)
        drafts += _terminal(turn, turn_state, run_state, reason, exited.exit, facts)
        ended = _run_ended(ended)
    if exited.survivors:
        ended = advance(ended, harness_survived=True)
        drafts.append(_survivors(turn.generation, exited.survivors))
    return Transition(produce(ended, drafts, now), answered.actions)


def on_orphan_settled(runner: Runner, settled: OrphanSettled, now: Now) -> Runner:
    """Report the turn that an earlier process of this runner left behind as interrupted.

    Nobody saw how its program ended, so its exit is unknown and so are its effects.
    """
    turn = _turn_of(runner, settled.generation)
    if turn is None:
        return runner
    facts: dict[str, JsonValue] = {
        "generation": turn.generation,
        "processExit": _exit_facts(ProcessExit()),
        "outputLines": turn.lines,
        "outputBytes": turn.output_bytes,
        "orphan": settled.outcome,
    }
    drafts = _interrupted(turn, "runner_restarted", facts)
    ended = advance(runner, turn=None)
    if settled.outcome == "survived":
        ended = advance(ended, harness_survived=True)
        drafts.append(_survivors(turn.generation, 1))
    return produce(ended, drafts, now)


def cancel_without_turn(runner: Runner, now: Now) -> Runner:
    """End a run that has no live turn as cancelled."""
    payload = _terminal_payload(
        "cancelled", "cancelled", "yielded", {"reason": "run_cancelled", "processExit": None}
    )
    return produce(_run_ended(runner), (Draft("run.terminal", 0, payload),), now)


def _turn_of(runner: Runner, generation: Generation) -> Turn | None:
    turn = runner.durable.turn
    return turn if turn is not None and turn.generation == generation else None


def _answer_start(
    runner: Runner,
    turn: Turn,
    status: Literal["completed", "failed"],
    effects: int,
    members: dict[str, JsonValue],
) -> Step:
    record = command_journal.pending(runner, turn.controller_seq)
    if record is None:
        return Transition(runner)
    result = result_of(record, status, effects, members)
    return command_journal.send(
        command_journal.complete(runner, turn.controller_seq, result), result
    )


def _run_ended(runner: Runner) -> Runner:
    lifecycle = runner.durable.lifecycle
    if lifecycle in (Lifecycle.REVOKED, Lifecycle.UNRECOVERABLE):
        return advance(runner, run_terminal=True)
    return advance(runner, run_terminal=True, lifecycle=Lifecycle.TERMINAL)


def _outcome(turn: Turn, exited: HarnessExited) -> tuple[TurnState, RunState, str]:
    if turn.intent == "interrupt":
        return "interrupted", "cancelled", "turn_interrupted"
    if turn.intent == "cancel":
        return "cancelled", "cancelled", "run_cancelled"
    if turn.intent == "timeout":
        return "failed", "failed", "turn_timeout"
    if turn.intent == "overflow":
        return "failed", "failed", ErrorCode.OUTBOX_FULL.value
    if exited.violation is not None:
        return "failed", "failed", "harness_protocol_violation"
    if exited.exit.success:
        return "completed", "succeeded", "successful_process_and_result"
    return "failed", "failed", "harness_process_failed"


def _item_completed(turn: Turn) -> Draft:
    return Draft(
        "item.completed",
        1,
        {"channel": "progress", "outputLines": turn.lines, "outputBytes": turn.output_bytes},
    )


def _interrupted(turn: Turn, reason: str, facts: dict[str, JsonValue]) -> list[Draft]:
    return [
        Draft(
            "turn.interrupted",
            0,
            {"turnOrdinal": turn.ordinal, "reason": reason, "recoverable": True},
        ),
        Draft("harness.exited", 0, {**facts, "reason": reason, "recoverable": True}),
    ]


def _terminal(
    turn: Turn,
    turn_state: TurnState,
    run_state: RunState,
    reason: str,
    process_exit: ProcessExit,
    facts: dict[str, JsonValue],
) -> list[Draft]:
    succeeded = run_state == "succeeded"
    drafts = [Draft("run.result.proposed", 0, _result(turn))] if succeeded else []
    reconciliation: dict[str, JsonValue] = {
        "authority": "runner",
        "reason": reason,
        "processExit": _exit_facts(process_exit),
        "semanticResultObserved": succeeded,
    }
    return [
        *drafts,
        Draft(f"turn.{turn_state}", 0, {"turnOrdinal": turn.ordinal, "reason": reason}),
        Draft("harness.exited", 0, facts),
        Draft(
            "run.terminal",
            0,
            _terminal_payload(
                turn_state, run_state, "done" if succeeded else "yielded", reconciliation
            ),
        ),
    ]


def _terminal_payload(
    turn_state: TurnState,
    run_state: RunState,
    disposition: str,
    reconciliation: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    return {
        "schema": TERMINAL_SCHEMA,
        "turnTerminalState": turn_state,
        "runTerminalState": run_state,
        "reportedWorkDisposition": disposition,
        "reconciliation": reconciliation,
    }


def _result(turn: Turn) -> dict[str, JsonValue]:
    """Say what exit status 0 says and no more: the program claims to be done."""
    return {
        "schema": RESULT_SCHEMA,
        "reportedWorkDisposition": "done",
        "summary": f"The program exited with status 0 after {turn.lines} lines of output.",
        "completionClaim": {
            "contractRevision": "command.v1",
            "objectiveSatisfied": True,
            "criteria": [],
            "remainingWork": [],
        },
        "evidence": [],
        "verification": [{"commandOrCheck": "process exit status", "status": "passed"}],
        "attentionRequests": [],
        "artifacts": [],
    }


def _survivors(generation: Generation, count: int) -> Draft:
    return Draft(
        "harness.diagnostic",
        0,
        {
            "code": ErrorCode.HARNESS_SURVIVED.value,
            "generation": generation,
            "survivors": count,
        },
    )


def _exit_facts(process_exit: ProcessExit) -> dict[str, JsonValue]:
    return {
        "exitCode": process_exit.exit_code,
        "success": process_exit.success,
        "signal": process_exit.signal,
    }
