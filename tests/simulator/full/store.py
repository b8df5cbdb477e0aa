"""The controller's store as a simulated database: commits that are slow, fail, or both happen.

It decides what a failing commit leaves behind: nothing, or everything. It refuses to know
who waits for it.
"""

import enum
from collections.abc import Sequence

from controller_mock.core.actions import PutCredential, PutRun
from controller_mock.storage.store import Batch, CommandRow, StoredEvent, StoreFailed
from protocol.ids import RunId
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

    def commit(self, batches: Sequence[Batch]) -> None:
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
        """Let a run be as it was when it was taken."""
        tables = self._runs[RunId(run_id)]
        assert isinstance(taken, type(tables))
        self._runs[RunId(run_id)] = taken.copy()

    # --- what an observer reads, without asking the product ---------------------------------

    def event(self, run_id: str, seq: int) -> StoredEvent | None:
        """Return one committed event."""
        return self._runs[RunId(run_id)].events.get(seq)

    def rows(self, run_id: str) -> dict[int, CommandRow]:
        """Return all commands by sequence."""
        return self._runs[RunId(run_id)].commands

    def held_credentials(self, run_id: str) -> dict[str, PutCredential]:
        """Return all tickets and leases by their public name."""
        return self._runs[RunId(run_id)].credentials

    def run_row_of(self, run_id: str) -> PutRun:
        """Return the run's row."""
        return self._runs[RunId(run_id)].row
