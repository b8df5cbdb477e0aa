"""Whether a credential still carries authority, and what becomes of a connection without any.

It decides at the moment of application, on both clocks. It refuses to know what a message
would have done.
"""

import msgspec

from controller_mock.core.actions import Action, CloseConnection, Publish, PutCredential
from controller_mock.core.inputs import ConnectionHandle
from controller_mock.core.state import DurableRun, Handshake, LiveRun, Run, Session, Step, moved
from protocol.base.clock import Now
from protocol.base.revision import Gated, Transition
from protocol.errors import ErrorCode
from protocol.ids import CredentialId


def find_credential(durable: DurableRun, credential_id: CredentialId) -> PutCredential | None:
    """Return what is known of a credential, whether it is good or not."""
    lease = durable.lease
    if lease is not None and lease.credential_id == credential_id:
        return lease
    for held in durable.credentials:
        if held.credential_id == credential_id:
            return held
    return None


def credential_refusal(run: Run, credential: PutCredential, now: Now) -> ErrorCode | None:
    """Return why a credential opens no connection, or None if it does.

    Source: prp-wire 3.1.
    """
    if credential.used:
        return ErrorCode.CREDENTIAL_USED
    if credential.revoked or credential.superseded:
        return ErrorCode.CREDENTIAL_REVOKED
    if is_expired(run, credential, now):
        return ErrorCode.CREDENTIAL_EXPIRED
    return None


def message_refusal(run: Run, session: Session, now: Now) -> ErrorCode | None:
    """Return why a message of the session is not applied, or None if it is.

    Its lease must be the current one, unrevoked and unexpired now. A revocation that was
    announced on this connection leaves it until ``flush_deadline``.

    Source: prp-wire 5.3, faults I15 and R22.
    """
    lease = run.durable.lease
    if lease is None or lease.credential_id != session.credential_id:
        return ErrorCode.CREDENTIAL_REVOKED
    if lease.revoked and (session.flush_deadline is None or now.mono_ms >= session.flush_deadline):
        return ErrorCode.CREDENTIAL_REVOKED
    if is_expired(run, lease, now):
        return ErrorCode.CREDENTIAL_EXPIRED
    return None


def is_expired(run: Run, credential: PutCredential, now: Now) -> bool:
    """Tell whether either clock has reached the credential's end; equal counts as expired.

    Source: faults R10.
    """
    deadline = run.live.deadlines.get(credential.credential_id)
    return now.unix_ms >= credential.expires_at_unix_ms or (
        deadline is not None and now.mono_ms >= deadline
    )


def find_handshake(live: LiveRun, connection: ConnectionHandle) -> Handshake | None:
    """Return the challenge that is open on a connection."""
    for handshake in live.handshakes:
        if handshake.connection == connection:
            return handshake
    return None


def without(live: LiveRun, connection: ConnectionHandle) -> LiveRun:
    """Return the live state without anything of a connection."""
    session = live.session
    if session is not None and session.connection == connection:
        return msgspec.structs.replace(live, session=None, last_pong=None)
    return msgspec.structs.replace(
        live,
        handshakes=tuple(open_ for open_ in live.handshakes if open_.connection != connection),
    )


def refuse(run: Run, connection: ConnectionHandle, code: ErrorCode) -> Step:
    """Close a connection and forget it; durable state is untouched."""
    session = run.live.session
    close: Gated[Action] = Gated(CloseConnection(connection, code))
    if session is None or session.connection != connection:
        return Transition(moved(run, without(run.live, connection)), (close,))
    return Transition(moved(run, without(run.live, connection)), (close, Gated(Publish())))
