"""Decorators of a store: one that waits, one that fails, one that remembers, one that is broken.

Each is made before the store it decorates: `over` puts it there.
"""

import threading
from collections.abc import Sequence
from typing import Self

from controller_mock.core.state import RunConfig, StoredRun
from controller_mock.storage.store import (
    Batch,
    CommandRow,
    CredentialRow,
    Store,
    StoredEvent,
    StoreFailed,
)
from protocol.ids import RunId


class PassingStore:
    """Hands every call on."""

    def __init__(self) -> None:
        self._inner: Store | None = None

    def over(self, inner: Store) -> Self:
        self._inner = inner
        return self

    @property
    def inner(self) -> Store:
        assert self._inner is not None, "decorates nothing yet"
        return self._inner

    def create_run(self, config: RunConfig) -> None:
        self.inner.create_run(config)

    def load_runs(self) -> list[tuple[RunConfig, StoredRun]]:
        return self.inner.load_runs()

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        return self.inner.load_run(run_id)

    def commit(self, batches: Sequence[Batch]) -> None:
        self.inner.commit(batches)

    def run_ids(self) -> list[RunId]:
        return self.inner.run_ids()

    def events(self, run_id: RunId, after_seq: int, limit: int) -> list[StoredEvent]:
        return self.inner.events(run_id, after_seq, limit)

    def commands(self, run_id: RunId) -> list[CommandRow]:
        return self.inner.commands(run_id)

    def command(self, run_id: RunId, controller_seq: int) -> CommandRow | None:
        return self.inner.command(run_id, controller_seq)

    def credentials(self, run_id: RunId) -> list[CredentialRow]:
        return self.inner.credentials(run_id)

    def close(self) -> None:
        self.inner.close()


class WaitingStore(PassingStore):
    """Commits wait while `hold` is in force; ``commits`` names the runs of each that was made."""

    def __init__(self, *, waits_after_commit: bool = False) -> None:
        super().__init__()
        self._waits_after_commit = waits_after_commit
        self._may_commit = threading.Event()
        self._may_commit.set()
        self.waiting = threading.Event()
        """Set while a commit waits."""
        self.commits: list[list[str]] = []

    def hold(self) -> None:
        self._may_commit.clear()

    def go_on(self) -> None:
        self._may_commit.set()

    def commit(self, batches: Sequence[Batch]) -> None:
        if self._waits_after_commit:
            super().commit(batches)
        if not self._may_commit.is_set():
            self.waiting.set()
            self._may_commit.wait()
            self.waiting.clear()
        if not self._waits_after_commit:
            super().commit(batches)
        self.commits.append([str(run_id) for run_id, _ in batches])


class FailingStore(PassingStore):
    """The next commits and loads fail, commits before or after they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.commits_to_fail = 0
        self.loads_to_fail = 0
        self.fails_after_commit = False

    def commit(self, batches: Sequence[Batch]) -> None:
        if self.commits_to_fail == 0:
            super().commit(batches)
            return
        self.commits_to_fail -= 1
        if self.fails_after_commit:
            super().commit(batches)
        raise StoreFailed("planted")

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        if self.loads_to_fail > 0:
            self.loads_to_fail -= 1
            raise StoreFailed("planted")
        return super().load_run(run_id)


class BrokenStore(PassingStore):
    """Has a fault of ours in its commit."""

    def commit(self, batches: Sequence[Batch]) -> None:
        raise ZeroDivisionError
