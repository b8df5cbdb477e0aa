"""The runner's core: one pure function from state, input and time to state and actions.

It decides which handler an input goes to, and that duties follow every input. It refuses to
read a clock, a socket, a file or a process.

    connecting ─welcome─▶ ready ─drain─▶ draining
        ▲                  │ run ended ─▶ terminal
        │                  │ suspend / shutdown ─delivered─▶ suspended / stopped ─▶ exit 0
        └─ process start ◀─┘
    any ─revoke─▶ revoked ─flushed─▶ exit 0
    any ─lease or grace over─▶ recoverable_failure ─▶ exit, resumable
"""

from typing import assert_never

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Gated, Transition
from protocol.envelope import (
    Ack,
    CommandResultAck,
    Deliver,
    LeaseRenewed,
    Ping,
    Pong,
    Revoke,
    Superseded,
    WarmTransitionActivatedAck,
    Welcome,
)
from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import STOP_TIMEOUT_MS, STORAGE_RETRY_MS
from runnerd.core import (
    clockwork,
    connection,
    dialogue,
    ending,
    lease,
    pressure,
    recovery,
    turns,
)
from runnerd.core.actions import Exit, SendPong
from runnerd.core.commands import on_command
from runnerd.core.duties import perform_duties
from runnerd.core.inputs import (
    CancelRecorded,
    Connected,
    ConnectFailed,
    ConnectionLost,
    ControlReceived,
    FactsRecorded,
    HarnessExited,
    HarnessMessages,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    HarnessTold,
    Input,
    Started,
    StopRequested,
    StorageRoom,
    TimePassed,
    WriteFailed,
)
from runnerd.core.outbox import on_ack
from runnerd.core.run_fact import RunFact
from runnerd.core.state import Lifecycle, Runner
from runnerd.core.transition import Step, advance, refuse, with_live

next_deadline = clockwork.next_deadline


def step(runner: Runner, stimulus: Input, now: Now) -> Step:
    """Apply one input, then order whatever the new state demands."""
    handled = _handle(runner, stimulus, now)
    due = perform_duties(pressure.settle(handled.state, now), now)
    return Transition(due.state, handled.actions + due.actions)


def _handle(runner: Runner, stimulus: Input, now: Now) -> Step:
    match stimulus:
        case ControlReceived():
            return on_control(runner, stimulus, now)
        case HarnessOutput():
            return turns.on_output(with_live(runner, harness_reading=False), stimulus, now)
        case HarnessMessages() | HarnessTold():
            return _handle_dialogue(runner, stimulus, now)
        case TimePassed():
            return clockwork.on_time_passed(runner, now)
        case Connected():
            return connection.on_connected(runner, stimulus, now)
        case ConnectFailed():
            return connection.on_connect_failed(runner, stimulus, now)
        case ConnectionLost():
            return connection.on_connection_lost(runner, stimulus, now)
        case HarnessSpawned():
            return turns.on_spawned(runner, stimulus, now)
        case HarnessStartFailed():
            return turns.on_start_failed(runner, stimulus, now)
        case HarnessExited():
            return turns.on_exited(with_live(runner, harness_reading=False), stimulus, now)
        case FactsRecorded():
            from runnerd.core import recording

            return Transition(recording.on_recorded(runner, stimulus, now))
        case CancelRecorded(recorded=recorded):
            return Transition(turns.on_cancel_recorded(runner, recorded, now))
        case Started():
            return recovery.on_started(runner, stimulus, now)
        case WriteFailed():
            return on_write_failed(runner, stimulus, now)
        case StorageRoom(is_tight=is_tight):
            return Transition(with_live(runner, storage_tight=is_tight))
        case StopRequested():
            return on_stop_requested(runner, stimulus, now)
        case _:
            assert_never(stimulus)


def _handle_dialogue(runner: Runner, stimulus: HarnessMessages | HarnessTold, now: Now) -> Step:
    # Nothing is said before a turn, so a start-up does not wait for what listens.
    from runnerd.core import hearing

    if isinstance(stimulus, HarnessTold):
        return Transition(hearing.on_told(runner, stimulus))
    return hearing.on_messages(with_live(runner, harness_reading=False), stimulus, now)


def on_control(runner: Runner, received: ControlReceived, now: Now) -> Step:
    """Apply a control message, if its connection is current and the lease is in force now.

    Expiry is judged at the moment of application, not of arrival (R10, I15).
    """
    current, held = runner.live.connection, runner.live.lease
    if current is None or current.binding.connection_id != received.connection_id:
        return Transition(runner)
    # A fact that is stored behind the exit would be in a last state that nobody delivers.
    if current.closing is not None or runner.live.exit_ordered:
        return Transition(runner)
    if held is None or lease.is_expired(held, now):
        return clockwork.on_time_passed(runner, now)
    applied = _apply(runner, received, now)
    return Transition(connection.progressed(applied.state), applied.actions)


def _apply(runner: Runner, received: ControlReceived, now: Now) -> Step:
    message = received.message
    match message:
        case Ack():
            return on_ack(runner, message.acked_source_seq)
        case Deliver():
            return on_command(runner, message.command, now)
        case LeaseRenewed():
            return lease.on_lease_renewed(runner, message, received.sent_at_unix_ms, now)
        case CommandResultAck():
            return connection.on_result_ack(runner, message)
        case Revoke():
            return on_revoke(runner, message, now)
        case Superseded():
            # Another process has this identity now, from a copy of this state (R8).
            return ending.lose_authority(runner, ErrorCode.SUPERSEDED, STOP_TIMEOUT_MS, now)
        case Ping():
            return on_ping(runner)
        case Welcome() | WarmTransitionActivatedAck():
            return refuse(runner, ErrorCode.MESSAGE_UNEXPECTED)
        case _:
            assert_never(message)


def on_ping(runner: Runner) -> Step:
    """Answer a ping; a pong may overtake everything, so it reports what it reports at once."""
    current, durable = runner.live.connection, runner.durable
    assert current is not None, "control messages are applied on a current connection"
    pong = Pong(
        lifecycle=durable.lifecycle.value,
        acked_source_seq=durable.acked_source_seq,
        outbox_bytes=runner.live.outbox_bytes,
    )
    return Transition(runner, (Gated(SendPong(current.binding.connection_id, pong), passes=True),))


def on_revoke(runner: Runner, revoke: Revoke, now: Now) -> Step:
    """Withdraw from work: no command is accepted any more, what is stored is delivered.

    Returns:
        The revoked lifecycle and a bounded flush (R22). Or CloseConnection
        ``revocation_epoch_regressed`` if the epoch does not exceed the welcome's.
    """
    held = runner.live.lease
    if held is None or revoke.revocation_epoch <= held.revocation_epoch:
        return refuse(runner, ErrorCode.REVOCATION_EPOCH_REGRESSED)
    revoked = advance(runner, lifecycle=Lifecycle.REVOKED, revocation_epoch=revoke.revocation_epoch)
    return Transition(connection.begin_revoked_flush(revoked, now))


def on_stop_requested(runner: Runner, stop: StopRequested, now: Now) -> Step:
    """Stop in bounded time and leave a lifecycle that can be resumed; a second request hurries."""
    if stop.count > 1 and runner.live.ending is not None:
        return Transition(ending.hurry(runner, now))
    return Transition(
        ending.begin(
            runner,
            code=ErrorCode.STOP_REQUESTED,
            code_at_deadline=ErrorCode.STOP_REQUESTED,
            timeout_ms=STOP_TIMEOUT_MS,
            intent="stop",
            now=now,
            waits_for_outbox=True,
        )
    )


def on_write_failed(runner: Runner, failed: WriteFailed, now: Now) -> Step:
    """Drop the connection and try again later through a new file, or end (R4).

    Every order that may have been held is forgotten, so that `duties` gives it again.
    """
    live = runner.live
    if failed.is_final:
        ended = with_live(runner, exit_ordered=True)
        return Transition(ended, (Gated(Exit(ErrorCode.STORAGE_SYNC_FAILED)),))
    closing = refuse(runner, ErrorCode.STORAGE_WRITE_FAILED)
    before = Generation(max(0, runner.durable.generation - 1))
    since = live.storage_failing_since_mono_ms
    waiting = with_live(
        closing.state,
        dialing=False,
        harness_started=min(live.harness_started, before),
        harness_released=min(live.harness_released, before),
        harness_stopped=min(live.harness_stopped, before),
        harness_forgotten=min(live.harness_forgotten, before),
        harness_reading=False,
        dialogue=dialogue.forget_orders(live.dialogue),
        cancel_ordered=False,
        recording=frozenset[RunFact](),
        recorded_of=None,
        exit_ordered=False,
        storage_failing_since_mono_ms=now.mono_ms if since is None else since,
        storage_retry_at_mono_ms=MonoMs(now.mono_ms + STORAGE_RETRY_MS),
    )
    return Transition(waiting, closing.actions)
