"""`controller-mock run` with real processes: outcomes, deaths, signals, and nothing left behind."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from controller_mock.console.live_run import status_without_runner
from tests.controller_mock.console.support import console, processes_with, report
from tests.controller_mock.served import eventually

pytestmark = pytest.mark.process

AGENT = """
import sys, time
print("begun", flush=True)
gate, mark = sys.argv[1], sys.argv[2]
while True:
    try:
        with open(gate) as file:
            sys.exit(int(file.read()))
    except FileNotFoundError:
        time.sleep(0.02)
"""


class Agent:
    """A program that runs until a file tells it with which status to end."""

    def __init__(self, directory: Path) -> None:
        self._gate = directory / "gate"
        self.mark = f"agent-{os.getpid()}-{directory.name}"
        self.argv = (sys.executable, "-c", AGENT, str(self._gate), self.mark)

    def end(self, status: int) -> None:
        waiting = self._gate.with_suffix(".new")
        waiting.write_text(str(status))
        waiting.rename(self._gate)


@pytest.mark.parametrize(("program_status", "status"), [(0, 0), (3, 1)])
async def test_run_exits_with_its_own_outcome_and_hands_the_output_on(
    tmp_path: Path, program_status: int, status: int
) -> None:
    program = ("sh", "-c", f"echo one; echo two; echo words >&2; exit {program_status}")
    async with console("run", "--data", str(tmp_path / "data"), "--", *program) as run:
        assert await run.status() == status

        assert run.out == b"one\ntwo\n"
        [summary] = await report(tmp_path / "data")
        assert summary["outcome"] == ("failed" if program_status else "succeeded")
        assert summary["integrityFault"] is None


async def test_program_gets_its_folder_and_only_the_variables_it_was_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANTED", "yes")
    monkeypatch.setenv("WITHHELD", "no")
    folder = tmp_path / "folder"
    folder.mkdir()
    program = ("sh", "-c", 'pwd; echo "$GRANTED-$WITHHELD-$PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"')
    arguments = ("--data", str(tmp_path / "data"), "--cwd", str(folder), "--env", "GRANTED")
    async with console("run", *arguments, "--", *program) as run:
        assert await run.status() == 0

        assert run.out.decode() == f"{folder}\nyes--\n"


async def test_program_that_does_not_exist_cancels_the_run_with_a_reason(tmp_path: Path) -> None:
    async with console("run", "--data", str(tmp_path / "data"), "--", "/no/such/program") as run:
        assert await run.status() == 2

        assert b"harness_start_failed: the program does not exist: /no/such/program\n" in run.err
        assert b" run        cancelled (run_cancelled)\n" in run.err
        assert b"Traceback" not in run.err
        [summary] = await report(tmp_path / "data")
        assert summary["outcome"] == "cancelled"
    async with console("inspect", "--data", str(tmp_path / "data"), summary["runId"]) as shown:
        assert await shown.status() == 0
        assert b"  turn.start       failed (harness_start_failed)  1 " in shown.out


async def test_killed_runner_is_started_again_and_an_allowed_turn_resumes(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    arguments = ("--data", str(tmp_path / "data"), "--resume-interrupted", "1")
    async with console("run", *arguments, "--", *agent.argv) as run:
        await run.until(lambda seen: seen.out.count(b"begun\n") == 1)

        os.kill(run.runner_pid(), signal.SIGKILL)
        await run.until(lambda seen: seen.out.count(b"begun\n") == 2)
        agent.end(0)
        assert await run.status() == 0

        assert b"1 interrupted: runner_restarted" in run.err
        [summary] = await report(tmp_path / "data")
        assert (summary["outcome"], summary["connections"]) == ("succeeded", 2)
        found = await report(tmp_path / "data", summary["runId"])
        assert found["eventsByType"]["run.terminal"] == 1
        assert found["eventsByType"]["turn.interrupted"] == 1
        assert processes_with(agent.mark) == []


async def test_interrupted_program_is_not_repeated_unless_allowed(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with console("run", "--data", str(tmp_path / "data"), "--", *agent.argv) as run:
        await run.until(lambda seen: b"begun\n" in seen.out)

        os.kill(run.runner_pid(), signal.SIGKILL)
        assert await run.status() == 3

        assert run.out == b"begun\n"
        assert b"--resume-interrupted" in run.err
        assert b"unknown too: status 3\n" in run.err
        [summary] = await report(tmp_path / "data")
        assert summary["outcome"] == "cancelled"
        assert processes_with(agent.mark) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signal_cancels_the_run(tmp_path: Path, number: signal.Signals) -> None:
    agent = Agent(tmp_path)
    async with console("run", "--data", str(tmp_path / "data"), "--", *agent.argv) as run:
        await run.until(lambda seen: b"begun\n" in seen.out)

        run.signal(number)
        assert await run.status() == 2

        [summary] = await report(tmp_path / "data")
        assert summary["outcome"] == "cancelled"
        assert processes_with(agent.mark) == []


async def test_third_signal_ends_even_a_runner_that_does_not_answer(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with console("run", "--data", str(tmp_path / "data"), "--", *agent.argv) as run:
        await run.until(lambda seen: b"begun\n" in seen.out)
        runner = run.runner_pid()
        os.kill(runner, signal.SIGSTOP)

        run.signal(signal.SIGINT)
        await run.until(lambda seen: b"cancelling" in seen.err)
        run.signal(signal.SIGINT)
        await run.until(lambda seen: b"stopping the runner" in seen.err)
        run.signal(signal.SIGINT)
        assert await run.status() == 3

        assert processes_with(agent.mark) == []


async def test_runner_and_program_end_by_themselves_when_the_controller_is_killed(
    tmp_path: Path,
) -> None:
    agent = Agent(tmp_path)
    arguments = ("--data", str(tmp_path / "data"), "--reconnect-grace-ms", "500")
    async with console("run", *arguments, "--", *agent.argv) as run:
        await run.until(lambda seen: b"begun\n" in seen.out)
        assert len(processes_with(agent.mark)) >= 2

        run.signal(signal.SIGKILL)
        await run.status()

        await eventually(lambda: processes_with(str(tmp_path)) == [])


async def test_reader_who_leaves_does_not_end_the_run(tmp_path: Path) -> None:
    script = '"$@" | :'
    run = (sys.executable, "-P", "-m", "controller_mock", "run", "--data", str(tmp_path / "data"))
    program = ("sh", "-c", "for n in 1 2 3; do echo $n; done")

    pipe = await asyncio.create_subprocess_exec("sh", "-c", script, "sh", *run, "--", *program)
    await pipe.wait()

    [summary] = await report(tmp_path / "data")
    assert summary["outcome"] == "succeeded"


async def test_second_controller_on_the_same_data_is_told_so(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with console("run", "--data", str(tmp_path / "data"), "--", *agent.argv) as run:
        await run.until(lambda seen: b"begun\n" in seen.out)

        async with console("run", "--data", str(tmp_path / "data"), "--", "true") as second:
            assert await second.status() == 73
        [summary] = await report(tmp_path / "data")
        agent.end(0)
        assert await run.status() == 0

        assert b"state_locked" in second.err
        assert summary["outcome"] is None, "inspect works while a controller runs"


async def test_runner_that_cannot_be_started_is_a_code_and_a_remedy(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path / "data"), "--runner", "/no/such/runner")
    async with console("run", *arguments, "--", "true") as run:
        assert await run.status() == 69

        assert b"runner_start_failed" in run.err
        assert b"check --runner" in run.err
        assert b"Traceback" not in run.err


async def test_runner_that_never_answers_is_given_up(tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.write_text("#!/bin/sh\nexit 69\n")
    runner.chmod(0o755)
    arguments = ("--data", str(tmp_path / "data"), "--runner", str(runner), "--restarts", "1")
    async with console("run", *arguments, "--", "true") as run:
        assert await run.status() == 69

        assert b"runner_restarts_exhausted" in run.err


@pytest.mark.parametrize("runner_status", [64, 65, 69, 70, 73, 74, 75, 76, 77])
def test_run_that_never_began_exits_as_its_runner_did(runner_status: int) -> None:
    assert status_without_runner(runner_status, turn_asked=False) == runner_status


@pytest.mark.parametrize("runner_status", [-9, 0, 1, 2, 3, 63, 127, 255])
def test_run_that_never_began_is_no_outcome_when_its_runner_was_none(runner_status: int) -> None:
    assert status_without_runner(runner_status, turn_asked=False) == 69


@pytest.mark.parametrize("runner_status", [-9, 0, 1, 69, 75])
def test_run_that_may_have_begun_is_unknown_without_a_runner(runner_status: int) -> None:
    assert status_without_runner(runner_status, turn_asked=True) == 3
