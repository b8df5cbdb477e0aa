"""What outsiders may see of a run.

It decides which facts are shown. It refuses to show what is not committed, and secrets.
"""

import msgspec

from controller_mock.core.state import Run
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
    """Type of the terminal command that the runner completed last, unless it came back since."""
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
    raise NotImplementedError
