"""Time: what a passed deadline means, and when the next one is.

It decides on expiry, grace, total runtime and disk patience. It refuses to arm a timer: the
next deadline is computed from state whenever it is asked for.
"""

from collections.abc import Iterator

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.errors import ErrorCode
from protocol.limits import HARNESS_PAUSE_MS, STOP_TIMEOUT_MS, STORAGE_RETRY_DEADLINE_MS
from runnerd.core import ending, lease
from runnerd.core.state import Runner
from runnerd.core.transition import Step, refuse, with_live


def on_time_passed(runner: Runner, now: Now) -> Step:
    """Apply every deadline that has come; renewals are `lease.renew_if_due`, in every step."""
    held = runner.live.lease
    if held is not None and lease.is_expired(held, now):
        return ending.lose_authority(
            runner, ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP, STOP_TIMEOUT_MS, now
        )
    connection = runner.live.connection
    if connection is not None and now.mono_ms >= connection.expires_mono_ms:
        return refuse(runner, ErrorCode.FRAMES_EXHAUSTED)
    due = runner.live.turn_deadline_mono_ms
    if due is not None and now.mono_ms >= due:
        runner = with_live(ending.stop_turn(runner, "timeout"), turn_deadline_mono_ms=None)
    due = paused_until(runner)
    if due is not None and now.mono_ms >= due:
        runner = with_live(ending.stop_turn(runner, "overflow"), harness_paused_at_mono_ms=None)
    lingers_until = runner.live.linger_deadline_mono_ms
    if lingers_until is not None and now.mono_ms >= lingers_until:
        runner = with_live(ending.stop_turn(runner, "finished"), linger_deadline_mono_ms=None)
    due = runner.live.request_deadline_mono_ms
    if due is not None and now.mono_ms >= due:
        # A start-up meets no request and does not wait for what handles one.
        from runnerd.core.requests import expire_due

        runner = expire_due(runner, now)
    code = _given_up(runner, now)
    if code is not None and runner.live.ending is None:
        return Transition(ending.fail(runner, code, STOP_TIMEOUT_MS, now))
    return Transition(runner)


def paused_until(runner: Runner) -> MonoMs | None:
    """Return when a program that waits for room has waited long enough (R17); None if none does."""
    since, turn = runner.live.harness_paused_at_mono_ms, runner.durable.turn
    if since is None or turn is None or turn.intent is not None:
        return None
    return MonoMs(since + HARNESS_PAUSE_MS)


def _given_up(runner: Runner, now: Now) -> ErrorCode | None:
    for code, deadline in _patience(runner):
        if now.mono_ms >= deadline:
            # While the disk refuses, nothing can be dialled either: name the cause.
            failing = runner.live.storage_failing_since_mono_ms is not None
            return ErrorCode.STORAGE_UNAVAILABLE if failing else code
    return None


def _patience(runner: Runner) -> Iterator[tuple[ErrorCode, MonoMs]]:
    settings, live = runner.settings, runner.live
    if settings.max_runtime_ms:
        yield (
            ErrorCode.TRANSPORT_RECONNECT_DEADLINE_EXCEEDED,
            MonoMs(live.started_mono_ms + settings.max_runtime_ms),
        )
    if not live.has_connected:
        yield (
            ErrorCode.BOOTSTRAP_DEADLINE_EXCEEDED,
            MonoMs(live.started_mono_ms + settings.bootstrap_deadline_ms),
        )
    if settings.reconnect_grace_ms is not None and live.disconnected_at_mono_ms is not None:
        yield (
            ErrorCode.TRANSPORT_RECONNECT_GRACE_EXCEEDED,
            MonoMs(live.disconnected_at_mono_ms + settings.reconnect_grace_ms),
        )
    if live.storage_failing_since_mono_ms is not None:
        yield (
            ErrorCode.STORAGE_UNAVAILABLE,
            MonoMs(live.storage_failing_since_mono_ms + STORAGE_RETRY_DEADLINE_MS),
        )


def next_deadline(runner: Runner) -> MonoMs | None:
    """Return the earliest moment at which time alone changes something, None if never."""
    live = runner.live
    if live.exit_ordered:
        return None
    deadlines = [] if live.ending is not None else [when for _, when in _patience(runner)]
    if live.lease is not None:
        deadlines.append(live.lease.deadline_mono_ms)
    if live.connection is not None and live.connection.closing is None:
        deadlines.append(live.connection.expires_mono_ms)
    if live.lease is not None and live.connection is not None and live.lease.can_renew:
        deadlines.append(live.lease.renew_at_mono_ms)
    if live.ending is not None:
        deadlines.append(live.ending.deadline_mono_ms)
    if ending.wants_connection(runner):
        deadlines.append(live.dial_at_mono_ms)
    for moment in (
        live.turn_deadline_mono_ms,
        paused_until(runner),
        live.linger_deadline_mono_ms,
        live.request_deadline_mono_ms,
        live.storage_retry_at_mono_ms,
        live.record_retry_at_mono_ms,
    ):
        if moment is not None:
            deadlines.append(moment)
    return min(deadlines, default=None)
