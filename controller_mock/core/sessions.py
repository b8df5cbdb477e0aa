"""The one authenticated connection of a run: its welcome, its pings, its end.

It decides what a welcome says and that the newest connection wins. It refuses to know how
a credential was proven.
"""

from typing import Final

import msgspec

from controller_mock.core.actions import (
    Action,
    Change,
    CloseConnection,
    OpenChannel,
    Publish,
    PutCredential,
    Reply,
    SendControl,
)
from controller_mock.core.admission import message_refusal, refuse, without
from controller_mock.core.command_queue import hand_out
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, PongRequested
from controller_mock.core.state import (
    DurableRun,
    LiveRun,
    OpenCommand,
    Run,
    Session,
    Step,
    changed,
    lease_id_of,
    moved,
    run_row,
)
from protocol.base.clock import Now, UnixMs
from protocol.base.revision import Gated, Revision, Transition
from protocol.envelope import Binding, Ping, Pong, ProtocolVersion, Superseded, Welcome
from protocol.errors import ErrorCode
from protocol.handshake import SessionKeys
from protocol.ids import ConnectionId, Identity, RevocationEpoch
from protocol.limits import FRAME_BYTES_MAX
from protocol.secrets import Secret
from protocol.timestamps import rfc3339_ms

HEARTBEAT_INTERVAL_MS: Final = 250
MAX_BATCH_EVENTS: Final = 100
RENEWAL_VERSION: Final = 1


class _LeaseBinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    runner_instance_id: str
    environment_lease_id: str
    run_id: str
    normalized_session_id: str
    protocol_version: int


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that proved a credential; ``token`` is there if it bought a new lease."""

    connection: ConnectionHandle
    keys: SessionKeys
    version: ProtocolVersion
    lease: PutCredential
    token: Secret | None = None


def open_session(
    run: Run, proven: Proven, durable: DurableRun, live: LiveRun, writes: tuple[Change, ...]
) -> Step:
    """Welcome a proven connection and close the one before it.

    Args:
        durable: with the proven lease in it, not yet a revision of its own.
        live: with the lease's deadline in it.
        writes: what made the lease; they are committed before the welcome leaves.

    Source: prp-wire 6.
    """
    number = durable.connection_count + 1
    session = Session(
        connection=proven.connection,
        number=number,
        binding=Binding(
            version=proven.version,
            identity=run.config.identity,
            connection_id=ConnectionId(f"connection_{number}"),
            connection_lease_id=lease_id_of(proven.lease),
        ),
        credential_id=proven.lease.credential_id,
    )
    handed = hand_out(msgspec.structs.replace(durable, connection_count=number), session)
    after = changed(
        run,
        handed.durable,
        msgspec.structs.replace(
            without(live, proven.connection), session=handed.session, last_pong=None
        ),
    )
    welcome = _welcome(after, session.binding, proven, handed.command)
    opened: tuple[Action, ...] = (
        OpenChannel(connection=proven.connection, keys=proven.keys, binding=session.binding),
        SendControl(connection=proven.connection, message=welcome, envelope_id=f"welcome_{number}"),
        Publish(),
    )
    return Transition(
        after,
        (
            *_closing(run.live.session, proven, after.revision),
            *(Gated(action, after.revision) for action in opened),
        ),
        (*writes, *handed.writes, run_row(after.durable)),
    )


def on_pong_requested(run: Run, stimulus: PongRequested) -> Step:
    """Ping the runner. The reply says ``connection_lost`` if nobody is connected."""
    session = run.live.session
    if session is None:
        code = ErrorCode.CONNECTION_LOST
        return Transition(run, (Gated(Reply(request=stimulus.request, code=code)),))
    ping = SendControl(
        connection=session.connection, message=Ping(), envelope_id=f"ping_{stimulus.request}"
    )
    # It claims nothing, yet it must not overtake a welcome that still waits.
    return Transition(run, (Gated(ping), Gated(Reply(request=stimulus.request))))


def on_pong(run: Run, pong: Pong) -> Step:
    """Remember the newest pong of the connection for readers."""
    live = msgspec.structs.replace(run.live, last_pong=pong)
    return Transition(moved(run, live), (Gated(Publish()),))


def on_connection_lost(run: Run, stimulus: ConnectionLost) -> Step:
    """Forget a connection; its credential stays what it was."""
    session = run.live.session
    was_session = session is not None and session.connection == stimulus.connection
    after = moved(run, without(run.live, stimulus.connection))
    return Transition(after, (Gated(Publish()),) if was_session else ())


def on_time_passed(run: Run, now: Now) -> Step:
    """Close what has reached its deadline: open challenges, then the session."""
    actions: list[Gated[Action]] = []
    for handshake in run.live.handshakes:
        if now.mono_ms >= handshake.deadline:
            step = refuse(run, handshake.connection, ErrorCode.CHALLENGE_STALE)
            run = step.state
            actions.extend(step.actions)
    session = run.live.session
    if session is not None and (code := message_refusal(run, session, now)) is not None:
        step = refuse(run, session.connection, code)
        run = step.state
        actions.extend(step.actions)
    return Transition(run, tuple(actions))


def _closing(
    replaced: Session | None, proven: Proven, revision: Revision
) -> tuple[Gated[Action], ...]:
    if replaced is None:
        return ()
    if proven.token is not None:
        # A fresh ticket makes a new incarnation: the one before it is told to end (R8).
        told = SendControl(
            connection=replaced.connection,
            message=Superseded(),
            envelope_id=f"superseded_{replaced.number}",
        )
        close = CloseConnection(replaced.connection, ErrorCode.CONNECTION_SUPERSEDED)
        return (Gated(told, revision), Gated(close, revision))
    return (Gated(CloseConnection(replaced.connection, ErrorCode.CONNECTION_SUPERSEDED)),)


def _welcome(run: Run, binding: Binding, proven: Proven, pending: OpenCommand | None) -> Welcome:
    lease, token = proven.lease, proven.token
    expires_at_unix_ms = lease.expires_at_unix_ms
    return Welcome(
        selected_version=binding.version,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        connection_lease_renewal_version=RENEWAL_VERSION,
        connection_lease_id=binding.connection_lease_id,
        connection_lease_token=None if token is None else str(token.reveal(), "utf-8"),
        connection_lease_expires_at=rfc3339_ms(UnixMs(expires_at_unix_ms)),
        connection_lease_expires_at_unix_ms=expires_at_unix_ms,
        connection_lease_revocation_epoch=RevocationEpoch(lease.revocation_epoch),
        lease_binding=_lease_binding(binding),
        max_frame_bytes=FRAME_BYTES_MAX,
        max_batch_events=MAX_BATCH_EVENTS,
        acked_source_seq=run.durable.acked_source_seq,
        pending_commands=() if pending is None else (pending.command,),
    )


def _lease_binding(binding: Binding) -> msgspec.Raw:
    identity: Identity = binding.identity
    return msgspec.Raw(
        msgspec.json.encode(
            _LeaseBinding(
                runner_instance_id=identity.runner_instance_id,
                environment_lease_id=identity.environment_lease_id,
                run_id=identity.run_id,
                normalized_session_id=identity.normalized_session_id,
                protocol_version=binding.version,
            )
        )
    )
