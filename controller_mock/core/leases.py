"""Renewal of the current lease, and its revocation.

It decides how long a lease lives and how it ends early. It refuses to know how a lease is
won (`tickets`) and when it is looked at (`admission`).
"""

from typing import Final

import msgspec

from controller_mock.core.actions import (
    Action,
    Change,
    Publish,
    PutCredential,
    Reply,
    SendControl,
)
from controller_mock.core.admission import refuse
from controller_mock.core.inputs import RevokeRequested
from controller_mock.core.state import LiveRun, Run, Session, Step, changed, moved, run_row
from controller_mock.core.tickets import with_deadline
from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Gated, Transition
from protocol.envelope import LeaseRenew, LeaseRenewed, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from protocol.limits import REVOKE_FLUSH_TIMEOUT_MS

FLUSH_WAIT_MS: Final = 2 * REVOKE_FLUSH_TIMEOUT_MS
"""How long a revoked runner is listened to: its own bound and as much for the way."""


def on_lease_renew(run: Run, session: Session, renew: LeaseRenew, now: Now) -> Step:
    """Extend the lease, or repeat the extension that answered the same request before.

    Returns:
        The answer, gated on the stored expiry. Nothing after a terminal command or a
        revocation. Or CloseConnection: ``lease_renewal_refused`` if the epoch is another
        or the expiry later than the stored one.

    Source: prp-wire 10.
    """
    if session.terminal_delivered or session.flush_deadline is not None:
        return Transition(run)
    lease = run.durable.lease
    assert lease is not None, "an admitted message has a lease"
    observed = renew.connection_lease_expires_at_unix_ms
    if (
        renew.connection_lease_revocation_epoch != lease.revocation_epoch
        or not 1 <= observed <= lease.expires_at_unix_ms
    ):
        return refuse(run, session.connection, ErrorCode.LEASE_RENEWAL_REFUSED)
    if observed < lease.expires_at_unix_ms:
        return Transition(run, (_renewed(run, session, lease, observed),))
    expires_at_unix_ms = max(lease.expires_at_unix_ms, now.unix_ms + run.config.lease_ttl_ms)
    live = _extended(run, lease, now, expires_at_unix_ms)
    if expires_at_unix_ms == lease.expires_at_unix_ms:
        return Transition(moved(run, live), (_renewed(run, session, lease, observed),))
    longer = msgspec.structs.replace(lease, expires_at_unix_ms=expires_at_unix_ms)
    after = changed(run, msgspec.structs.replace(run.durable, lease=longer), live)
    return Transition(after, (_renewed(after, session, longer, observed),), (longer,))


def on_revoke_requested(run: Run, stimulus: RevokeRequested, now: Now) -> Step:
    """End the run's authority: its lease, its unused tickets, its command queue.

    The connected runner is told and listened to until it has flushed or
    ``FLUSH_WAIT_MS`` have passed. A second request changes nothing.

    Source: prp-wire 10.1, faults R22, architecture 7.8.
    """
    reply = Reply(request=stimulus.request)
    if run.durable.revocation_epoch > 0:
        return Transition(run, (Gated(reply, run.revision),))
    epoch = RevocationEpoch(run.durable.revocation_epoch + 1)
    lease, credentials = run.durable.lease, run.durable.credentials
    durable = msgspec.structs.replace(
        run.durable,
        revocation_epoch=epoch,
        lease=None if lease is None else _revoked(lease),
        credentials=tuple(map(_revoked, credentials)),
    )
    session = run.live.session
    live = run.live if session is None else _listening(run.live, session, now)
    after = changed(run, durable, live)
    actions: tuple[Action, ...] = (reply, Publish())
    if session is not None:
        revoke = SendControl(
            connection=session.connection, message=Revoke(epoch), envelope_id=f"revoke_{epoch}"
        )
        actions = (revoke, *actions)
    ended: tuple[Change, ...] = tuple(
        new
        for old, new in zip(credentials, durable.credentials, strict=True)
        if new.revoked != old.revoked
    )
    if durable.lease is not None:
        ended = (*ended, durable.lease)
    return Transition(
        after,
        tuple(Gated(action, after.revision) for action in actions),
        (*ended, run_row(durable)),
    )


def _renewed(run: Run, session: Session, lease: PutCredential, observed: int) -> Gated[Action]:
    answer = LeaseRenewed(
        previous_expires_at_unix_ms=observed,
        connection_lease_expires_at_unix_ms=lease.expires_at_unix_ms,
        connection_lease_revocation_epoch=RevocationEpoch(lease.revocation_epoch),
    )
    action = SendControl(
        connection=session.connection, message=answer, envelope_id=f"lease_renewed_{observed}"
    )
    return Gated(action, run.revision)


def _extended(run: Run, lease: PutCredential, now: Now, expires_at_unix_ms: int) -> LiveRun:
    # A wall clock that was set back leaves a far expiry; the local clock keeps its life short.
    life_ms = min(expires_at_unix_ms - now.unix_ms, run.config.lease_ttl_ms)
    return with_deadline(run.live, run.durable, lease.credential_id, now, life_ms)


def _revoked(credential: PutCredential) -> PutCredential:
    if credential.used or credential.superseded:
        return credential
    return msgspec.structs.replace(credential, revoked=True)


def _listening(live: LiveRun, session: Session, now: Now) -> LiveRun:
    until = MonoMs(now.mono_ms + FLUSH_WAIT_MS)
    return msgspec.structs.replace(
        live, session=msgspec.structs.replace(session, flush_deadline=until)
    )
