"""Turns: admission, the one harness process that does the work, and the truthful end.

It decides what a turn is when something happened to its process. It refuses to start, read or
kill anything: `duties` orders that from the state set here.

    admit ─▶ starting ─HarnessSpawned─▶ running (birth durable, gate opens) ─▶ exited
                │  ▲                       │                                  │   └▶ run.terminal
                │  └──── lost to a signal, and the provider allows it ────────┘
                │                          └─ runner lost ─▶ turn.interrupted ┐
                └─ HarnessStartFailed ─▶ turn.failed ─────────────────────────┴▶ another turn
"""

from typing import Final, Literal

from msgspec import structs

from protocol.base.clock import Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.digest import LABEL_PREFIX
from protocol.errors import ErrorCode
from protocol.ids import ControllerSeq, Generation
from protocol.limits import SNAPSHOT_EVENT_BYTES_MAX, TURN_END_ROOM_BYTES
from runnerd.core import budget, command_journal, dialogue, ending, outcome, tool_calls
from runnerd.core.command_journal import result_of
from runnerd.core.inputs import (
    HarnessExited,
    HarnessLogs,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    OrphanSettled,
    ProcessExit,
)
from runnerd.core.outbox import Draft, produce, produce_updates, soft_room
from runnerd.core.state import Lifecycle, Runner, Turn, Usage
from runnerd.core.transition import Step, advance
from runnerd.core.verdict import CANCELLED, Recorded, Verdict

_HARNESS_LOST: Final = "harness_lost"


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
        _starting(begun, turn.generation),
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
    if _speaks(runner):
        # It counts as started when it has said that it is ready.
        return Transition(dialogue.begin(answered.state, turn.generation), answered.actions)
    ready: dict[str, JsonValue] = {
        "generation": turn.generation,
        "driverKind": "command",
        "transport": "stdio_lines",
    }
    if turn.restarts:
        drafts = reconciled(runner, turn, ready)
    else:
        drafts = [
            Draft("turn.started", 0, {"turnOrdinal": turn.ordinal}),
            Draft("harness.ready", 1, ready),
            Draft("item.started", 2, {"channel": "progress", "turnOrdinal": turn.ordinal}),
        ]
    return Transition(produce(answered.state, drafts, now), answered.actions)


def on_start_failed(runner: Runner, failed: HarnessStartFailed, now: Now) -> Step:
    """End a turn whose program never ran: zero effects, the run can have another turn."""
    turn = _turn_of(runner, failed.generation)
    if turn is None or turn.birth is not None:
        return Transition(runner)
    if turn.intent is not None:
        # It was to be ended anyway, and what is asked for is answered so.
        return on_exited(
            runner,
            HarnessExited(generation=failed.generation, exit=ProcessExit(), logs=HarnessLogs()),
            now,
        )
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
    """End the turn with what was seen of its process, or start its lost program again.

    Returns:
        The state with the turn's last events: exactly one `run.terminal`, unless the
        runner itself ended the process (stop, lost authority): that turn is interrupted,
        its effects are unknown, and the run can have another turn.

    Source: runner-behaviour 12, outcome table.
    """
    turn = _turn_of(runner, exited.generation)
    if turn is None:
        return Transition(runner)
    verdict = _verdict_of(runner, turn, exited)
    answered = _answer_start(
        runner, turn, "failed", 0, {"code": ErrorCode.HARNESS_START_FAILED.value}
    )
    spoke, runner = runner.live.dialogue, dialogue.end(answered.state)
    facts: dict[str, JsonValue] = {
        "generation": turn.generation,
        "processExit": outcome.exit_facts(exited.exit),
        "logs": {
            "lines": list(exited.logs.lines),
            "retainedBytes": exited.logs.retained_bytes,
            "droppedLines": exited.logs.dropped_lines,
        },
        "outputLines": turn.lines,
        "outputBytes": turn.output_bytes,
    }
    if verdict.restarts:
        return Transition(_restarted(runner, turn, facts, now), answered.actions)
    drafts = [] if _speaks(runner) else [outcome.item_completed(turn)]
    ended = advance(runner, turn=None)
    if verdict.outcome is None:
        drafts += outcome.interrupted(turn, verdict.reason, facts)
    else:
        ended = _run_ended(ended, now)
        envelope = _envelope(ended, exited.recorded)
        drafts += outcome.terminal(turn, verdict.outcome, exited.exit, facts, spoke, envelope)
    if exited.survivors:
        ended = advance(ended, harness_survived=True)
        drafts.append(outcome.survivors(turn, exited.survivors))
    drafts = [*budget.blind(runner.durable, turn), *drafts]
    return Transition(produce(ended, drafts, now), answered.actions)


def judge(runner: Runner, exited: HarnessExited) -> Verdict | None:
    """Return what `on_exited` would make of an end now, None for one that is nobody's.

    The run's log is written before the end is fed, so it has to know.
    """
    turn = _turn_of(runner, exited.generation)
    return None if turn is None else _verdict_of(runner, turn, exited)


def _verdict_of(runner: Runner, turn: Turn, exited: HarnessExited) -> Verdict:
    spoke = runner.live.dialogue
    is_done = spoke is not None and spoke.conclusion is not None
    may_restart = not is_done and _may_restart(runner, turn, exited)
    recorded = None if exited.recorded is None else exited.recorded.verdict
    if recorded is not None and not recorded.restarts:
        # What came between the record and this changes nothing any more.
        return recorded
    if may_restart:
        return Verdict(restarts=True, reason=_HARNESS_LOST)
    if recorded is not None or turn.intent in ("stop", "authority"):
        return Verdict(reason="runner_stopped")
    return Verdict(outcome=outcome.decide(turn, exited, spoke))


def _envelope(runner: Runner, recorded: Recorded | None) -> dict[str, JsonValue]:
    """Return what `run.terminal` says of the run's snapshot: all of it where there is room."""
    if recorded is None or recorded.snapshot is None:
        return {}
    named: dict[str, JsonValue] = {
        "snapshotDigest": LABEL_PREFIX + recorded.snapshot_sha256,
        "snapshotBytes": recorded.snapshot_bytes,
    }
    is_small = recorded.snapshot_bytes <= SNAPSHOT_EVENT_BYTES_MAX
    if is_small and soft_room(runner) >= recorded.snapshot_bytes + TURN_END_ROOM_BYTES:
        named["snapshot"] = recorded.snapshot
    return named


def on_orphan_settled(runner: Runner, settled: OrphanSettled, now: Now) -> Runner:
    """Report the turn that an earlier process of this runner left behind as interrupted.

    Nobody saw how its program ended, so its exit is unknown and so are its effects.
    """
    turn = _turn_of(runner, settled.generation)
    if turn is None:
        return runner
    facts: dict[str, JsonValue] = {
        "generation": turn.generation,
        "processExit": outcome.exit_facts(ProcessExit()),
        "outputLines": turn.lines,
        "outputBytes": turn.output_bytes,
        "orphan": settled.outcome,
    }
    drafts = outcome.interrupted(turn, "runner_restarted", facts)
    ended = advance(runner, turn=None)
    if settled.outcome == "survived":
        ended = advance(ended, harness_survived=True)
        drafts.append(outcome.survivors(turn, 1))
    return produce(ended, drafts, now)


def cancel_without_turn(runner: Runner, now: Now) -> Runner:
    """End a run that has no live turn as cancelled; its log says so before anybody is told."""
    ended = _run_ended(runner, now)
    if runner.settings.keeps_run_log and runner.durable.generation:
        return advance(ended, cancel_unrecorded=True)
    return _cancelled(ended, None, now)


def on_cancel_recorded(runner: Runner, recorded: Recorded | None, now: Now) -> Runner:
    """Tell of a cancelled run, with its snapshot if the log has one."""
    if not runner.durable.cancel_unrecorded:
        return runner
    return _cancelled(advance(runner, cancel_unrecorded=False), recorded, now)


def _cancelled(runner: Runner, recorded: Recorded | None, now: Now) -> Runner:
    # What the log says was written first, so it holds (D9).
    ended = CANCELLED if recorded is None else recorded.verdict.outcome or CANCELLED
    payload = outcome.terminal_payload(
        ended.turn_state,
        ended.run_state,
        "done" if ended.succeeded else "yielded",
        {"reason": ended.reason, "processExit": None},
    )
    told = {**payload, **_envelope(runner, recorded)}
    return produce(runner, (Draft("run.terminal", 0, told),), now)


def _turn_of(runner: Runner, generation: Generation) -> Turn | None:
    turn = runner.durable.turn
    return turn if turn is not None and turn.generation == generation else None


def _speaks(runner: Runner) -> bool:
    provider = runner.durable.provider
    return provider is not None and provider.kind == "jsonl"


def _starting(runner: Runner, generation: Generation) -> Draft:
    provider = runner.durable.provider
    assert provider is not None, "a turn is admitted only with a provider"
    return Draft("harness.starting", 1, {"generation": generation, "driverKind": provider.kind})


def _may_restart(runner: Runner, turn: Turn, exited: HarnessExited) -> bool:
    """Tell whether a program that was lost is started again within its turn.

    Only a signal that nobody here sent counts as lost. What it had done outside is unknown,
    so the provider must have said that its program continues from its own record.
    """
    provider = runner.durable.provider
    return (
        provider is not None
        and turn.restarts < provider.harness_restarts_max
        and turn.intent is None
        and exited.violation is None
        and exited.exit.signal is not None
        and not exited.survivors
        and runner.live.ending is None
    )


def _restarted(runner: Runner, turn: Turn, facts: dict[str, JsonValue], now: Now) -> Runner:
    generation = Generation(turn.generation + 1)
    again = structs.replace(
        turn, generation=generation, birth=None, restarts=turn.restarts + 1, usage=Usage()
    )
    drafts = (
        Draft("harness.exited", 0, {**facts, "reason": _HARNESS_LOST, "recoverable": True}),
        _starting(runner, generation),
    )
    return produce(advance(runner, turn=again, generation=generation), drafts, now)


def reconciled(runner: Runner, turn: Turn, ready: dict[str, JsonValue]) -> list[Draft]:
    """Return the facts of a program that took the place of one that was lost, in one session."""
    identity = runner.settings.identity
    return [
        Draft("harness.ready", 0, ready),
        Draft(
            "session.reconciled",
            0,
            {
                "outcome": "same_session_resumed",
                "generation": turn.generation,
                "turnOrdinal": turn.ordinal,
                "runId": identity.run_id,
                "normalizedSessionId": identity.normalized_session_id,
                "turnId": identity.turn_id,
                "itemId": identity.item_id,
            },
        ),
    ]


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


def _run_ended(runner: Runner, now: Now) -> Runner:
    if runner.durable.requests:
        # A start-up meets no request and does not wait for what handles one.
        from runnerd.core.requests import cancel_open

        runner = cancel_open(runner, now)
    runner = tool_calls.settle_completed(runner)
    lifecycle = runner.durable.lifecycle
    if lifecycle in (Lifecycle.REVOKED, Lifecycle.UNRECOVERABLE):
        return advance(runner, run_terminal=True)
    return advance(runner, run_terminal=True, lifecycle=Lifecycle.TERMINAL)
