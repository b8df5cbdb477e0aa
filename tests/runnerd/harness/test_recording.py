"""The executor with a run's log: nothing starts before it, and no end is told before it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation
from runnerd.core.actions import ReleaseHarness, StartHarness
from runnerd.core.inputs import HarnessExited, HarnessSpawned, HarnessStartFailed
from runnerd.core.verdict import Outcome, Recorded, Verdict
from runnerd.harness.executor import Executor
from runnerd.harness.recorder import RunRecorder
from runnerd.harness.recording import Recording
from runnerd.harness.worker import Worker
from tests.runnerd.harness.support import FIRST, PATIENCE_S, Bench
from tests.runnerd.harness.test_recorder import IDENTITY, Ticking, told
from tests.runnerd.runs.logs import store_in

DONE = Verdict(outcome=Outcome(turn_state="completed", run_state="succeeded", reason="done"))


class Gated(RunRecorder):
    """A recorder that begins when it is let, or not at all."""

    def __init__(self, folder: Path) -> None:
        super().__init__(store_in(folder), Ticking(), IDENTITY)
        self.may_begin = threading.Event()
        self.fault: PrpError | None = None

    def begin(self, order: StartHarness) -> None:
        assert self.may_begin.wait(PATIENCE_S)
        if self.fault is not None:
            raise self.fault
        super().begin(order)


class LoggedBench(Bench):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = folder / "runs"
        self.recorder = Gated(self.log)
        self.faults: list[BaseException] = []
        worker = Worker(self.faults.append)
        self.executor = Executor(
            self.answers.put_nowait,
            run_id="run-1",
            environ={"PATH": "/usr/bin:/bin"},
            recording=Recording(lambda: self.recorder, worker),
        )

    async def close(self) -> None:
        assert await asyncio.wait_for(self.executor.close(0), PATIENCE_S) == 0
        assert self.faults == []


async def with_log(folder: Path, test: Callable[[LoggedBench], Awaitable[None]]) -> None:
    bench = LoggedBench(folder)
    try:
        await test(bench)
    finally:
        bench.recorder.may_begin.set()
        await bench.close()


async def test_program_starts_after_its_beginning_is_recorded_and_takes_orders_given_before(
    tmp_path: Path,
) -> None:
    async def test(bench: LoggedBench) -> None:
        bench.start("sh", "-c", "echo one")
        bench.executor.perform(ReleaseHarness(FIRST))
        bench.read()
        early = bench.answers.qsize()
        bench.recorder.may_begin.set()

        await bench.take(HarnessSpawned)
        begun = told(bench.log)
        lines, end = await bench.to_end()

        assert early == 0
        assert begun == ["start", "ACCEPT", "START"]
        assert lines == ["one"]
        assert bench.executor.record(end, DONE, ())
        recorded = (await bench.take(HarnessExited)).recorded
        assert isinstance(recorded, Recorded)
        assert recorded.verdict == DONE
        assert recorded.snapshot is not None
        assert told(bench.log)[-1] == "finish"

    await with_log(tmp_path, test)


async def test_program_does_not_start_when_its_beginning_cannot_be_recorded(
    tmp_path: Path,
) -> None:
    async def test(bench: LoggedBench) -> None:
        bench.recorder.fault = PrpError(ErrorCode.RUN_STATE_LOCKED, "process 7 has it")
        bench.recorder.may_begin.set()

        bench.start("touch", str(tmp_path / "ran"))
        bench.executor.perform(ReleaseHarness(FIRST))

        failed = await bench.take(HarnessStartFailed)
        assert failed == HarnessStartFailed(Generation(1), "run_state_locked: process 7 has it")
        assert not (tmp_path / "ran").exists()

    await with_log(tmp_path, test)


async def test_attempt_whose_program_is_missing_is_paused_and_may_be_made_again(
    tmp_path: Path,
) -> None:
    async def test(bench: LoggedBench) -> None:
        bench.recorder.may_begin.set()

        bench.start(str(tmp_path / "absent"))

        await bench.take(HarnessStartFailed)
        assert told(bench.log) == ["start", "ACCEPT", "START", "PAUSE", "pause"]

    await with_log(tmp_path, test)


async def test_end_that_is_nobody_s_is_not_recorded(tmp_path: Path) -> None:
    async def test(bench: LoggedBench) -> None:
        bench.recorder.may_begin.set()
        _, end = await bench.run("true")

        assert not bench.executor.record(end, None, ())
        assert told(bench.log) == ["start", "ACCEPT", "START"]

    await with_log(tmp_path, test)


async def test_steps_are_recorded_in_order_when_the_system_refuses_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    told: list[str] = []
    is_over = asyncio.Event()
    worker = Worker(lambda _: None)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def have(name: str) -> None:
        def work() -> str:
            done.append(name)
            return name

        worker.do(work, told.append)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        have("first")
        have("second")
        while_refused = (list(done), list(told))
    have("third")
    worker.do(lambda: None, lambda _: is_over.set())
    await asyncio.wait_for(is_over.wait(), PATIENCE_S)
    worker.close()

    assert while_refused == (["first", "second"], [])
    assert done == told == ["first", "second", "third"]


async def test_attempt_is_refused_by_name_when_what_records_it_cannot_be_loaded(
    tmp_path: Path,
) -> None:
    makes: list[None] = []
    told: asyncio.Queue[PrpError | None] = asyncio.Queue()
    faults: list[BaseException] = []
    order = StartHarness(
        generation=FIRST,
        launch_mark="mark.1",
        argv=("true",),
        cwd="/",
        env_names=(),
        turn_ordinal=1,
        lines_accepted=0,
    )

    def make() -> RunRecorder:
        makes.append(None)
        if len(makes) == 1:
            raise OSError(24, "Too many open files")
        return RunRecorder(store_in(tmp_path / "runs"), Ticking(), IDENTITY)

    recording = Recording(make, Worker(faults.append))
    recording.begin(order, told.put_nowait)
    refused = await asyncio.wait_for(told.get(), PATIENCE_S)
    recording.begin(order, told.put_nowait)
    begun = await asyncio.wait_for(told.get(), PATIENCE_S)
    recording.close()

    assert refused is not None
    assert refused.code is ErrorCode.STORAGE_READ_FAILED
    assert "Too many open files" in refused.message
    assert (begun, faults) == (None, [])
