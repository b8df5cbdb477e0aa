"""The connection: what a welcome, a loss and a failed dial mean for the runner.

It decides whether two durable histories fit together and when to dial again. It refuses to
know how a handshake is done: the endpoint reports its end.
"""

from typing import Final

from msgspec import structs

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.commands import WireCommand
from protocol.envelope import CommandResultAck, Welcome
from protocol.errors import ErrorCode
from protocol.limits import (
    KEY_LIFETIME_MS_MAX,
    RECONNECT_BACKOFF_DOUBLINGS_MAX,
    RECONNECT_BACKOFF_MS_MAX,
    RECONNECT_JITTER_PERCENT,
    REVOKE_FLUSH_TIMEOUT_MS,
    STOP_TIMEOUT_MS,
)
from runnerd.core import downgrade, ending, lease
from runnerd.core.commands import begin_delivery, on_command
from runnerd.core.inputs import Connected, ConnectFailed, ConnectionLost
from runnerd.core.outbox import Draft, drop_acknowledged, note, produce
from runnerd.core.state import Connection, Lifecycle, Runner
from runnerd.core.transition import Step, advance, refuse, with_live

_BECOMES_READY: Final = frozenset(
    {Lifecycle.CONNECTING, Lifecycle.RECOVERABLE_FAILURE, Lifecycle.SUSPENDED}
)


def on_connected(runner: Runner, connected: Connected, now: Now) -> Step:
    """Take over a welcomed connection, its lease, its cursor and its pending commands.

    Returns:
        A ready runner whose unacknowledged events are due again. Or an end:
        ``runner_rollback_detected`` if the controller has committed events that this state
        never produced (R5), or hands out a command behind some that this state never
        received; ``controller_rollback_detected`` if it lost some events that it had
        acknowledged (R6), ``lease_expired_requires_bootstrap`` if the lease is already over.
        An epoch above the known one says that authority was withdrawn meanwhile: what is
        stored is delivered and nothing else (R22). One below closes the connection with
        ``revocation_epoch_regressed``.

    Source: prp-wire 6.
    """
    runner = with_live(
        runner,
        connection=Connection(
            binding=connected.binding,
            sent_through=runner.durable.acked_source_seq,
            expires_mono_ms=MonoMs(now.mono_ms + KEY_LIFETIME_MS_MAX),
        ),
        dialing=False,
        has_connected=True,
        disconnected_at_mono_ms=None,
        storage_failing_since_mono_ms=None,
    )
    code = _history_conflict(runner, connected.welcome)
    granted = lease.granted(runner, connected, now)
    if code is None and granted is None:
        code = ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP
    if code is not None:
        return ending.lose_authority(runner, code, STOP_TIMEOUT_MS, now)
    epoch, known = connected.welcome.connection_lease_revocation_epoch, _known_epoch(runner)
    if epoch < known:
        return refuse(runner, ErrorCode.REVOCATION_EPOCH_REGRESSED)
    runner = _made_ready(with_live(runner, lease=granted))
    if connected.owner is not None and connected.owner != runner.durable.owner:
        runner = advance(runner, owner=connected.owner)
    if runner.durable.revocation_epoch != epoch:
        is_revoked = runner.durable.revocation_epoch is not None
        lifecycle = Lifecycle.REVOKED if is_revoked else runner.durable.lifecycle
        runner = advance(runner, revocation_epoch=epoch, lifecycle=lifecycle)
    cursor = connected.welcome.acked_source_seq
    if cursor is not None:
        runner = drop_acknowledged(runner, cursor)
    if connected.binding.version >= 2:
        runner, unseen = downgrade.take_retained(runner)
        runner = produce(runner, [Draft(kind, 0, payload, 2) for kind, payload in unseen], now)
    if runner.durable.lifecycle is Lifecycle.REVOKED:
        return Transition(begin_revoked_flush(runner, now))
    return _pending_commands(runner, connected.welcome.pending_commands, now)


def begin_revoked_flush(runner: Runner, now: Now) -> Runner:
    """Deliver what is stored, for a bounded time, then end; nothing else is accepted (R22)."""
    return ending.begin(
        runner,
        code=None,
        code_at_deadline=ErrorCode.REVOCATION_FLUSH_REQUIRES_BOOTSTRAP,
        timeout_ms=REVOKE_FLUSH_TIMEOUT_MS,
        intent="authority",
        now=now,
        waits_for_outbox=True,
    )


def on_connect_failed(runner: Runner, failed: ConnectFailed, now: Now) -> Step:
    """Dial again later, or end if the one-use ticket may be spent (R11)."""
    runner = with_live(runner, dialing=False, storage_failing_since_mono_ms=None)
    runner = note(runner, f"connect failed: {failed.code.value}")
    if failed.credential_spent and not runner.live.has_connected:
        code = ErrorCode.BOOTSTRAP_CONSUMED
        return Transition(ending.fail(runner, code, STOP_TIMEOUT_MS, now))
    if failed.code is ErrorCode.DESTINATION_REFUSED:
        return Transition(ending.fail(runner, failed.code, STOP_TIMEOUT_MS, now))
    return Transition(_dial_later(runner, now))


def on_connection_lost(runner: Runner, lost: ConnectionLost, now: Now) -> Step:
    """Keep process, lease and turn, and dial again."""
    connection = runner.live.connection
    if connection is None or connection.binding.connection_id != lost.connection_id:
        return Transition(runner)
    attempts = 0 if connection.made_progress else runner.live.dial_attempts
    runner = with_live(
        runner, connection=None, disconnected_at_mono_ms=now.mono_ms, dial_attempts=attempts
    )
    runner = advance(runner, reconnect_count=runner.durable.reconnect_count + 1)
    code = connection.closing or lost.code
    if code is not ErrorCode.CONNECTION_LOST:
        runner = note(runner, f"connection closed: {code.value}")
    if runner.durable.lifecycle is Lifecycle.REVOKED:
        return Transition(ending.hurry(runner, now))
    return Transition(_dial_later(runner, now))


def on_result_ack(runner: Runner, ack: CommandResultAck) -> Step:
    """Note that a terminal command's result is stored by the controller.

    Returns:
        The end waits for it no more. Or CloseConnection ``message_unexpected`` if it does
        not echo the fenced command's id, type, sequence and status.
    """
    fence, present = runner.durable.terminal_delivery, runner.live.ending
    record = next(
        (r for r in runner.durable.commands if fence and r.controller_seq == fence.controller_seq),
        None,
    )
    if record is None or record.result is None or present is None:
        return refuse(runner, ErrorCode.MESSAGE_UNEXPECTED)
    stored = record.result
    if (ack.command_id, ack.command_type, ack.controller_seq, ack.status) != (
        stored.command_id,
        stored.command_type,
        stored.controller_seq,
        stored.status,
    ):
        return refuse(runner, ErrorCode.MESSAGE_UNEXPECTED)
    return Transition(
        with_live(runner, ending=structs.replace(present, waits_for_result_ack=False))
    )


def _history_conflict(runner: Runner, welcome: Welcome) -> ErrorCode | None:
    cursor = welcome.acked_source_seq
    if cursor is None:
        return None
    # What this process has only produced, nobody can have committed.
    if cursor > runner.live.frozen_through:
        return ErrorCode.RUNNER_ROLLBACK_DETECTED
    if cursor < runner.durable.acked_source_seq:
        return ErrorCode.CONTROLLER_ROLLBACK_DETECTED
    # What lies between was answered, by a state that is not this one.
    next_command = runner.durable.last_controller_command_seq + 1
    offered = [command.controller_seq for command in welcome.pending_commands]
    if offered and min(offered) > next_command:
        return ErrorCode.RUNNER_ROLLBACK_DETECTED
    return None


def _known_epoch(runner: Runner) -> int:
    known = runner.durable.revocation_epoch
    return 0 if known is None else known


def _made_ready(runner: Runner) -> Runner:
    durable = runner.durable
    if durable.lifecycle not in _BECOMES_READY:
        return runner
    return advance(runner, lifecycle=Lifecycle.READY, recoverable_failure=None)


def _pending_commands(runner: Runner, commands: tuple[WireCommand, ...], now: Now) -> Step:
    fence = runner.durable.terminal_delivery
    if fence is not None and runner.live.ending is None:
        relisted = any(command.controller_seq == fence.controller_seq for command in commands)
        runner = begin_delivery(runner, relisted, now)
    step: Step = Transition(runner)
    for command in commands:
        following = on_command(step.state, command, now)
        step = Transition(following.state, step.actions + following.actions)
    return step


def _dial_later(runner: Runner, now: Now) -> Runner:
    live = runner.live
    doublings = min(live.dial_attempts, RECONNECT_BACKOFF_DOUBLINGS_MAX)
    base = min(runner.settings.reconnect_delay_ms << doublings, RECONNECT_BACKOFF_MS_MAX)
    jitter = (live.jitter * 1_103_515_245 + 12_345) % 2**31
    percent = 100 - RECONNECT_JITTER_PERCENT + jitter % (2 * RECONNECT_JITTER_PERCENT + 1)
    return with_live(
        runner,
        jitter=jitter,
        dial_attempts=live.dial_attempts + 1,
        dial_at_mono_ms=MonoMs(now.mono_ms + max(1, base * percent // 100)),
    )


def progressed(runner: Runner) -> Runner:
    """Note that the connection carried an applicable message, so a reconnect need not back off."""
    connection = runner.live.connection
    if connection is None or connection.made_progress or connection.closing is not None:
        return runner
    return with_live(runner, connection=structs.replace(connection, made_progress=True))
