"""However a program ends, nothing that it started is left, and the end is told truthfully."""

import os
import subprocess
from pathlib import Path

import pytest

from runnerd.core.inputs import HarnessExited, HarnessSpawned, ProcessExit
from tests.runnerd.harness.support import Bench, bench, ended, lives, python, shell, until

pytestmark = pytest.mark.process

# Each prints the number of a process that would outlive the program.
ESCAPES = {
    "background": "sleep 1000 & echo $!",
    "session": "setsid sh -c 'echo $$; exec sleep 1000' &",
    "double fork": "(sh -c 'echo $$; exec sleep 1000' &)",
    "cleared environment": "env -i setsid sh -c 'echo $$; exec sleep 1000' &",
    "ignores TERM": "trap '' TERM; sleep 1000 & echo $!",
    "stopped": "sleep 1000 & kill -STOP $!; echo $!",
}
OBEYS = """
import signal, sys
def obey(number, frame):
    print("bye")
    sys.exit(6)
signal.signal(signal.SIGTERM, obey)
print("ready", flush=True)
while True:
    signal.pause()
"""
HOPPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    while True:
        if os.fork():
            os._exit(0)
        os.setsid()
        open("hops", "a").write(".")
        time.sleep(0.0005)
print("ready", flush=True)
"""
GUARDS = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def guard(depth):
    while True:
        if os.fork() == 0:
            os.setsid()
            if depth:
                guard(depth - 1)
            signal.pause()
        os.wait()
        open("respawned", "a").write(".")
if os.fork() == 0:
    guard(3)
print("ready", flush=True)
"""
BOMB = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    for generation in range(7):
        if os.fork() == 0:
            os.setsid()
    signal.pause()
print("ready", flush=True)
"""


def child_of_our_session(*argv: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv)


def nobody_is_left(b: Bench) -> None:
    assert b.marked() == []
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("exit 0", ProcessExit(exit_code=0, success=True)),
        ("exit 3", ProcessExit(exit_code=3, success=False)),
        ("kill -9 $$", ProcessExit(success=False, signal=9)),
        ("kill -SEGV $$", ProcessExit(success=False, signal=11)),
        ("exec >&- 2>&- <&-; exit 1", ProcessExit(exit_code=1, success=False)),
    ],
)
async def test_end_is_told_as_it_was(tmp_path: Path, source: str, expected: ProcessExit) -> None:
    async with bench(tmp_path) as b:
        lines, end = await b.run(*shell(source))

        assert lines == []
        assert end == HarnessExited(generation=end.generation, exit=expected, logs=end.logs)
        nobody_is_left(b)


async def test_stop_ends_a_program_that_obeys_with_term(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch(*shell("echo ready; exec sleep 1000"))
        await b.lines(1)

        b.stop()

        assert (await b.take(HarnessExited)).exit == ProcessExit(success=False, signal=15)
        nobody_is_left(b)


async def test_stop_lets_a_program_end_itself_within_the_grace(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch(*python(OBEYS))
        await b.lines(1)

        b.stop()
        lines, end = await b.to_end()

        assert (lines, end.exit) == (["bye"], ProcessExit(exit_code=6, success=False))
        nobody_is_left(b)


async def test_stop_tells_a_program_only_once_to_end(tmp_path: Path) -> None:
    source = """
import signal, time
told = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append("told"))
print("ready", flush=True)
while not told:
    time.sleep(0.01)
time.sleep(0.1)  # long enough for many looks at the tree
print(*told, sep="\\n")
"""
    async with bench(tmp_path) as b:
        await b.launch(*python(source))
        await b.lines(1)

        b.stop()
        lines, end = await b.to_end()

        assert (lines, end.exit) == (["told"], ProcessExit(exit_code=0, success=True))


async def test_stop_tells_every_process_of_the_tree_to_end(tmp_path: Path) -> None:
    source = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen({python(OBEYS)!r}, restore_signals=False, start_new_session=True)
sys.exit(child.wait())
"""
    async with bench(tmp_path) as b:
        await b.launch(*python(source))
        await b.lines(1)

        b.stop()
        lines, end = await b.to_end()

        assert (lines, end.exit) == (["bye"], ProcessExit(exit_code=6, success=False))


async def test_stop_kills_a_program_that_ignores_term_after_the_grace(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch(*shell("trap '' TERM; echo ready; while :; do sleep 1000; done"))
        await b.lines(1)

        b.stop(grace_ms=50)

        assert (await b.take(HarnessExited)).exit == ProcessExit(success=False, signal=9)
        nobody_is_left(b)


async def test_shorter_grace_hastens_a_stop_and_a_longer_one_does_not_delay_it(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        await b.launch(*shell("trap '' TERM; echo ready; while :; do sleep 1000; done"))
        await b.lines(1)

        b.stop(grace_ms=3_600_000)
        b.stop(grace_ms=0)
        b.stop(grace_ms=3_600_000)

        assert (await b.take(HarnessExited)).exit == ProcessExit(success=False, signal=9)


async def test_stop_ends_a_program_that_is_blocked_on_its_output(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch("yes")
        await b.lines(1)

        b.stop()
        lines, end = await b.to_end()

        assert set(lines) == {"y"}
        assert end.exit == ProcessExit(success=False, signal=15)
        nobody_is_left(b)


async def test_stop_before_the_release_ends_a_program_that_never_ran(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    async with bench(tmp_path) as b:
        b.start("touch", str(ran))
        await b.take(HarnessSpawned)

        b.stop()
        b.release()

        assert (await b.take(HarnessExited)).exit.success is False
        assert not ran.exists()
        nobody_is_left(b)


@pytest.mark.parametrize("way", ["exit", "stop", "kill"])
@pytest.mark.parametrize("escape", ESCAPES)
async def test_nobody_is_left_when_a_child_tries_to_outlive_the_program(
    tmp_path: Path, escape: str, way: str
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    last = {"exit": "exit 7", "stop": "exec sleep 1000", "kill": "kill -9 $$"}[way]
    async with bench(tmp_path) as b:
        await b.launch(*shell(f"{ESCAPES[escape]}\n read x <gate; echo ready; {last}"))
        child = int((await b.lines(1))[0])
        assert lives(child)
        gate.write_text("go\n")
        assert await b.lines(1) == ["ready"]

        if way == "stop":
            b.stop(grace_ms=100)
        lines, end = await b.to_end()

        assert lines == []
        assert end.survivors == 0
        assert (end.exit.exit_code == 7) is (way == "exit")
        assert not lives(child)
        nobody_is_left(b)


@pytest.mark.parametrize(
    ("source", "trace"),
    [(HOPPER, "hops"), (GUARDS, None), (BOMB, None)],
    ids=["hop", "guard", "bomb"],
)
async def test_nobody_is_left_when_processes_replace_each_other(
    tmp_path: Path, source: str, trace: str | None
) -> None:
    async with bench(tmp_path) as b:
        await b.launch(*python(source))
        assert await b.lines(1) == ["ready"]
        if trace is not None:
            await until((tmp_path / trace).exists)

        b.stop(grace_ms=50)
        lines, end = await b.to_end()

        assert (lines, end.survivors) == ([], 0)
        nobody_is_left(b)


async def test_lines_of_a_child_arrive_when_it_outlives_the_program_and_holds_the_output(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    child = "trap 'echo last; exit' TERM; echo ready; : >gate; sleep 1000 & wait"
    async with bench(tmp_path) as b:
        lines, end = await b.run(*shell(f"({child}) & read x <gate; exit 0"))

        assert lines == ["ready", "last"]
        assert end.exit == ProcessExit(exit_code=0, success=True)
        nobody_is_left(b)


async def test_orphans_are_reaped_while_the_program_runs(tmp_path: Path) -> None:
    source = "for i in 1 2 3 4 5 6 7 8 9; do (true & ) ; done; echo ready; exec sleep 1000"
    async with bench(tmp_path) as b:
        birth = await b.launch(*shell(source))
        await b.lines(1)
        own = Path(f"/proc/self/task/{os.getpid()}/children")

        await until(lambda: own.read_text().split() == [str(birth.pid)])


async def test_child_of_our_own_session_is_neither_ended_nor_waited_for(tmp_path: Path) -> None:
    own = child_of_our_session("sleep", "1000")
    brief = child_of_our_session("sh", "-c", "exit 9")
    async with bench(tmp_path) as b:
        await ended(brief.pid)

        _, end = await b.run("true")

        assert end.survivors == 0
        assert own.poll() is None
        assert brief.wait() == 9
    own.kill()
    own.wait()
