"""The port through which a controller keeps runs: what a store must do, not how.

It decides what a commit may contain and how it fails. It refuses to know any database.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from controller_mock.core.actions import Change
from controller_mock.core.state import RunConfig, StoredRun
from protocol.envelope import OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId, SourceSeq

Batch = tuple[RunId, tuple[Change, ...]]
"""What one run adds to a commit."""


class EventIdConflict(PrpError):
    """An event's id already names another event of its run; the commit left nothing behind."""

    def __init__(self, run_id: RunId, source_seq: SourceSeq) -> None:
        super().__init__(
            ErrorCode.EVENT_IDENTITY_CONFLICT, f"event {source_seq} repeats the id of another event"
        )
        self.run_id = run_id
        self.source_seq = source_seq


class StoreFailed(PrpError):
    """The store could not make a commit durable; whether it did, a new load tells."""

    def __init__(self, words: str) -> None:
        super().__init__(ErrorCode.STORAGE_WRITE_FAILED, words)


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A committed event as readers get it; ``body`` is the event object as it was received."""

    source_seq: int
    source_event_id: str
    event_type: str
    priority: int
    digest: str
    """64 hex digits over the canonical envelope."""
    body: msgspec.Raw
    delivery_count: int
    received_at_unix_ms: int
    connection_number: int


class CommandRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command and its result, if it has one, as readers get them."""

    controller_seq: int
    command_id: str
    type: str
    body: msgspec.Raw
    """The wire command."""
    fingerprint: str
    issued_at: str
    delivery_count: int
    status: str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The five members of a command result; unset while there is none."""
    result_digest: str | None = None
    result_count: int = 0
    result_received_at_unix_ms: int | None = None


class CredentialRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ticket or lease without its key."""

    credential_id: str
    kind: str
    expires_at_unix_ms: int
    revocation_epoch: int
    lease_id: str | None
    lease_version: int | None
    used: bool
    revoked: bool
    superseded: bool


@runtime_checkable
class CountsOwners(Protocol):
    """A store that begins a new epoch each time a controller opens it (R7)."""

    owner: OwnerEpoch


class Store(Protocol):
    """Calls block; `commit` and `create_run` from one thread at a time, reads from any.

    A reader sees every commit that has returned and no part of one that has not. Every
    call may raise PrpError ``state_corrupt`` for a row that does not prove itself (R24).
    """

    def create_run(self, config: RunConfig) -> None:
        """Add a run with nothing in it; PrpError ``run_exists`` or `StoreFailed`."""
        ...

    def load_runs(self) -> list[tuple[RunConfig, StoredRun]]:
        """Return all runs in the order of their creation."""
        ...

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        """Return one run; PrpError ``run_unknown``."""
        ...

    def commit(self, batches: Sequence[Batch]) -> None:
        """Make all changes of all batches durable in one transaction, or none of them.

        The changes of a run apply in their order; one run may have several batches.

        Raises:
            EventIdConflict: an event repeats an id of its run.
            StoreFailed: the disk or database refused.
            PrpError: ``run_unknown``.

        Source: architecture D2, D8.
        """
        ...

    def run_ids(self) -> list[RunId]:
        """Return the names of all runs in the order of their creation."""
        ...

    def events(self, run_id: RunId, after_seq: int, limit: int) -> list[StoredEvent]:
        """Return at most ``limit`` committed events with a higher sequence, in order."""
        ...

    def commands(self, run_id: RunId) -> list[CommandRow]:
        """Return all commands in order of their sequence."""
        ...

    def command(self, run_id: RunId, controller_seq: int) -> CommandRow | None:
        """Return one command."""
        ...

    def credentials(self, run_id: RunId) -> list[CredentialRow]:
        """Return all tickets and leases in order of issue."""
        ...

    def close(self) -> None:
        """Give the store up. A second call does nothing."""
        ...
