"""Tickets and proofs: how a connection becomes the run's session.

    ticket: issued ─(valid proof)─▶ used          lease: current ─(newer bootstrap)─▶ superseded
               │                                            │
               ├─(time)──▶ expired                          ├─(time)──▶ expired
               └─(revoke)▶ revoked                          └─(revoke)▶ revoked

It decides when a credential is challenged, consumed and replaced. It refuses to know the
arithmetic of a proof (`protocol.handshake`) and what follows the welcome.
"""

import msgspec

from controller_mock.core.actions import Action, Change, PutCredential, Reply, SendPlain
from controller_mock.core.admission import (
    credential_refusal,
    find_credential,
    find_handshake,
    refuse,
)
from controller_mock.core.digest_window import window_of
from controller_mock.core.inputs import HelloReceived, ResponseReceived, TicketIssued
from controller_mock.core.sessions import Proven, open_session
from controller_mock.core.state import (
    DurableRun,
    Handshake,
    LiveRun,
    Run,
    Step,
    changed,
    moved,
)
from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Gated, Transition
from protocol.credentials import auth_key, credential_id
from protocol.envelope import ProtocolVersion
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import CredentialFacts, server_challenge, server_verify
from protocol.ids import CredentialId, LeaseId, SourceSeq
from protocol.limits import CHALLENGE_TTL_MS, CREDENTIALS_MAX, TICKET_TTL_MS_CEILING


def on_ticket_issued(run: Run, stimulus: TicketIssued, now: Now) -> Step:
    """Remember a ticket; the reply leaves once it is durable.

    Returns:
        The ticket at the next revision. Or a reply: ``usage_invalid`` for a life outside
        1..60,000 ms, ``credential_used`` for a token that is known already.
    """
    if not 1 <= stimulus.ttl_ms <= TICKET_TTL_MS_CEILING:
        return _not_issued(run, stimulus, ErrorCode.USAGE_INVALID)
    if find_credential(run.durable, stimulus.credential_id) is not None:
        return _not_issued(run, stimulus, ErrorCode.CREDENTIAL_USED)
    ticket = PutCredential(
        credential_id=stimulus.credential_id,
        kind="bootstrap",
        auth_key=stimulus.auth_key,
        expires_at_unix_ms=now.unix_ms + stimulus.ttl_ms,
        revocation_epoch=0,
    )
    durable = msgspec.structs.replace(
        run.durable, credentials=remembered(run.durable.credentials, ticket)
    )
    live = with_deadline(run.live, durable, ticket.credential_id, now, stimulus.ttl_ms)
    after = changed(run, durable, live)
    reply = Reply(request=stimulus.request)
    return Transition(after, (Gated(reply, after.revision),), (ticket,))


def on_hello(run: Run, stimulus: HelloReceived, now: Now) -> Step:
    """Challenge a connection that names a good credential; nothing durable changes.

    Returns:
        An open challenge. Or CloseConnection: ``message_unexpected`` for a second hello,
        ``credential_unknown``, ``_used``, ``_revoked`` or ``_expired``,
        ``identity_mismatch``, ``artifact_mismatch``, ``version_range_empty``.

    Source: prp-wire 3.1 and 3.2.
    """
    connection, hello = stimulus.connection, stimulus.hello
    session = run.live.session
    if find_handshake(run.live, connection) is not None or (
        session is not None and session.connection == connection
    ):
        return refuse(run, connection, ErrorCode.MESSAGE_UNEXPECTED)
    credential = find_credential(run.durable, hello.credential_id)
    if credential is None:
        return refuse(run, connection, ErrorCode.CREDENTIAL_UNKNOWN)
    if (code := credential_refusal(run, credential, now)) is not None:
        return refuse(run, connection, code)
    protocol_max = min(hello.protocol_max, run.config.protocol_max)
    hello = msgspec.structs.replace(hello, protocol_max=protocol_max)
    try:
        challenge = server_challenge(
            hello,
            _facts(run, credential),
            credential.auth_key,
            stimulus.server_nonce,
            stimulus.owner,
        )
    except PrpError as error:
        return refuse(run, connection, error.code)
    remaining_ms = min(CHALLENGE_TTL_MS, credential.expires_at_unix_ms - now.unix_ms)
    handshake = Handshake(
        connection=connection,
        credential=credential,
        challenge=challenge,
        deadline=MonoMs(now.mono_ms + remaining_ms),
    )
    live = msgspec.structs.replace(run.live, handshakes=(*run.live.handshakes, handshake))
    # The challenge shows the lease's expiry, which a renewal may have moved a moment ago.
    challenged: Gated[Action] = Gated(SendPlain(connection, challenge.frame), run.revision)
    return Transition(moved(run, live), (challenged,))


def on_response(run: Run, stimulus: ResponseReceived, now: Now) -> Step:
    """Judge a proof; only a valid one consumes a ticket.

    Returns:
        A session, welcomed once it is durable. Or CloseConnection:
        ``message_unexpected`` without an open challenge, ``challenge_stale`` after its
        time or if the credential has changed since, ``credential_*`` if it has ended
        since, ``proof_invalid``, ``challenge_altered`` or ``message_*`` for the frame.

    Source: prp-wire 3.3 and 12, faults R8.
    """
    connection = stimulus.connection
    handshake = find_handshake(run.live, connection)
    if handshake is None:
        return refuse(run, connection, ErrorCode.MESSAGE_UNEXPECTED)
    if now.mono_ms >= handshake.deadline:
        return refuse(run, connection, ErrorCode.CHALLENGE_STALE)
    credential = find_credential(run.durable, handshake.credential.credential_id)
    if credential is None:
        return refuse(run, connection, ErrorCode.CREDENTIAL_UNKNOWN)
    if (code := credential_refusal(run, credential, now)) is not None:
        return refuse(run, connection, code)
    if credential != handshake.credential:
        return refuse(run, connection, ErrorCode.CHALLENGE_STALE)
    try:
        keys = server_verify(handshake.challenge, credential.auth_key, stimulus.frame)
    except PrpError as error:
        return refuse(run, connection, error.code)
    run = _with_history_of(run, handshake.challenge.recovery_cursor)
    version = handshake.challenge.selected_version
    if credential.kind == "lease":
        proven = Proven(connection=connection, keys=keys, version=version, lease=credential)
        live = _with_known_deadline(run, credential, now)
        return open_session(run, proven, run.durable, live, ())
    lease = _new_lease(run, stimulus, version, now)
    proven = Proven(
        connection=connection, keys=keys, version=version, lease=lease, token=stimulus.lease_token
    )
    durable, writes = _bought(run.durable, credential, lease)
    live = with_deadline(run.live, durable, lease.credential_id, now, run.config.lease_ttl_ms)
    return open_session(run, proven, durable, live, writes)


def remembered(
    credentials: tuple[PutCredential, ...], newest: PutCredential
) -> tuple[PutCredential, ...]:
    """Return the credentials with one more; the oldest beyond the bound is forgotten."""
    return (*credentials, newest)[-CREDENTIALS_MAX:]


def with_deadline(
    live: LiveRun, durable: DurableRun, credential_id: CredentialId, now: Now, life_ms: int
) -> LiveRun:
    """Return the live state with a credential's deadline, without those of forgotten ones."""
    kept = {held.credential_id for held in durable.credentials}
    if durable.lease is not None:
        kept.add(durable.lease.credential_id)
    deadlines = {held: end for held, end in live.deadlines.items() if held in kept}
    deadlines[credential_id] = MonoMs(now.mono_ms + life_ms)
    return msgspec.structs.replace(live, deadlines=deadlines)


def _not_issued(run: Run, stimulus: TicketIssued, code: ErrorCode) -> Step:
    return Transition(run, (Gated(Reply(request=stimulus.request, code=code)),))


def _with_known_deadline(run: Run, lease: PutCredential, now: Now) -> LiveRun:
    """Bound a lease that an earlier process issued by the local clock from here on."""
    if lease.credential_id in run.live.deadlines:
        return run.live
    life_ms = min(lease.expires_at_unix_ms - now.unix_ms, run.config.lease_ttl_ms)
    return with_deadline(run.live, run.durable, lease.credential_id, now, life_ms)


def _new_lease(
    run: Run, stimulus: ResponseReceived, version: ProtocolVersion, now: Now
) -> PutCredential:
    return PutCredential(
        credential_id=credential_id(stimulus.lease_token),
        kind="lease",
        auth_key=auth_key(stimulus.lease_token),
        expires_at_unix_ms=now.unix_ms + run.config.lease_ttl_ms,
        revocation_epoch=run.durable.revocation_epoch,
        lease_id=stimulus.lease_id,
        lease_version=version,
    )


def _bought(
    durable: DurableRun, ticket: PutCredential, lease: PutCredential
) -> tuple[DurableRun, tuple[Change, ...]]:
    """Exchange a ticket for a lease; the lease before it ends (R8)."""
    used = msgspec.structs.replace(ticket, used=True)
    credentials = tuple(
        used if held.credential_id == ticket.credential_id else held for held in durable.credentials
    )
    writes: tuple[Change, ...] = (used, lease)
    if durable.lease is not None:
        ended = msgspec.structs.replace(durable.lease, superseded=True)
        credentials = remembered(credentials, ended)
        writes = (used, ended, lease)
    return msgspec.structs.replace(durable, lease=lease, credentials=credentials), writes


def _with_history_of(run: Run, cursor: SourceSeq | None) -> Run:
    """Take over what was acknowledged before a sparse checkpoint was made; no event is known of it.

    A run with all of its history adopts nothing: if it lacks what its runner has been told
    is stored, it was rolled back, and the runner refuses it (R6).
    """
    durable = run.durable
    if cursor is None or not durable.is_sparse or cursor <= durable.acked_source_seq:
        return run
    adopted = msgspec.structs.replace(
        durable, acked_source_seq=cursor, digests=window_of(SourceSeq(cursor + 1), b"")
    )
    return msgspec.structs.replace(run, durable=adopted)


def _facts(run: Run, credential: PutCredential) -> CredentialFacts:
    return CredentialFacts(
        kind=credential.kind,
        credential_id=credential.credential_id,
        identity=run.config.identity,
        runner_version=run.config.runner_version,
        runner_digest=run.config.runner_digest,
        expires_at_unix_ms=credential.expires_at_unix_ms,
        revocation_epoch=credential.revocation_epoch,
        lease_id=None if credential.lease_id is None else LeaseId(credential.lease_id),
        lease_version=credential.lease_version,
    )
