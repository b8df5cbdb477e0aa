"""The controller's core: one input to one run, in; the next state and gated actions, out.

It decides which handler an input belongs to and when time next matters. It refuses to know
what the handlers decide.
"""

from typing import assert_never

from controller_mock.core.admission import find_handshake, message_refusal, refuse
from controller_mock.core.command_queue import on_command_requested, on_result
from controller_mock.core.ingest import (
    on_event,
    on_integrity_conflict_found,
    on_message_refused,
)
from controller_mock.core.inputs import (
    CommandRequested,
    ConnectionLost,
    HelloReceived,
    Input,
    IntegrityConflictFound,
    MessageReceived,
    MessageRefused,
    PongRequested,
    ResponseReceived,
    RevokeRequested,
    TicketIssued,
    TimePassed,
)
from controller_mock.core.leases import on_lease_renew, on_revoke_requested
from controller_mock.core.sessions import (
    on_connection_lost,
    on_pong,
    on_pong_requested,
    on_time_passed,
)
from controller_mock.core.state import Run, Step
from controller_mock.core.tickets import on_hello, on_response, on_ticket_issued
from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.envelope import (
    EventMessage,
    LeaseRenew,
    Pong,
    ResultMessage,
    WarmTransitionActivated,
)
from protocol.errors import ErrorCode


def step(run: Run, stimulus: Input, now: Now) -> Step:
    """Apply one input; no exception for anything a peer or caller can do."""
    match stimulus:
        case MessageReceived():
            return on_message(run, stimulus, now)
        case HelloReceived():
            return on_hello(run, stimulus, now)
        case ResponseReceived():
            return on_response(run, stimulus, now)
        case MessageRefused():
            return on_message_refused(run, stimulus, now)
        case ConnectionLost():
            return on_connection_lost(run, stimulus)
        case CommandRequested():
            return on_command_requested(run, stimulus, now)
        case TicketIssued():
            return on_ticket_issued(run, stimulus, now)
        case RevokeRequested():
            return on_revoke_requested(run, stimulus, now)
        case PongRequested():
            return on_pong_requested(run, stimulus)
        case IntegrityConflictFound():
            return on_integrity_conflict_found(run, stimulus)
        case TimePassed():
            return on_time_passed(run, now)
        case _:
            assert_never(stimulus)


def on_message(run: Run, stimulus: MessageReceived, now: Now) -> Step:
    """Apply a message of the session, if its lease carries authority at this moment.

    Returns:
        What the kind's handler returns. Nothing for a connection that was already ordered
        closed. Or CloseConnection: ``credential_revoked``, ``credential_expired``,
        ``message_unexpected``.

    Source: prp-wire 5.3.
    """
    session = run.live.session
    if session is None or session.connection != stimulus.connection:
        if find_handshake(run.live, stimulus.connection) is not None:
            return refuse(run, stimulus.connection, ErrorCode.MESSAGE_UNEXPECTED)
        return Transition(run)
    if (code := message_refusal(run, session, now)) is not None:
        return refuse(run, session.connection, code)
    match message := stimulus.message:
        case EventMessage():
            return on_event(run, session, message, now)
        case ResultMessage():
            return on_result(run, session, message, now)
        case LeaseRenew():
            return on_lease_renew(run, session, message, now)
        case Pong():
            return on_pong(run, message)
        case WarmTransitionActivated():
            # A transition is never offered, so nobody can have activated one.
            return refuse(run, session.connection, ErrorCode.MESSAGE_UNEXPECTED)
        case _:
            assert_never(message)


def next_deadline(run: Run) -> MonoMs | None:
    """Return when `TimePassed` must be fed at the latest, or None.

    A lease of an earlier process gets its deadline when it is proven, so a session always
    has one.
    """
    live = run.live
    deadlines = [handshake.deadline for handshake in live.handshakes]
    if live.session is not None:
        if live.session.flush_deadline is not None:
            deadlines.append(live.session.flush_deadline)
        lease_end = live.deadlines.get(live.session.credential_id)
        if lease_end is not None:
            deadlines.append(lease_end)
    return min(deadlines, default=None)
