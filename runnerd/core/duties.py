"""Duties: what the state demands and has not been ordered yet, after every input.

It decides every order to endpoint and harness from state alone, so a dropped order is
derived again (ruling R4). It refuses to decide anything about events or commands: handlers
have put that into the state.
"""

from msgspec import structs

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Gated, Transition
from protocol.envelope import Resume
from protocol.ids import SourceSeq
from protocol.limits import (
    CONNECTION_ATTEMPT_TIMEOUT_MS,
    HARNESS_GRACE_MS,
    HARNESS_LINE_BYTES_MAX,
    HARNESS_READ_LINES_MAX,
    KIB,
    OUTBOX_PAUSE_BYTES,
    TURN_END_ROOM_BYTES,
)
from runnerd.core import dialogue, ending, lease, recording
from runnerd.core.actions import (
    Action,
    Dial,
    Exit,
    ForgetHarness,
    ReadHarness,
    ReleaseHarness,
    SendEvent,
    StartHarness,
    StopHarness,
)
from runnerd.core.downgrade import body_for
from runnerd.core.outbox import soft_room
from runnerd.core.state import Lifecycle, Runner, Turn
from runnerd.core.transition import Step, advance, claim, with_live

_LINE_OVERHEAD_BYTES = KIB
"""What one line costs in the outbox beside its text: event object and envelope."""
_TEXT_EXPANSION = 6
"""JSON may spell one byte of text as six."""


def perform_duties(runner: Runner, now: Now) -> Step:
    """Order what is due; nothing that waits for a write while the disk is not to be tried."""
    renewed = lease.renew_if_due(runner, now)
    runner, actions = renewed.state, list(renewed.actions)
    if runner.live.exit_ordered:
        return Transition(runner, tuple(actions))
    finished = _finish(runner, now)
    if finished is not None:
        return Transition(finished.state, (*actions, *finished.actions))
    retry_at = runner.live.storage_retry_at_mono_ms
    if retry_at is not None and now.mono_ms < retry_at:
        return Transition(runner, tuple(actions))
    if retry_at is not None:
        runner = with_live(runner, storage_retry_at_mono_ms=None)
    for duty in (recording.record_due, _send_events, _command_harness, _dial):
        step = duty(runner, now)
        runner = step.state
        actions += step.actions
    return Transition(runner, tuple(actions))


def _finish(runner: Runner, now: Now) -> Step | None:
    """Order the exit when the present end is complete or its deadline has come."""
    present = runner.live.ending
    if present is None:
        return None
    if ending.is_complete(runner):
        fence = runner.durable.terminal_delivery
        if fence is not None and present.code is None:
            runner = advance(runner, lifecycle=_last_lifecycle(runner), terminal_delivery=None)
        return _exit(runner, Exit(present.code))
    if now.mono_ms >= present.deadline_mono_ms:
        code = present.code_at_deadline
        return _exit(advance(runner, recoverable_failure=code.value), Exit(code))
    return None


def _last_lifecycle(runner: Runner) -> Lifecycle:
    fence, present = runner.durable.terminal_delivery, runner.durable.lifecycle
    # Revoked is final: a suspended state would be resumed.
    if fence is None or present is Lifecycle.REVOKED:
        return present
    return Lifecycle(fence.lifecycle)


def _exit(runner: Runner, action: Exit) -> Step:
    ordered = with_live(runner, exit_ordered=True)
    if runner.live.storage_failing_since_mono_ms is not None:
        return Transition(ordered, (Gated(action),))
    return Transition(ordered, (claim(ordered, action),))


def _send_events(runner: Runner, now: Now) -> Step:
    connection = runner.live.connection
    durable = runner.durable
    if connection is None or connection.closing is not None:
        return Transition(runner)
    held_from = recording.held_from(runner) or durable.next_source_seq
    newest = SourceSeq(held_from - 1)
    if connection.sent_through >= newest:
        return Transition(runner)
    first = max(connection.sent_through, durable.acked_source_seq) - durable.acked_source_seq
    through = newest - durable.acked_source_seq
    connection_id = connection.binding.connection_id
    # A number that was sent and then lost in a crash would name another event later.
    actions: tuple[Gated[Action], ...] = tuple(
        claim(
            runner,
            SendEvent(
                connection_id,
                entry.source_seq,
                body_for(entry, connection.binding.version, runner.settings.identity),
            ),
        )
        for entry in durable.outbox[first:through]
    )
    sent = structs.replace(connection, sent_through=newest)
    return Transition(with_live(runner, connection=sent, frozen_through=newest), actions)


# --- the harness ---------------------------------------------------------------------------


def _command_harness(runner: Runner, now: Now) -> Step:
    turn, live = runner.durable.turn, runner.live
    if turn is None:
        return _forget(runner)
    if turn.generation > live.harness_started and turn.birth is None:
        if not recording.may_begin(runner):
            return Transition(runner)
        started = with_live(runner, harness_started=turn.generation, harness_reading=False)
        return Transition(started, (claim(runner, _start_order(runner, turn)),))
    if turn.intent is not None:
        return _stop(runner, turn, now)
    if turn.birth is None:
        return Transition(runner)
    return _release_and_read(runner, turn, now)


def _start_order(runner: Runner, turn: Turn) -> StartHarness:
    durable = runner.durable
    provider = durable.provider
    assert provider is not None, "a turn is admitted only with a provider"
    return StartHarness(
        generation=turn.generation,
        kind=provider.kind,
        ready_timeout_ms=provider.ready_timeout_ms,
        launch_mark=launch_mark(runner.durable.state_id, turn),
        argv=provider.argv,
        cwd=provider.cwd,
        env_names=provider.env_names,
        turn_ordinal=turn.ordinal,
        lines_accepted=durable.lines_accepted,
        recorded_calls=tuple(one.call_id for one in durable.tool_calls if one.state != "pending"),
    )


def launch_mark(state_id: str, turn: Turn) -> str:
    """Return the text by which the processes of a turn's harness are known, also after a crash."""
    return f"{state_id}.{turn.generation}"


def _stop(runner: Runner, turn: Turn, now: Now) -> Step:
    assert turn.intent is not None
    actions: list[Gated[Action]] = []
    if runner.live.harness_stopped < turn.generation:
        order = StopHarness(
            generation=turn.generation, intent=turn.intent, grace_ms=HARNESS_GRACE_MS
        )
        actions.append(claim(runner, order))
        runner = with_live(runner, harness_stopped=turn.generation)
    reading = _read(runner, turn, now)
    return Transition(reading.state, (*actions, *reading.actions))


def _release_and_read(runner: Runner, turn: Turn, now: Now) -> Step:
    actions: list[Gated[Action]] = []
    if runner.live.harness_released < turn.generation:
        # Before its birth is durable, nobody could find the program after a crash.
        actions.append(claim(runner, ReleaseHarness(turn.generation)))
        runner = with_live(
            runner,
            harness_released=turn.generation,
            turn_deadline_mono_ms=_turn_deadline(runner, turn, now),
        )
    telling = dialogue.tell_due(runner, turn, recording.may_tell)
    reading = _read(telling.state, turn, now)
    return Transition(reading.state, (*actions, *telling.actions, *reading.actions))


def _turn_deadline(runner: Runner, turn: Turn, now: Now) -> MonoMs | None:
    """A program that takes the place of a lost one gets no more time than was left."""
    present = runner.live.turn_deadline_mono_ms
    if not turn.timeout_ms or (turn.restarts and present is not None):
        return present if turn.timeout_ms else None
    return MonoMs(now.mono_ms + turn.timeout_ms)


def _read(runner: Runner, turn: Turn, now: Now) -> Step:
    """Ask for more output when the last is durable and there is room for the next (R17)."""
    if runner.live.harness_reading:
        return Transition(runner)
    if runner.live.storage_tight:
        return Transition(_paused(runner, now))
    room = min(soft_room(runner), OUTBOX_PAUSE_BYTES + _LINE_OVERHEAD_BYTES * 64)
    room -= TURN_END_ROOM_BYTES
    if runner.durable.outbox and runner.live.outbox_bytes >= OUTBOX_PAUSE_BYTES:
        return Transition(_paused(runner, now))
    lines = min(HARNESS_READ_LINES_MAX, room // 2 // _LINE_OVERHEAD_BYTES)
    if lines < 1:
        return Transition(_paused(runner, now))
    order = ReadHarness(
        generation=turn.generation,
        lines_max=lines,
        bytes_max=max(HARNESS_LINE_BYTES_MAX, room // 2 // _TEXT_EXPANSION),
    )
    reading = with_live(runner, harness_reading=True, harness_paused_at_mono_ms=None)
    return Transition(reading, (claim(runner, order),))


def _paused(runner: Runner, now: Now) -> Runner:
    """Note since when a program has to wait for room: that is bounded (R17)."""
    if runner.live.harness_paused_at_mono_ms is not None:
        return runner
    return with_live(runner, harness_paused_at_mono_ms=now.mono_ms)


def _forget(runner: Runner) -> Step:
    generation = runner.live.harness_started
    if generation <= runner.live.harness_forgotten:
        return Transition(runner)
    forgotten = with_live(
        runner,
        harness_forgotten=generation,
        turn_deadline_mono_ms=None,
        harness_paused_at_mono_ms=None,
    )
    return Transition(forgotten, (claim(runner, ForgetHarness(generation)),))


# --- the connection ----------------------------------------------------------------------


def _dial(runner: Runner, now: Now) -> Step:
    live, durable = runner.live, runner.durable
    if not ending.wants_connection(runner) or now.mono_ms < live.dial_at_mono_ms:
        return Transition(runner)
    resume = Resume(
        last_controller_command_seq=durable.last_controller_command_seq,
        next_source_event_seq=durable.next_source_seq,
        acked_source_seq=durable.acked_source_seq,
    )
    held = live.lease
    if held is None:
        order = Dial(
            credential_kind="bootstrap",
            resume=resume,
            obeyed_owner=durable.owner,
            timeout_ms=CONNECTION_ATTEMPT_TIMEOUT_MS,
        )
    else:
        order = Dial(
            credential_kind="lease",
            resume=resume,
            lease_token=held.token,
            lease_id=held.lease_id,
            lease_expires_at_unix_ms=held.expires_at_unix_ms,
            lease_revocation_epoch=held.revocation_epoch,
            renewal_outstanding=held.renewal is not None,
            obeyed_owner=durable.owner,
            timeout_ms=min(
                CONNECTION_ATTEMPT_TIMEOUT_MS, max(1, held.deadline_mono_ms - now.mono_ms)
            ),
        )
    return Transition(with_live(runner, dialing=True), (claim(runner, order),))
