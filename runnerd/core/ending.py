"""Orderly ends of the process: one mechanism for stop, lost authority, revocation, shutdown.

It decides what an end waits for and for how long. It refuses to decide that an end is due:
handlers and `clockwork` call `begin`.

    begin ─▶ harness is stopped, outbox flushed, result acknowledged ─▶ Exit(code)
       └──── deadline passes first ──────────────────────────────────▶ Exit(code_at_deadline)
"""

from typing import Final

from msgspec import structs

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.errors import ErrorCode
from runnerd.core.actions import StopIntent
from runnerd.core.state import Ending, Lifecycle, Runner
from runnerd.core.transition import Step, advance, refuse, with_live

_OUTLASTS_A_FAILURE: Final = frozenset(
    {Lifecycle.DRAINING, Lifecycle.REVOKED, Lifecycle.TERMINAL, Lifecycle.UNRECOVERABLE}
)
"""What the next process must know too; else a welcome would make it ready for new turns."""


def begin(
    runner: Runner,
    *,
    code: ErrorCode | None,
    code_at_deadline: ErrorCode,
    timeout_ms: int,
    intent: StopIntent,
    now: Now,
    waits_for_outbox: bool = False,
    waits_for_result_ack: bool = False,
) -> Runner:
    """Start an orderly end, or hurry the present one; a live harness is told to stop."""
    ending = Ending(
        code=code,
        code_at_deadline=code_at_deadline,
        deadline_mono_ms=MonoMs(now.mono_ms + timeout_ms),
        waits_for_outbox=waits_for_outbox,
        waits_for_result_ack=waits_for_result_ack,
    )
    present = runner.live.ending
    if present is not None and present.deadline_mono_ms <= ending.deadline_mono_ms:
        return runner
    return with_live(stop_turn(runner, intent), ending=ending)


def stop_turn(runner: Runner, intent: StopIntent) -> Runner:
    """Record why the live turn is to end; the first intent stays, it is what happened."""
    turn = runner.durable.turn
    if turn is None or turn.intent is not None:
        return runner
    return advance(runner, turn=structs.replace(turn, intent=intent))


def hurry(runner: Runner, now: Now) -> Runner:
    """Let the present end wait no longer."""
    ending = runner.live.ending
    if ending is None:
        return runner
    return with_live(runner, ending=structs.replace(ending, deadline_mono_ms=now.mono_ms))


def fail(runner: Runner, code: ErrorCode, timeout_ms: int, now: Now) -> Runner:
    """End because authority ended or cannot be had; the state file names why and stays usable."""
    failed = advance(
        runner,
        lifecycle=(
            Lifecycle.RECOVERABLE_FAILURE
            if runner.durable.terminal_delivery is None
            and runner.durable.lifecycle not in _OUTLASTS_A_FAILURE
            else runner.durable.lifecycle
        ),
        recoverable_failure=code.value,
    )
    return begin(
        failed,
        code=code,
        code_at_deadline=code,
        timeout_ms=timeout_ms,
        intent="authority",
        now=now,
    )


def lose_authority(runner: Runner, code: ErrorCode, timeout_ms: int, now: Now) -> Step:
    """Drop lease and connection at once and end: nothing may be applied or sent any more."""
    live = runner.live
    lost = with_live(
        runner,
        lease=None,
        connection=None,
        disconnected_at_mono_ms=(
            now.mono_ms if live.disconnected_at_mono_ms is None else live.disconnected_at_mono_ms
        ),
    )
    return Transition(fail(lost, code, timeout_ms, now), refuse(runner, code).actions)


def wants_connection(runner: Runner) -> bool:
    """Tell whether a connection is missing, still of use, and not being made already.

    An end that carries a code needs none any more. Without a lease after the first welcome
    there is no credential: the one-use ticket is gone.
    """
    live = runner.live
    gives_up = live.ending is not None and live.ending.code is not None
    has_credential = live.lease is not None or not live.has_connected
    return live.connection is None and not live.dialing and not gives_up and has_credential


def is_complete(runner: Runner) -> bool:
    """Tell whether everything that the present end waits for has happened.

    An end that carries a code flushes only while it is connected: what is left stays in
    the state file and is delivered after the next start.
    """
    ending = runner.live.ending
    if ending is None or runner.durable.turn is not None or runner.durable.cancel_unrecorded:
        return False
    may_flush = ending.code is None or runner.live.connection is not None
    if ending.waits_for_outbox and may_flush and runner.durable.outbox:
        return False
    return not ending.waits_for_result_ack
