"""One thread for everything that waits for the disk, so that the loop never does.

It decides that storage jobs run one after another and that each reports back to the loop
once. It refuses to know what a job writes and what a failure means.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

ResultT = TypeVar("ResultT")
Job = Callable[[], None]


class Writer:
    """A dedicated thread fed by a queue; a thread pool costs twice as much per write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """True once nothing can be submitted any more."""
        return self._closed

    def submit(
        self, work: Callable[[], ResultT], done: Callable[[ResultT | Exception], None]
    ) -> None:
        """Run ``work`` after all earlier jobs; ``done`` gets its outcome on the loop."""
        assert not self._closed, "the writer is closed"

        def job() -> None:
            try:
                outcome: ResultT | Exception = work()
            except Exception as error:  # noqa: BLE001 - the thread's boundary; the loop judges it
                outcome = error
            self._loop.call_soon_threadsafe(done, outcome)

        self._jobs.put(job)

    async def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` after all earlier jobs and return or raise its outcome."""
        future: asyncio.Future[ResultT] = self._loop.create_future()

        def done(outcome: ResultT | Exception) -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.submit(work, done)
        return await future

    async def close(self) -> None:
        """Run what is queued, then end the thread. A second call does nothing."""
        if self._closed:
            return
        await self.call(lambda: None)
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
