"""One thread for the run's log, so that a slow disk stops neither pongs nor renewals.

It decides that jobs run one at a time, in order, beside the event loop. It refuses to know
what a job does and what a failure means.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class _Job(Generic[ResultT]):
    def __init__(self, work: Callable[[], ResultT], done: Callable[[ResultT], None]) -> None:
        self.work = work
        self.done = done


class Worker:
    """A dedicated thread; a pool costs twice as much per write (architecture 8.2)."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        """Start nothing: the thread comes with the first job, in a running event loop.

        Args:
            failed: gets what no job may raise, in the loop.
        """
        self._failed = failed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_thread = False
        self._jobs: SimpleQueue[_Job[object] | None] = SimpleQueue()

    def do(self, work: Callable[[], ResultT], done: Callable[[ResultT], None]) -> None:
        """Have ``work`` done and its result given to ``done`` in the loop; returns at once.

        Where the system refuses a thread, the work is done before this returns: a loop that
        waits is better than a run that ends for want of one. The next job asks again.
        """
        job = _Job(work, done)
        if self._has_thread or self._start():
            self._jobs.put(job)  # type: ignore[arg-type]  # each job fits itself
        else:
            self._perform(job)

    def _start(self) -> bool:
        self._loop = asyncio.get_running_loop()
        # A disk that hangs for ever must not keep the process from ending.
        thread = threading.Thread(target=self._work, name="run-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._has_thread = True
        return True

    def close(self) -> None:
        """Let the thread end once it is idle."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._perform(job)

    def _perform(self, job: _Job[ResultT]) -> None:
        try:
            result = job.work()
        except BaseException as error:  # noqa: BLE001 - the thread's boundary; the loop ends
            self._tell(self._failed, error)
        else:
            self._tell(job.done, result)

    def _tell(self, told: Callable[[ResultT], None], what: ResultT) -> None:
        assert self._loop is not None, "the thread was started from a loop"
        try:
            self._loop.call_soon_threadsafe(told, what)
        except RuntimeError:
            # The loop is closed: the process ends and asks for no result.
            return
