"""The controller's store as a simulated database: commits that are slow, fail, or both happen.

It decides what a failing commit leaves behind: nothing, or everything. It refuses to know
who waits for it.
"""

import enum
from collections.abc import Sequence

import msgspec
from msgspec import structs

from controller_mock.core.actions import Change, PutCredential, PutEvent, PutRun
from controller_mock.core.state import RunConfig, StoredRun
from controller_mock.storage.store import Batch, CommandRow, StoredEvent, StoreFailed
from protocol.envelope import OwnerEpoch
from protocol.ids import RunId, SourceSeq
from tests.storage.memory import MemoryStore


class Trouble(enum.Enum):
    """What the next commit meets."""

    FAILS = "fails"
    """Nothing is stored."""
    FAILS_AFTER = "fails after"
    """Everything is stored, and the answer is a failure."""


class SimulatedStore(MemoryStore):
    """A memory store with one trouble at a time; it outlives every controller."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Trouble | None = None
        self.commits = 0
        self._sparse: set[RunId] = set()
        self.owner = OwnerEpoch(owner_epoch=1, owner_id="owner_1")
        """Which start of a controller has it open (R7)."""

    def begin_epoch(self, number: int) -> None:
        """Let another controller open the store."""
        self.owner = OwnerEpoch(owner_epoch=number, owner_id=f"owner_{number}")

    def twin(self) -> "SimulatedStore":
        """Return another store with the same content."""
        twin = SimulatedStore()
        twin._runs = {run_id: tables.copy() for run_id, tables in self._runs.items()}
        twin._sparse = set(self._sparse)
        return twin

    def commit(self, batches: Sequence[Batch]) -> None:
        for run_id, changes in batches:
            if run_id in self._sparse:
                self._fill_up(run_id, changes)
        trouble, self.trouble = self.trouble, None
        if trouble is Trouble.FAILS:
            raise StoreFailed("the disk is full")
        super().commit(batches)
        self.commits += 1
        if trouble is Trouble.FAILS_AFTER:
            raise StoreFailed("the answer was lost")

    def take(self, run_id: str) -> object:
        """Return a copy of everything that is stored of a run."""
        return self._runs[RunId(run_id)].copy()

    def put(self, run_id: str, taken: object) -> None:
        """Let a run be as it was when it was taken, with all events that it had."""
        tables = self._runs[RunId(run_id)]
        assert isinstance(taken, type(tables))
        self._runs[RunId(run_id)] = taken.copy()
        self._sparse.discard(RunId(run_id))

    # --- a checkpoint without events ----------------------------------------------------------

    def make_sparse(self, run_id: str, acked_source_seq: int) -> None:
        """Forget every event of a run, and the newest acknowledgements."""
        tables = self._runs[RunId(run_id)] = self._runs[RunId(run_id)].copy()
        tables.events.clear()
        tables.event_ids.clear()
        tables.row = structs.replace(tables.row, acked_source_seq=SourceSeq(acked_source_seq))
        self._sparse.add(RunId(run_id))

    def is_sparse(self, run_id: str) -> bool:
        """Tell whether events of a run are missing."""
        return RunId(run_id) in self._sparse

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        config, stored = super().load_run(run_id)
        if run_id not in self._sparse:
            return config, stored
        known = [event for event in self._runs[run_id].events.values() if not _is_filler(event)]
        return config, structs.replace(
            stored,
            is_sparse=True,
            first_digest_seq=SourceSeq(stored.row.acked_source_seq + 1 - len(known)),
            digests=b"".join(bytes.fromhex(event.digest) for event in known),
        )

    def _fill_up(self, run_id: RunId, changes: Sequence[Change]) -> None:
        """Put fillers where events are missing, so that the twin can count on."""
        first = min((c.source_seq for c in changes if isinstance(c, PutEvent)), default=0)
        events = self._runs[run_id].events
        for seq in range(len(events) + 1, first):
            events[seq] = structs.replace(_FILLER, source_seq=seq)

    # --- what an observer reads, without asking the product ---------------------------------

    def event(self, run_id: str, seq: int) -> StoredEvent | None:
        """Return one committed event."""
        event = self._runs[RunId(run_id)].events.get(seq)
        return None if event is None or _is_filler(event) else event

    def rows(self, run_id: str) -> dict[int, CommandRow]:
        """Return all commands by sequence."""
        return self._runs[RunId(run_id)].commands

    def held_credentials(self, run_id: str) -> dict[str, PutCredential]:
        """Return all tickets and leases by their public name."""
        return self._runs[RunId(run_id)].credentials

    def run_row_of(self, run_id: str) -> PutRun:
        """Return the run's row."""
        return self._runs[RunId(run_id)].row


_FILLER = StoredEvent(
    source_seq=0,
    source_event_id="",
    event_type="",
    priority=2,
    digest="",
    body=msgspec.Raw(b"null"),
    delivery_count=0,
    received_at_unix_ms=0,
    connection_number=0,
)


def _is_filler(event: StoredEvent) -> bool:
    return event.delivery_count == 0
