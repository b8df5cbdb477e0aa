"""Events: which one is next, which one came again, and which one is a lie.

It decides order, replay and the integrity latch. It refuses to look into an event beyond
its sequence, its digest and the state that ends a run: `protocol.codec` has checked
schema, identity and content digests.
"""

from typing import Final, Literal

import msgspec

from controller_mock.core import tool_calls
from controller_mock.core.actions import (
    Action,
    Change,
    CloseConnection,
    CountRedelivery,
    Publish,
    PutEvent,
    SendControl,
)
from controller_mock.core.admission import message_refusal, refuse, without
from controller_mock.core.digest_window import appended, digest_at
from controller_mock.core.inputs import IntegrityConflictFound, MessageRefused
from controller_mock.core.state import Run, Session, Step, changed, run_row
from protocol.base.clock import Now
from protocol.base.revision import Gated, Transition
from protocol.envelope import Ack, EventMessage
from protocol.errors import ErrorCode
from protocol.events import Event
from protocol.ids import SourceSeq

RUN_TERMINAL: Final = "run.terminal"

MALFORMED: Final = frozenset(
    {
        ErrorCode.FRAME_MALFORMED,
        ErrorCode.FRAME_COUNTER_MISMATCH,
        ErrorCode.FRAME_NOT_AUTHENTIC,
        ErrorCode.MESSAGE_NOT_JSON,
    }
)
"""Violations of the secure frame itself, which are counted (prp-wire 4)."""


class _Terminal(msgspec.Struct, frozen=True, rename="camel"):
    run_terminal_state: Literal["succeeded", "failed", "cancelled"] | None = None


_TERMINAL: Final = msgspec.json.Decoder(_Terminal)


def on_event(run: Run, session: Session, message: EventMessage, now: Now) -> Step:
    """Stage the next event, or judge one that is not the next.

    Returns:
        A new or repeated event and one cumulative ACK, gated on it. Or CloseConnection:
        ``event_invalid`` for a call beyond `TOOL_CALLS_PER_RUN_MAX`,
        ``integrity_latched`` while the latch holds, ``event_gap``,
        ``event_window_exceeded`` for one too old to be compared,
        ``event_identity_conflict`` for other content under a committed sequence, which
        sets the latch.

    Source: prp-wire 7.1, faults R3.
    """
    durable = run.durable
    if durable.integrity_fault is not None:
        return refuse(run, session.connection, ErrorCode.INTEGRITY_LATCHED)
    seq = message.event.source_seq
    if seq == durable.acked_source_seq + 1:
        if not tool_calls.has_room_for(durable, message.event):
            return refuse(run, session.connection, ErrorCode.EVENT_INVALID)
        return _accepted(run, session, message, now)
    if seq > durable.acked_source_seq:
        return refuse(run, session.connection, ErrorCode.EVENT_GAP)
    known = digest_at(durable.digests, seq)
    if known is None:
        return refuse(run, session.connection, ErrorCode.EVENT_WINDOW_EXCEEDED)
    if known != message.digest:
        return latched(run, ErrorCode.EVENT_IDENTITY_CONFLICT)
    return _repeated(run, session, seq)


def on_message_refused(run: Run, stimulus: MessageRefused, now: Now) -> Step:
    """Close a connection for a frame that did not open, decode or match.

    Returns:
        Malformed frames of the session are counted. ``semantic_digest_mismatch`` sets
        the latch.

    Source: prp-wire 4, 9.1 and 13.
    """
    connection, code = stimulus.connection, stimulus.code
    session = run.live.session
    if session is None or session.connection != connection:
        return refuse(run, connection, code)
    if (refusal := message_refusal(run, session, now)) is not None:
        return refuse(run, connection, refusal)
    if code is ErrorCode.SEMANTIC_DIGEST_MISMATCH and run.durable.integrity_fault is None:
        return latched(run, code)
    closed = refuse(run, connection, code)
    if code not in MALFORMED:
        return closed
    durable = msgspec.structs.replace(
        run.durable, malformed_frames=run.durable.malformed_frames + 1
    )
    # Nothing waits for the counter, so it costs no write of its own.
    return Transition(changed(run, durable, closed.state.live), closed.actions, (run_row(durable),))


def on_integrity_conflict_found(run: Run, stimulus: IntegrityConflictFound) -> Step:
    """Set the latch because the store found one event id on two events.

    The run was loaded again after the refused commit, so the second event is not in it.

    Source: faults R3.
    """
    assert stimulus.source_seq > 0, "a sequence counts from 1"
    if run.durable.integrity_fault is not None:
        return Transition(run)
    return latched(run, ErrorCode.EVENT_IDENTITY_CONFLICT)


def latched(run: Run, code: ErrorCode) -> Step:
    """Close the session and refuse every later event, also after a restart."""
    durable = msgspec.structs.replace(run.durable, integrity_fault=code.value)
    session = run.live.session
    live = run.live if session is None else without(run.live, session.connection)
    after = changed(run, durable, live)
    published: Gated[Action] = Gated(Publish(), after.revision)
    if session is None:
        return Transition(after, (published,), (run_row(durable),))
    close: Gated[Action] = Gated(CloseConnection(session.connection, code))
    return Transition(after, (close, published), (run_row(durable),))


def _accepted(run: Run, session: Session, message: EventMessage, now: Now) -> Step:
    event = message.event
    durable, order = tool_calls.taken(run.durable, event, run.config.identity)
    after = changed(
        run,
        msgspec.structs.replace(
            durable,
            acked_source_seq=event.source_seq,
            digests=appended(durable.digests, message.digest),
            run_terminal_state=durable.run_terminal_state or _terminal_state(event),
        ),
    )
    put = PutEvent(
        source_seq=event.source_seq,
        source_event_id=event.source_event_id,
        event_type=event.event_type,
        priority=event.priority,
        digest=message.digest,
        body=message.body,
        received_at_unix_ms=now.unix_ms,
        connection_number=session.number,
    )
    acked = _acked(after, session, put)
    if order is None:
        return acked
    # Behind the ACK: first the runner knows that its call is here, then it is acted upon.
    handed_on: Gated[Action] = Gated(order, after.revision)
    return Transition(acked.state, (*acked.actions, handed_on), acked.writes)


def _repeated(run: Run, session: Session, seq: SourceSeq) -> Step:
    replays = run.durable.replay_deliveries + 1
    after = changed(run, msgspec.structs.replace(run.durable, replay_deliveries=replays))
    return _acked(after, session, CountRedelivery(seq))


def _acked(run: Run, session: Session, change: Change) -> Step:
    """Name the cursor of this very revision, so that no commit can lag behind its ACK (D3)."""
    cursor = run.durable.acked_source_seq
    ack = SendControl(
        connection=session.connection, message=Ack(cursor), envelope_id=f"ack_{cursor}"
    )
    return Transition(run, (Gated(ack, run.revision),), (change, run_row(run.durable)))


def _terminal_state(event: Event) -> str | None:
    if event.event_type != RUN_TERMINAL:
        return None
    try:
        return _TERMINAL.decode(event.payload).run_terminal_state
    except msgspec.ValidationError:
        return None
