"""One thread for the state file, so that a slow disk stops neither pongs nor renewals.

It decides that writes happen one at a time beside the event loop. It refuses to know what is
written and what a failure means.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from protocol.base.atomic_file import WriteFailed
from protocol.limits import ROOM_RETRY_MS
from runnerd.core.state import Durable
from runnerd.driving import StateRoom, StateStore

OutcomeT = TypeVar("OutcomeT")
Done = Callable[[WriteFailed | None], None]


class StateWriter:
    """A dedicated thread; a pool costs twice as much per write (architecture 8.2)."""

    def __init__(
        self,
        store: StateStore,
        done: Done,
        failed: Callable[[BaseException], None],
        room: StateRoom | None = None,
        room_found: Callable[[None], None] = lambda _: None,
    ) -> None:
        """Start the thread. Must be called with the event loop running.

        Args:
            done: gets the end of each write, in the loop.
            failed: gets what no store may raise, in the loop.
            room: of the store's disk; while it has none, it is asked for again and again.
            room_found: is called in the loop when it has some.
        """
        self._store = store
        self._done = done
        self._failed = failed
        self._room = room
        self._room_found = room_found
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Durable | None] = SimpleQueue()
        # A disk that hangs for ever must not keep the process from ending.
        threading.Thread(target=self._work, name="state-writer", daemon=True).start()

    def begin(self, durable: Durable) -> None:
        """Write a state; returns at once."""
        self._jobs.put(durable)

    def close(self) -> None:
        """Let the thread end once it is idle."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (durable := self._next_job()) is not None:
            try:
                self._store.replace(durable)
            except WriteFailed as error:
                self._report(self._done, error)
            except BaseException as error:  # noqa: BLE001 - the thread's boundary; the loop ends
                self._report(self._failed, error)
            else:
                self._report(self._done, None)

    def _next_job(self) -> Durable | None:
        """Wait for a state to write, None to end; on a full disk look for room meanwhile."""
        room = self._room
        if room is None:
            return self._jobs.get()
        while True:
            was_tight = room.is_tight
            try:
                return self._jobs.get(timeout=ROOM_RETRY_MS / 1000 if was_tight else None)
            except Empty:
                room.find_room()
            self._report(self._room_found, None)

    def _report(self, told: Callable[[OutcomeT], None], outcome: OutcomeT) -> None:
        try:
            self._loop.call_soon_threadsafe(told, outcome)
        except RuntimeError:
            # The loop is closed: the process ends and asks for no outcome.
            return
