"""Conditions that a command brings along: its deadline and the states it demands.

It decides whether they hold at the moment of execution. It refuses to know what the
command does: an unmet condition is a rejection with zero effects.

    runnerState   the lifecycle: connecting ready backpressure draining terminal ...
    runState      unprepared, prepared, active (a turn is live) or terminal
    sessionState  open or closed
    activeTurnId  the turn id while a turn is live; no turn is live -> nothing matches
"""

import msgspec

from protocol.base.clock import Now
from protocol.commands import Precondition, WireCommand
from protocol.errors import ErrorCode
from protocol.timestamps import unix_ms_of
from runnerd.core.state import Durable, Runner


class Refused(msgspec.Struct, frozen=True):
    """A refusal that needs words beside its code."""

    code: ErrorCode
    message: str


def unmet(runner: Runner, command: WireCommand, now: Now) -> Refused | None:
    """Return the first condition of a command that does not hold, or None.

    Returns:
        ``command_deadline_passed`` at or after the deadline by the wall clock;
        ``command_precondition_failed`` naming the member.

    Source: prp-wire 8.1.
    """
    if command.deadline_at is not None:
        deadline = unix_ms_of(command.deadline_at)
        if deadline is None:
            return Refused(ErrorCode.COMMAND_DEADLINE_PASSED, "deadlineAt is not an instant")
        if now.unix_ms >= deadline:
            return Refused(ErrorCode.COMMAND_DEADLINE_PASSED, f"over since {command.deadline_at}")
    if command.precondition is None:
        return None
    member = _false_member(runner.durable, command.precondition)
    if member is None:
        return None
    return Refused(ErrorCode.COMMAND_PRECONDITION_FAILED, f"precondition.{member} does not hold")


def run_state(durable: Durable) -> str:
    """Return what `runState` of a precondition is compared with."""
    if durable.run_terminal:
        return "terminal"
    if durable.turn is not None:
        return "active"
    return "unprepared" if durable.provider is None else "prepared"


def _false_member(durable: Durable, demanded: Precondition) -> str | None:
    present = {
        "runnerState": (demanded.runner_state, durable.lifecycle.value),
        "runState": (demanded.run_state, run_state(durable)),
        "sessionState": (demanded.session_state, "open" if durable.session_open else "closed"),
    }
    for member, (allowed, state) in present.items():
        if allowed is not None and state not in allowed:
            return member
    turn_id = demanded.active_turn_id
    if turn_id is not None and (durable.turn is None or turn_id != durable.identity.turn_id):
        return "activeTurnId"
    return None
