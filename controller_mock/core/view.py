"""What outsiders may see of a run.

It decides which facts are shown. It refuses to show what is not committed, and secrets.
"""

import msgspec

from controller_mock.core.state import DurableRun, Run
from protocol.commands import TERMINAL_COMMAND_TYPES
from protocol.ids import Identity


class RunView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run for readers: durable facts are committed ones, the connection is as of now."""

    identity: Identity
    runner_version: str
    runner_digest: str
    acked_source_seq: int
    last_controller_seq: int
    open_commands: int
    outstanding_command_id: str | None
    outstanding_command_type: str | None
    connected: bool
    connection_number: int | None
    """Counts authenticated connections of the run; None while nobody is connected."""
    connection_count: int
    protocol_version: int | None
    lease_id: str | None
    lease_expires_at_unix_ms: int | None
    revocation_epoch: int
    revoked: bool
    ended_by: str | None
    """Type of the newest settled command if that is a terminal one."""
    run_terminal_state: str | None
    integrity_fault: str | None
    malformed_frames: int
    replay_deliveries: int
    runner_lifecycle: str | None
    """From the newest pong of this connection."""
    runner_outbox_bytes: int | None


def view(committed: Run, staged: Run) -> RunView:
    """Return the view of a run.

    Args:
        committed: `driver.committed`, for everything that a store holds.
        staged: `driver.staged`, for the connection, which no store holds.
    """
    durable, live = committed.durable, staged.live
    session, lease, pong = live.session, durable.lease, live.last_pong
    outstanding = durable.open_commands[0].command if durable.open_commands else None
    return RunView(
        identity=committed.config.identity,
        runner_version=committed.config.runner_version,
        runner_digest=committed.config.runner_digest,
        acked_source_seq=durable.acked_source_seq,
        last_controller_seq=durable.last_controller_seq,
        open_commands=len(durable.open_commands),
        outstanding_command_id=None if outstanding is None else outstanding.command_id,
        outstanding_command_type=None if outstanding is None else outstanding.type,
        connected=session is not None,
        connection_number=None if session is None else session.number,
        connection_count=durable.connection_count,
        protocol_version=None if session is None else session.binding.version,
        lease_id=None if lease is None else lease.lease_id,
        lease_expires_at_unix_ms=None if lease is None else lease.expires_at_unix_ms,
        revocation_epoch=durable.revocation_epoch,
        revoked=durable.revocation_epoch > 0,
        ended_by=_ended_by(durable),
        run_terminal_state=durable.run_terminal_state,
        integrity_fault=durable.integrity_fault,
        malformed_frames=durable.malformed_frames,
        replay_deliveries=durable.replay_deliveries,
        runner_lifecycle=None if pong is None else pong.lifecycle,
        runner_outbox_bytes=None if pong is None else pong.outbox_bytes,
    )


def _ended_by(durable: DurableRun) -> str | None:
    newest = durable.settled[-1] if durable.settled else None
    if newest is None or newest.type not in TERMINAL_COMMAND_TYPES:
        return None
    return newest.type
