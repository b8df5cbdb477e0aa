"""The controller's store as a simulated database: commits that are slow, fail, or both happen.

It decides what a failing commit leaves behind: nothing, or everything. It refuses to know
who waits for it.
"""

import enum
from collections.abc import Sequence

from controller_mock.storage.store import Batch, StoreFailed
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
