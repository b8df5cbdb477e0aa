"""What each command does to the runner's state: one function a type, all short (R13).

It decides admission and effect. It refuses to know repeats and order: `command_journal`
answers those before. All effects but `turn.start`'s live in the state file alone, so they
and their result are one revision and are never indeterminate (R1).
"""

from collections.abc import Callable
from typing import Final, Literal

from protocol.base.clock import Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue, parse_strict
from protocol.commands import (
    TERMINAL_COMMAND_TYPES,
    CommandResult,
    CommandStatus,
    WireCommand,
)
from protocol.errors import ErrorCode
from protocol.limits import (
    REPLAY_FILTER_IDS_MAX,
    SHUTDOWN_TIMEOUT_MS,
    TURN_TIMEOUT_MS_CEILING,
)
from runnerd.core import (
    admission,
    budget,
    command_journal,
    ending,
    pressure,
    tool_calls,
    turns,
)
from runnerd.core.admission import Refused
from runnerd.core.answer import Answer
from runnerd.core.command_journal import refusal, result_of
from runnerd.core.outbox import Draft, produce, soft_room
from runnerd.core.provider import read_provider, read_tools
from runnerd.core.state import Lifecycle, Runner, TerminalDelivery
from runnerd.core.transition import Step, advance, with_live

Effect = Callable[[Runner, WireCommand, Now], "Runner | Answer | ErrorCode | Refused"]

_SETTLES_WHAT_IS_OPEN: Final = frozenset({"request.resolve", "semantic_tool.result"})
"""Answers to what was asked: refusing one because this process is about to end would lose it."""


def on_command(runner: Runner, command: WireCommand, now: Now) -> Step:
    """Answer a delivered command, executing it if it is new and admitted.

    Returns:
        What `command_journal.known_answer` says for one that is not new. Otherwise the
        journal with the command and, unless its effect is outside the state file, its
        result; events follow the result on the wire.

    Source: durable-recovery, "Command delivery and effects".
    """
    answer = command_journal.known_answer(runner, command, now)
    if answer is not None:
        return answer
    outcome = _executed(runner, command, now)
    if isinstance(outcome, Refused):
        return _settle(runner, command, refusal(command, outcome.code, outcome.message), now)
    if isinstance(outcome, ErrorCode):
        return _settle(runner, command, refusal(command, outcome), now)
    status: CommandStatus = "completed"
    members, effects = None, 1
    if isinstance(outcome, Answer):
        members, status, effects = outcome.members, outcome.status, outcome.effects
        outcome = outcome.runner
    if outcome.durable.lifecycle is Lifecycle.UNRECOVERABLE:
        return _settle(
            advance(
                runner,
                lifecycle=Lifecycle.UNRECOVERABLE,
                unrecoverable_outcome=outcome.durable.unrecoverable_outcome,
            ),
            command,
            result_of(command, "failed", 0, {"code": ErrorCode.P0_STORAGE_EXHAUSTED.value}),
            now,
        )
    if command.type == "turn.start":
        return Transition(command_journal.journal(outcome, command, None, now))
    said = _facts(outcome) if members is None else members
    return _settle(outcome, command, result_of(command, status, effects, said), now)


def _executed(
    runner: Runner, command: WireCommand, now: Now
) -> Runner | Answer | ErrorCode | Refused:
    if (code := _not_admitted(runner, command)) is not None:
        return code
    if (unmet := admission.unmet(runner, command, now)) is not None:
        return unmet
    effect = _EFFECTS.get(command.type)
    return ErrorCode.COMMAND_UNSUPPORTED if effect is None else effect(runner, command, now)


def _settle(runner: Runner, command: WireCommand, result: CommandResult, now: Now) -> Step:
    journaled = command_journal.journal(runner, command, result, now)
    return command_journal.send(journaled, result)


def _not_admitted(runner: Runner, command: WireCommand) -> ErrorCode | None:
    """Return why this lifecycle admits no such command (I17), or None."""
    durable = runner.durable
    if durable.lifecycle is Lifecycle.REVOKED:
        return ErrorCode.RUNNER_REVOKED
    if command.type in TERMINAL_COMMAND_TYPES:
        return None
    is_ending = durable.terminal_delivery is not None or runner.live.ending is not None
    if is_ending and command.type not in _SETTLES_WHAT_IS_OPEN:
        return ErrorCode.RUNNER_DRAINING
    if durable.lifecycle is Lifecycle.UNRECOVERABLE:
        return ErrorCode.RUNNER_UNRECOVERABLE
    return None


def _facts(runner: Runner) -> dict[str, JsonValue]:
    durable = runner.durable
    return {
        "lifecycle": durable.lifecycle.value,
        "sessionOpen": durable.session_open,
        "turnActive": durable.turn is not None,
        "turnsStarted": durable.turns_started,
        "linesAccepted": durable.lines_accepted,
        "runTerminal": durable.run_terminal,
    }


# --- run and session ---------------------------------------------------------------------


def _run_prepare(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode | Refused:
    durable = runner.durable
    if durable.run_terminal:
        return ErrorCode.RUN_TERMINAL
    if durable.turn is not None:
        return ErrorCode.TURN_ACTIVE
    provider = read_provider(command.payload)
    if isinstance(provider, Refused):
        return provider
    tools = read_tools(command.payload, durable.tools)
    if isinstance(tools, Refused):
        return tools
    limits = budget.read_limits(command.payload, durable.limits)
    if isinstance(limits, Refused):
        return limits
    drafts = (Draft("workspace.ready", 1, {"cwd": provider.cwd, "providerKind": provider.kind}),)
    prepared = advance(runner, provider=provider, tools=tools, limits=limits)
    return _with_events(prepared, drafts, now)


def _run_attach(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode | Refused:
    if "paperclipNextAuthority" in _members(command):
        return Refused(
            ErrorCode.AUTHORITY_CHANGE_UNSUPPORTED,
            "this runner keeps its run; start another runner for the next one",
        )
    return _run_prepare(runner, command, now)


def _session_open(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode:
    durable = runner.durable
    if durable.run_terminal:
        return ErrorCode.RUN_TERMINAL
    if durable.provider is None:
        return ErrorCode.PROVIDER_NOT_PREPARED
    if durable.session_open:
        return runner
    resumed = durable.turns_started > 0
    draft = Draft("session.resumed" if resumed else "session.started", 0, {"resumed": resumed})
    return produce(advance(runner, session_open=True), (draft,), now)


def _session_close(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode:
    if runner.durable.turn is not None:
        return ErrorCode.TURN_ACTIVE
    if not runner.durable.session_open:
        return ErrorCode.SESSION_NOT_OPEN
    return produce(advance(runner, session_open=False), (Draft("session.closed", 0, {}),), now)


def _session_snapshot(runner: Runner, command: WireCommand, now: Now) -> Runner:
    return runner


# --- turns -------------------------------------------------------------------------------


def _turn_start(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode | Refused:
    durable = runner.durable
    if durable.run_terminal:
        return ErrorCode.RUN_TERMINAL
    if durable.lifecycle is Lifecycle.DRAINING:
        return ErrorCode.RUNNER_DRAINING
    if durable.harness_survived:
        return ErrorCode.HARNESS_SURVIVED
    if durable.compacted_commands >= REPLAY_FILTER_IDS_MAX:
        return ErrorCode.COMMAND_HISTORY_FULL
    if durable.provider is None:
        return ErrorCode.PROVIDER_NOT_PREPARED
    if not durable.session_open:
        return ErrorCode.SESSION_NOT_OPEN
    if durable.turn is not None:
        return ErrorCode.TURN_ACTIVE
    if tool_calls.has_pending(runner):
        return ErrorCode.TOOL_CALLS_PENDING
    if durable.lifecycle is Lifecycle.BACKPRESSURE or not pressure.has_room_for_a_turn(runner):
        return ErrorCode.RUNNER_BACKPRESSURE
    if (over := budget.turn_refusal(durable)) is not None:
        return over
    timeout_ms = _members(command).get("turnTimeoutMs", 0)
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int):
        return Refused(ErrorCode.TURN_INVALID, "turnTimeoutMs must be a whole number")
    if not 0 <= timeout_ms <= TURN_TIMEOUT_MS_CEILING:
        return Refused(ErrorCode.TURN_INVALID, "turnTimeoutMs lies outside its range; 0 is none")
    admitted = turns.admit(runner, command.controller_seq, timeout_ms, now)
    return with_live(admitted, turn_input=bytes(command.payload))


def _turn_interrupt(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode:
    if runner.durable.turn is None:
        return ErrorCode.TURN_NOT_ACTIVE
    return ending.stop_turn(runner, "interrupt")


def _run_cancel(runner: Runner, command: WireCommand, now: Now) -> Runner | ErrorCode:
    if runner.durable.run_terminal:
        return ErrorCode.RUN_TERMINAL
    if runner.durable.turn is not None:
        return ending.stop_turn(runner, "cancel")
    return turns.cancel_without_turn(runner, now)


# --- answers to what is open --------------------------------------------------------------
# What handles them is loaded with the first: a start-up does not wait for it.


def _request_resolve(runner: Runner, command: WireCommand, now: Now) -> Answer | Refused:
    from runnerd.core.requests import resolve

    return resolve(runner, command, now)


def _semantic_tool_result(runner: Runner, command: WireCommand, now: Now) -> Answer | Refused:
    from runnerd.core.tool_results import take_result

    return take_result(runner, command, now)


# --- the runner itself -------------------------------------------------------------------


def _runner_drain(runner: Runner, command: WireCommand, now: Now) -> Runner:
    if runner.durable.lifecycle is Lifecycle.DRAINING:
        return runner
    draining = advance(
        runner,
        lifecycle=(
            runner.durable.lifecycle
            if runner.durable.lifecycle is Lifecycle.TERMINAL
            else Lifecycle.DRAINING
        ),
    )
    return produce(draining, (Draft("runner.draining", 0, {}),), now)


def _runner_suspend(runner: Runner, command: WireCommand, now: Now) -> Runner:
    return _deliver_and_end(runner, command, "suspended", now)


def _runner_shutdown(runner: Runner, command: WireCommand, now: Now) -> Runner:
    return _deliver_and_end(runner, command, "stopped", now)


def _deliver_and_end(
    runner: Runner, command: WireCommand, lifecycle: Literal["suspended", "stopped"], now: Now
) -> Runner:
    fence = TerminalDelivery(controller_seq=command.controller_seq, lifecycle=lifecycle)
    return begin_delivery(advance(runner, terminal_delivery=fence), True, now)


def begin_delivery(runner: Runner, waits_for_result_ack: bool, now: Now) -> Runner:
    """End cleanly once outbox and terminal result are delivered (architecture 7.11)."""
    return ending.begin(
        runner,
        code=None,
        code_at_deadline=ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED,
        timeout_ms=SHUTDOWN_TIMEOUT_MS,
        intent="stop",
        now=now,
        waits_for_outbox=True,
        waits_for_result_ack=waits_for_result_ack,
    )


def _members(command: WireCommand) -> dict[str, JsonValue]:
    payload = parse_strict(bytes(command.payload))
    assert isinstance(payload, dict), "validate_command has seen an object"
    return payload


def _with_events(runner: Runner, drafts: tuple[Draft, ...], now: Now) -> Runner | ErrorCode:
    longer = produce(runner, drafts, now)
    return ErrorCode.RUNNER_BACKPRESSURE if soft_room(longer) < 0 else longer


_EFFECTS: Final[dict[str, Effect]] = {
    "run.prepare": _run_prepare,
    "run.attach": _run_attach,
    "run.cancel": _run_cancel,
    "session.open": _session_open,
    "session.close": _session_close,
    "session.destroy": _session_close,
    "session.snapshot": _session_snapshot,
    "turn.start": _turn_start,
    "turn.interrupt": _turn_interrupt,
    "turn.stop": _turn_interrupt,
    "request.resolve": _request_resolve,
    "semantic_tool.result": _semantic_tool_result,
    "runner.drain": _runner_drain,
    "runner.suspend": _runner_suspend,
    "runner.shutdown": _runner_shutdown,
}
