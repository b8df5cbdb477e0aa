"""Commits: the writes of all runs that want one, in one transaction at a time.

It decides what is written together and what follows from a store that fails: the run is
fenced, and has no authority until it was loaded again. It refuses to know connections.

    want ─▶ begin ─▶ (writer thread) ─▶ written
                          └─ failed ─▶ fenced ─▶ load, with backoff ─▶ reloaded
"""

import asyncio
from typing import Protocol

import structlog

from controller_mock.core.state import RunConfig, StoredRun, restore
from controller_mock.io.writer import Writer
from controller_mock.run_slot import Commit, RunSlot
from controller_mock.storage.store import EventIdConflict, Store
from protocol.errors import ErrorCode, PrpError
from protocol.limits import STORE_RETRY_MS, STORE_RETRY_MS_MAX

log = structlog.get_logger()


class CommitListener(Protocol):
    """What commits report to, always on the loop."""

    def commit_started(self) -> None:
        """Know that the writer thread wants the interpreter from now on."""
        ...

    def commit_ended(self, written: list[Commit]) -> None:
        """Let what waited for these writes go on; no commit is in flight."""
        ...

    def run_fenced(self, slot: RunSlot, code: ErrorCode) -> None:
        """Give up the connections of a run whose store has failed."""
        ...

    def run_reloaded(self, slot: RunSlot) -> None:
        """Take up a run as its store has it."""
        ...

    def commit_broke(self, fault: Exception) -> None:
        """End: the store's code has a fault of ours."""
        ...


class Commits:
    """The one commit in flight, and the runs that wait for the next."""

    def __init__(self, store: Store, writer: Writer, listener: CommitListener) -> None:
        self._store = store
        self._writer = writer
        self._listener = listener
        self._wanting: dict[RunSlot, None] = {}
        self._in_flight: list[Commit] = []

    def want(self, slot: RunSlot) -> None:
        """Ask the run's driver for a write at the next commit."""
        self._wanting[slot] = None

    def begin(self) -> None:
        """Commit what the drivers demand, unless a commit is in flight."""
        if self._in_flight:
            return
        wanting, self._wanting = self._wanting, {}
        for slot in wanting:
            if not slot.is_fenced and (write := slot.driver.next_write()) is not None:
                self._in_flight.append(Commit(slot, write))
        if self._in_flight:
            self._listener.commit_started()
            self._submit()

    def _submit(self) -> None:
        batches = [(commit.slot.run_id, commit.write.writes) for commit in self._in_flight]
        self._writer.submit(lambda: self._store.commit(batches), self._end)

    def _end(self, outcome: Exception | None) -> None:
        if isinstance(outcome, EventIdConflict) and self._set_aside(outcome):
            self._submit()
            return
        commits, self._in_flight = self._in_flight, []
        if outcome is not None and not isinstance(outcome, PrpError):
            self._listener.commit_broke(outcome)
            return
        written: list[Commit] = []
        for commit in commits:
            if outcome is not None:
                self._fence(commit.slot, outcome.code)
                continue
            commit.slot.driver.wrote()
            commit.slot.failures = 0
            self.want(commit.slot)
            written.append(commit)
        self._listener.commit_ended(written)

    def _set_aside(self, conflict: EventIdConflict) -> bool:
        """Fence the one run that spoils the commit; True if others are left to try again.

        The transaction left nothing behind.
        """
        kept = [commit for commit in self._in_flight if commit.slot.run_id != conflict.run_id]
        for commit in self._in_flight:
            if commit.slot.run_id == conflict.run_id:
                commit.slot.conflict = conflict.source_seq
                self._fence(commit.slot, conflict.code)
        self._in_flight = kept
        return bool(kept)

    # --- fence and reload -----------------------------------------------------------------------

    def _fence(self, slot: RunSlot, code: ErrorCode) -> None:
        slot.driver.write_failed()
        log.error("store_commit_failed", run_id=slot.run_id, code=code.value)
        self._listener.run_fenced(slot, code)
        slot.fence()
        self._reload_later(slot)

    def _reload_later(self, slot: RunSlot) -> None:
        delay_ms = min(STORE_RETRY_MS * 2 ** (slot.failures - 1), STORE_RETRY_MS_MAX)
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._reload, slot)

    def _reload(self, slot: RunSlot) -> None:
        def done(outcome: tuple[RunConfig, StoredRun] | Exception) -> None:
            self._reloaded(slot, outcome)

        if not self._writer.is_closed:
            self._writer.submit(lambda: self._store.load_run(slot.run_id), done)

    def _reloaded(self, slot: RunSlot, outcome: tuple[RunConfig, StoredRun] | Exception) -> None:
        if isinstance(outcome, PrpError):
            log.error("store_load_failed", run_id=slot.run_id, code=outcome.code.value)
            slot.failures += 1
            self._reload_later(slot)
        elif isinstance(outcome, Exception):
            self._listener.commit_broke(outcome)
        else:
            slot.reload(restore(*outcome))
            log.info("run_reloaded", run_id=slot.run_id, attempt=slot.failures)
            self._listener.run_reloaded(slot)
