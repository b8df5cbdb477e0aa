"""The run's log beside the event loop: the recorder's steps as jobs of one thread.

It decides that a failure of the log is an answer, and that only a fault of ours is not. It
refuses to know records: the recorder writes them.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from protocol.base.ports import Clock
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import HarnessExited
from runnerd.core.run_fact import RunFact
from runnerd.core.verdict import Recorded, Verdict
from runnerd.harness.worker import Worker

if TYPE_CHECKING:
    from runnerd.harness.recorder import RunRecorder

Told = Callable[[PrpError | None], None]
"""Gets the fault of a step, None if it is recorded; called in the event loop."""


class Recording:
    """Every step returns at once and is answered in the event loop, in the order asked."""

    def __init__(self, make: "Callable[[], RunRecorder]", worker: Worker) -> None:
        """Prepare without loading or opening anything.

        Args:
            make: gives the recorder; called in the worker's thread, with the first step.
        """
        self._make = make
        self._worker = worker
        self._has_begun = False

    @cached_property
    def _recorder(self) -> "RunRecorder":
        try:
            return self._make()
        except (OSError, ImportError) as error:
            # What keeps a log is loaded with the first step; without a descriptor it cannot be.
            reason = f"the run's log cannot be kept: {error}"
            raise PrpError(ErrorCode.STORAGE_READ_FAILED, reason) from error

    def begin(self, order: StartHarness, told: Told) -> None:
        """Record that an attempt begins."""
        self._has_begun = True
        self._worker.do(lambda: _fault_of(lambda: self._recorder.begin(order)), told)

    def interrupt(self, reason: ErrorCode, told: Told) -> None:
        """Record that the attempt has stopped."""
        self._worker.do(lambda: _fault_of(lambda: self._recorder.interrupt(reason)), told)

    def note(self, facts: tuple[RunFact, ...], told: Told) -> None:
        """Record what became of calls and questions."""
        self._has_begun = True
        self._worker.do(lambda: _fault_of(lambda: self._recorder.note(facts)), told)

    def end(
        self,
        exited: HarnessExited,
        verdict: Verdict,
        facts: tuple[RunFact, ...],
        output_chars: int,
        told: Callable[[Recorded], None],
    ) -> None:
        """Record how the attempt ended."""
        self._worker.do(lambda: self._recorder.end(exited, verdict, facts, output_chars), told)

    def cancel(self, told: Callable[[Recorded | None], None]) -> None:
        """Record that the run will have no further attempt."""
        self._has_begun = True
        self._worker.do(lambda: self._recorder.cancel(), told)

    def close(self) -> None:
        """Let go of log and thread once what was asked is done."""
        if self._has_begun:
            self._worker.do(lambda: _fault_of(lambda: self._recorder.close()), lambda _: None)
        self._worker.close()


def recorder_in(folder: str, clock: Clock, identity: Identity) -> "RunRecorder":
    """Return the recorder of a runner's log, which lies in ``folder``; nothing is opened yet.

    A start that begins no turn does not wait for what this loads.
    """
    from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
    from runnerd.harness.recorder import RunRecorder
    from runnerd.runs.run_store import RunStore

    store = RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), folder)
    return RunRecorder(store, clock, identity)


def _fault_of(step: Callable[[], None]) -> PrpError | None:
    try:
        step()
    except PrpError as error:
        return error
    return None
