"""Recovery: what a starting process makes of the state it finds, before any connection.

It decides between a new run, a resumed one and one that is over. It refuses to guess: what
was pending is indeterminate, and a harness of the earlier process is settled by evidence.
"""

from protocol.base.clock import Now
from protocol.base.revision import Revision, Transition
from protocol.errors import ErrorCode
from protocol.ids import Generation, SourceSeq
from runnerd.core import ending, turns
from runnerd.core.command_journal import indeterminate
from runnerd.core.inputs import Started
from runnerd.core.outbox import Draft, note, outbox_bytes, produce
from runnerd.core.state import Boot, Durable, Lifecycle, Live, Runner, Settings
from runnerd.core.transition import Step, advance, with_live

RECONCILED = "runner.reconciled"


def start(settings: Settings, durable: Durable | None, boot: Boot) -> Runner:
    """Return the state with which a process begins, before its first input, `Started`.

    Args:
        durable: what was loaded, or None if there is no state file.
    """
    live = Live(
        is_new=durable is None,
        started_mono_ms=boot.now.mono_ms,
        dial_at_mono_ms=boot.now.mono_ms,
        jitter=boot.jitter_seed,
    )
    if durable is None:
        fresh = Durable(
            identity=settings.identity,
            state_id=boot.state_id,
        )
        return Runner(settings, Revision(0), fresh, live)
    generation = durable.generation
    found = Runner(settings, Revision(0), durable, live)
    if durable.requests:
        from runnerd.core.requests import armed

        found = armed(found, boot.now)
    return with_live(
        found,
        outbox_bytes=outbox_bytes(durable.outbox, settings.identity),
        harness_started=generation if durable.turn is not None else Generation(0),
        harness_forgotten=generation,
        frozen_through=SourceSeq(durable.next_source_seq - 1),
    )


def on_started(runner: Runner, started: Started, now: Now) -> Step:
    """Begin a new run, resume a stored one, or end at once if it is over.

    A state that was loaded is resumed: the reconnect count rises, commands without a
    result become indeterminate and are never run again (R1), and one P0
    `runner.reconciled` says so; another is not added while the last is undelivered and
    newest, so that restarts alone cannot fill the reserve (R16). A state that is stopped,
    or revoked with nothing left to deliver, ends at once without a connection.

    Source: runner-behaviour 4, "Start-up on a stored lifecycle".
    """
    if runner.live.is_new:
        # The first order waits until the state exists on disk.
        return Transition(advance(runner))
    if is_over(runner.durable):
        return Transition(_end_at_once(runner, now))
    resumed = _reconciled(runner, now)
    if started.ended is not None:
        return turns.on_exited(resumed, started.ended, now)
    if started.orphan is not None:
        return Transition(turns.on_orphan_settled(resumed, started.orphan, now))
    return Transition(resumed)


def is_over(durable: Durable) -> bool:
    """Tell whether a stored state needs no connection any more."""
    if durable.lifecycle is Lifecycle.STOPPED:
        return durable.terminal_delivery is None
    return durable.lifecycle is Lifecycle.REVOKED and not durable.outbox and durable.turn is None


def _end_at_once(found: Runner, now: Now) -> Runner:
    return ending.begin(
        found,
        code=None,
        code_at_deadline=ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED,
        timeout_ms=0,
        intent="stop",
        now=now,
    )


def _reconciled(found: Runner, now: Now) -> Runner:
    durable = found.durable
    settled = advance(
        found,
        commands=tuple(
            record if record.result is not None else indeterminate(record)
            for record in durable.commands
        ),
        reconnect_count=durable.reconnect_count + 1,
    )
    settled = note(settled, f"process restarted in lifecycle {durable.lifecycle.value}")
    if durable.outbox and durable.outbox[-1].event_type == RECONCILED:
        return settled
    draft = Draft(RECONCILED, 0, {"outcome": "same_durable_session_resumed"})
    return produce(settled, (draft,), now)
