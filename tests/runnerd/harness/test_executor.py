"""Each order means something once, and only for the present generation."""

import ctypes
import os
import signal
from pathlib import Path

import pytest

from protocol.ids import Generation
from runnerd.core.actions import ForgetHarness
from runnerd.core.inputs import HarnessExited, HarnessOutput, HarnessSpawned, HarnessStartFailed
from runnerd.harness.executor import Executor
from tests.runnerd.harness.support import PATIENCE_S, bench, lives, shell

pytestmark = pytest.mark.process

WAITS = shell("echo ready; exec sleep 1000")


def is_subreaper() -> bool:
    value = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0) == 0
    return bool(value.value)


async def test_repeated_orders_change_nothing(tmp_path: Path) -> None:
    source = "echo run >>runs; printf 'one\\ntwo\\n'; exec sleep 1000"
    async with bench(tmp_path) as b:
        for _ in range(2):
            b.start(*shell(source))
        spawned = await b.take(HarnessSpawned)
        for _ in range(2):
            b.release()
        b.read(lines_max=1)
        b.read(lines_max=9)

        assert (await b.take(HarnessOutput)).lines == ("one",)
        assert await b.lines(1) == ["two"]
        for _ in range(2):
            b.stop()
        end = await b.take(HarnessExited)
        b.start(*shell(source))
        b.release()
        b.read()
        b.stop()

        assert end.generation == spawned.generation == Generation(1)
        assert b.answers.empty()
        assert b.marked() == []
        assert (tmp_path / "runs").read_text() == "run\n"


async def test_orders_for_another_generation_are_ignored(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with bench(tmp_path) as b:
        b.release(generation=2)
        b.stop(generation=2)
        await b.launch(*shell("echo ready; read x <gate; echo $x"), generation=3)
        assert await b.lines(1, generation=3) == ["ready"]

        for other in (2, 4):
            b.stop(grace_ms=0, generation=other)
            b.read(generation=other)
            b.executor.perform(ForgetHarness(Generation(other)))
        b.start(*WAITS, generation=2)
        b.executor.perform(ForgetHarness(Generation(3)))
        gate.write_text("went on\n")
        lines, end = await b.to_end(generation=3)

        assert (lines, end.exit.exit_code) == (["went on"], 0)


async def test_generations_run_one_after_the_other(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        first_lines, first = await b.run(*shell("echo $RUNNERD_TURN; exit 1"))
        b.executor.perform(ForgetHarness(Generation(1)))
        second_lines, second = await b.run(*shell("echo $RUNNERD_TURN"), generation=2)

        assert (first_lines, first.generation, first.exit.exit_code) == (["1"], 1, 1)
        assert (second_lines, second.generation, second.exit.exit_code) == (["2"], 2, 0)


async def test_start_is_refused_while_an_earlier_generation_lives(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        birth = await b.launch(*WAITS)

        b.start("true", generation=2)

        failed = await b.take(HarnessStartFailed)
        assert failed == HarnessStartFailed(Generation(2), "generation 1 has not ended")
        assert await b.lines(1) == ["ready"]
        assert lives(birth.pid)


async def test_failed_start_is_told_with_its_reason_and_the_next_may_succeed(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        b.start("no-such-program")
        failed = await b.take(HarnessStartFailed)
        b.read()
        b.stop()
        b.start("true")
        lines, end = await b.run("true", generation=2)

        assert failed.reason == "the program is not on the PATH: no-such-program"
        assert (lines, end.exit.exit_code) == ([], 0)
        assert b.answers.empty()


async def test_program_is_told_its_launch(tmp_path: Path) -> None:
    async with bench(tmp_path, {"PATH": "/usr/bin:/bin", "TZ": "UTC", "SECRET": "x"}) as b:
        lines, _ = await b.run("env")

        assert sorted(line for line in lines if not line.startswith("_=")) == [
            "PATH=/usr/bin:/bin",
            f"RUNNERD_LAUNCH={b.mark}.1",
            "RUNNERD_LINES_ACCEPTED=0",
            "RUNNERD_RUN_ID=run-1",
            "RUNNERD_TURN=1",
            "TZ=UTC",
        ]


async def test_close_ends_the_program_and_tells_nothing_more(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch(
            *shell("trap '' TERM; echo ready; setsid sleep 1000 & while :; do sleep 1; done")
        )
        await b.lines(1)
        b.read()

        assert await b.executor.close(50) == 0

        assert b.marked() == []
        assert b.answers.empty()
        b.start("true", generation=2)
        assert b.answers.empty()


async def test_close_before_the_release_ends_a_program_that_never_ran(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    async with bench(tmp_path) as b:
        b.start("touch", str(ran))
        await b.take(HarnessSpawned)

        assert await b.executor.close(int(PATIENCE_S * 1000)) == 0

    assert not ran.exists()


async def test_end_is_seen_when_whoever_started_us_had_ended_children_ignored(
    tmp_path: Path,
) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with bench(tmp_path) as b:
            _, end = await b.run(*shell("exit 5"))
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    assert end.exit.exit_code == 5


async def test_close_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGCHLD)
    async with bench(tmp_path) as b:
        await b.run("true")
        assert is_subreaper()

    assert not is_subreaper()
    assert signal.getsignal(signal.SIGCHLD) == before


async def test_close_of_an_executor_that_did_nothing_is_done_at_once() -> None:
    executor = Executor(lambda answer: None, run_id="run-1", environ={})

    assert await executor.close(0) == 0
