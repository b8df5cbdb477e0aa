"""The executor: performs the core's orders to the harness, each at most once.

It decides which order still means something. It refuses to know how a provider works: that
is one file each, beside this one.
"""

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from typing import Final, assert_never

from msgspec import structs

from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation
from runnerd.core.actions import (
    ForgetHarness,
    ProviderKind,
    ReadHarness,
    RecordFacts,
    ReleaseHarness,
    StartHarness,
    StopHarness,
    TellHarness,
)
from runnerd.core.inputs import (
    CancelRecorded,
    FactsRecorded,
    HarnessExited,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    Input,
)
from runnerd.core.run_fact import RunFact
from runnerd.core.verdict import Recorded, Verdict
from runnerd.harness import command, jsonl
from runnerd.harness.descendants import Descendants
from runnerd.harness.driver import Driver, DriverStart, Feed
from runnerd.harness.environment import child_environment
from runnerd.harness.process import start_failed
from runnerd.harness.recording import Recording

HarnessAction = (
    StartHarness | ReleaseHarness | ReadHarness | TellHarness | StopHarness | ForgetHarness
)
"""Orders to one program."""

_PROVIDERS: Final[Mapping[ProviderKind, DriverStart]] = {
    command.KIND: command.start,
    jsonl.KIND: jsonl.start,
}


class Executor:
    """The one owner of the harness process; at most one lives at a time.

    It becomes the parent of every orphan below this process and waits for all of them, so
    nothing else in this process may start children in a session of their own.
    """

    _recording: Recording | None = None

    def __init__(
        self,
        feed: Feed,
        *,
        run_id: str,
        environ: Mapping[str, str],
        recording: Recording | None = None,
    ) -> None:
        """Prepare without starting anything.

        Args:
            feed: takes the answers; called in the event loop, also from within `perform`.
            environ: the environment of which the program may see the allowed part.
            recording: of the run's log; nothing is started before it has the beginning.
        """
        self._recording = recording
        self._waiting: list[HarnessAction] | None = None
        """Orders for a program whose beginning is being recorded; None if none is."""
        self._output_chars = 0
        self._answer = feed
        self._run_id = run_id
        self._environ = environ
        self._descendants = Descendants()
        self._driver: Driver | None = None
        self._newest = Generation(0)
        self._adopts = False
        self._is_closed = False

    def perform(self, action: HarnessAction) -> None:
        """Begin to carry out an order; what comes of it is fed as inputs.

        A repeated order changes nothing, and one for a generation that is not the present
        one is ignored. Must be called in the event loop's thread.
        """
        if self._is_closed:
            return
        if isinstance(action, StartHarness):
            self._start(action)
            return
        driver = self._driver
        if action.generation != self._newest:
            return
        if self._waiting is not None:
            self._waiting.append(action)
            return
        if driver is None:
            return
        match action:
            case ReleaseHarness():
                driver.release()
            case ReadHarness():
                driver.read(action.lines_max, action.bytes_max)
            case TellHarness():
                driver.tell(action.number, action.line)
            case StopHarness():
                driver.stop(action.intent, action.grace_ms)
            case ForgetHarness():
                if driver.is_over:
                    self._driver = None
            case _:
                assert_never(action)

    async def close(self, grace_ms: int) -> int:
        """End whatever lives, feeding nothing more; returns how many processes are left.

        Args:
            grace_ms: between TERM and KILL.
        """
        self._is_closed = True
        survivors = 0
        if self._driver is not None:
            self._driver.stop("authority", grace_ms)
            survivors = await self._driver.tree_ended()
            self._driver.let_go()
            self._driver = None
        self._stop_adopting()
        if self._recording is not None:
            self._recording.close()
        return survivors

    def _start(self, order: StartHarness) -> None:
        if order.generation <= self._newest:
            return
        if self._driver is not None and not self._driver.is_over:
            reason = f"generation {self._newest} has not ended"
            self._feed(HarnessStartFailed(order.generation, reason))
            return
        self._newest = order.generation
        self._driver = None
        if self._recording is None:
            self._launch(order)
            return
        self._waiting, self._output_chars = [], 0
        self._recording.begin(order, lambda fault: self._on_begun(order, fault))

    def note(self, order: RecordFacts) -> None:
        """Have the run's log say something; what comes of it is fed."""
        if self._is_closed:
            return
        if self._recording is None:
            self._feed(FactsRecorded(facts=order.facts))
            return
        self._recording.note(
            order.facts,
            lambda fault: self._feed(
                FactsRecorded(facts=order.facts, fault=None if fault is None else fault.code)
            ),
        )

    def record_cancel(self) -> None:
        """Have it recorded that the run was cancelled while nothing ran; what holds is fed."""
        if self._is_closed:
            return
        if self._recording is None:
            self._feed(CancelRecorded(None))
            return
        self._recording.cancel(lambda recorded: self._feed(CancelRecorded(recorded)))

    def record(
        self, exited: HarnessExited, verdict: Verdict | None, facts: tuple[RunFact, ...]
    ) -> bool:
        """Have an end recorded; it is fed again with what was recorded.

        Args:
            verdict: what the core makes of the end; None if it is nobody's.
            facts: what the log must say before that.

        Returns:
            False where no log is kept or nothing is to be recorded: then it holds as it is.
        """
        if self._recording is None or verdict is None or self._is_closed:
            return False
        self._recording.end(
            exited,
            verdict,
            facts,
            self._output_chars,
            lambda recorded: self._tell_end(exited, recorded),
        )
        return True

    def _tell_end(self, exited: HarnessExited, recorded: Recorded) -> None:
        self._feed(structs.replace(exited, recorded=recorded))

    def _on_begun(self, order: StartHarness, fault: PrpError | None) -> None:
        waiting, self._waiting = self._waiting or [], None
        if self._is_closed:
            return
        if fault is not None:
            self._feed(HarnessStartFailed(order.generation, str(fault)))
            return
        self._launch(order)
        for action in waiting:
            self.perform(action)

    def _launch(self, order: StartHarness) -> None:
        environment = child_environment(order, self._run_id, self._environ)
        try:
            self._adopt()
            start = _PROVIDERS[order.kind]
            driver = start(order, environment, self._descendants, self._hear)
        except PrpError as error:
            self._tell_failure(HarnessStartFailed(order.generation, error.message))
        else:
            self._driver = driver
            self._feed(HarnessSpawned(order.generation, driver.birth))

    def _tell_failure(self, failed: HarnessStartFailed) -> None:
        if self._recording is None:
            self._feed(failed)
        else:
            self._recording.interrupt(ErrorCode.HARNESS_START_FAILED, lambda _: self._feed(failed))

    def _hear(self, answer: Input) -> None:
        if isinstance(answer, HarnessOutput):
            self._output_chars += sum(len(line) + 1 for line in answer.lines)
        self._feed(answer)

    def _feed(self, answer: Input) -> None:
        if not self._is_closed:
            self._answer(answer)

    def _adopt(self) -> None:
        if self._adopts:
            return
        try:
            self._descendants.adopt_orphans(adopt=True)
        except OSError as error:
            raise start_failed(f"orphans could not be adopted: {error}") from error
        self._adopts = True
        # Outside the main thread there are no signals: then orphans wait for the end to be reaped.
        with contextlib.suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._descendants.reap)

    def _stop_adopting(self) -> None:
        if self._adopts:
            self._adopts = False
            with contextlib.suppress(ValueError, RuntimeError):
                asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
            self._descendants.adopt_orphans(adopt=False)
