"""A restarted runner finds what its predecessor's harness left, ends it, and touches no other."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec import structs

from protocol.ids import ControllerSeq
from protocol.process_birth import ProcessBirth
from runnerd.core.inputs import OrphanSettled
from runnerd.core.state import Turn
from runnerd.harness.orphan import settle_orphan
from runnerd.harness.proc import boot_id, read_process
from tests.runnerd.harness.support import (
    FIRST,
    PATIENCE_S,
    lives,
    marked,
    wait_dead,
)

pytestmark = pytest.mark.process

# A process with an executor of its own, which the test kills like a runner.
PREDECESSOR = """
import asyncio, sys
from pathlib import Path
import msgspec
from runnerd.core.inputs import HarnessSpawned
from tests.runnerd.harness.support import Bench

async def main(mark, folder, does_release, *argv):
    bench = Bench(Path(folder))
    bench.mark = mark
    bench.start(*argv)
    spawned = await bench.take(HarnessSpawned)
    if does_release == "release":
        bench.release()
    print(msgspec.json.encode(spawned.birth).decode(), flush=True)
    while True:
        bench.read()
        print(*(await bench.answers.get()).lines, sep="\\n", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Predecessor:
    """A killed process and what it had recorded and seen of its harness."""

    def __init__(self, folder: Path, *argv: str, lines: int, does_release: bool = True) -> None:
        self.mark = uuid.uuid4().hex
        release = "release" if does_release else "hold"
        with subprocess.Popen(
            (sys.executable, "-c", PREDECESSOR, self.mark, str(folder), release, *argv),
            stdout=subprocess.PIPE,
        ) as popen:
            assert popen.stdout is not None
            self.birth = msgspec.json.decode(popen.stdout.readline(), type=ProcessBirth)
            self.pidfd = os.pidfd_open(self.birth.pid)
            self.lines = [popen.stdout.readline().decode().rstrip("\n") for _ in range(lines)]
            popen.kill()

    def settle(self, birth: ProcessBirth | None = None, grace_ms: int = 100) -> str:
        settled = settle_orphan(turn(birth or self.birth), f"{self.mark}.1", grace_ms)
        assert settled.generation == FIRST
        return settled.outcome

    def marked(self) -> list[int]:
        return marked(f"{self.mark}.1")


@contextlib.contextmanager
def predecessor(
    folder: Path, *argv: str, lines: int = 1, does_release: bool = True
) -> Generator[Predecessor]:
    made = Predecessor(folder, *argv, lines=lines, does_release=does_release)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(made.pidfd, signal.SIGKILL)
        os.close(made.pidfd)
        for pid in made.marked():
            os.kill(pid, signal.SIGKILL)


def turn(birth: ProcessBirth | None) -> Turn:
    return Turn(ordinal=1, generation=FIRST, controller_seq=ControllerSeq(1), birth=birth)


def birth_of(pid: int) -> ProcessBirth:
    process = read_process(pid, boot_id())
    assert process is not None
    return process.birth


def test_harness_of_a_killed_runner_is_ended_and_then_gone(tmp_path: Path) -> None:
    with predecessor(tmp_path, "sh", "-c", "echo $$; exec sleep 1000") as before:
        assert before.lines == [str(before.birth.pid)]
        assert lives(before.birth.pid)

        assert before.settle() == "ended"
        assert not lives(before.birth.pid)
        assert before.settle() == "gone"


def test_harness_that_ended_by_itself_is_gone(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with predecessor(tmp_path, "sh", "-c", "echo; read x <gate") as before:
        gate.write_text("go\n")
        wait_dead(before.pidfd)

        assert before.settle() == "gone"


@pytest.mark.parametrize("leader", ["lives", "dead"])
@pytest.mark.parametrize(
    "child",
    [
        "sh -c 'echo $$; exec sleep 1000' &",
        "setsid sh -c 'echo $$; exec sleep 1000' &",
        "(setsid sh -c 'echo $$; exec sleep 1000' &) &",
        "trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' &",
    ],
    ids=["background", "session", "double fork", "ignores TERM"],
)
def test_children_of_an_orphaned_harness_are_ended_too(
    tmp_path: Path, child: str, leader: Literal["lives", "dead"]
) -> None:
    with predecessor(tmp_path, "sh", "-c", f"{child} exec sleep 1000") as before:
        pid = int(before.lines[0])
        if leader == "dead":
            signal.pidfd_send_signal(before.pidfd, signal.SIGKILL)
            wait_dead(before.pidfd)
        assert lives(pid)

        assert before.settle() == "ended"
        assert not lives(pid)
        assert before.marked() == []
        assert before.settle() == "gone"


@pytest.mark.parametrize("escape", ["env -i", "env -i setsid"])
def test_children_without_the_mark_are_ended_while_the_leader_lives(
    tmp_path: Path, escape: str
) -> None:
    source = f"{escape} sh -c 'echo $$; exec sleep 1000' & wait"
    with predecessor(tmp_path, "sh", "-c", source) as before:
        pid = int(before.lines[0])

        assert before.settle() == "ended"
        assert not lives(pid)


def test_child_without_the_mark_is_ended_while_a_marked_one_shares_its_session(
    tmp_path: Path,
) -> None:
    source = "sleep 1000 & env -i sh -c 'echo $$; exec sleep 1000' & wait"
    with predecessor(tmp_path, "sh", "-c", source) as before:
        pid = int(before.lines[0])
        signal.pidfd_send_signal(before.pidfd, signal.SIGKILL)
        wait_dead(before.pidfd)

        assert before.settle() == "ended"
        assert not lives(pid)


def test_program_at_its_gate_never_runs_when_the_runner_is_killed(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with predecessor(tmp_path, "touch", str(ran), lines=0, does_release=False) as before:
        wait_dead(before.pidfd)

        assert not ran.exists()
        assert before.settle() == "gone"


def test_harness_whose_birth_was_not_recorded_is_found_by_its_mark(tmp_path: Path) -> None:
    with predecessor(tmp_path, "sh", "-c", "echo; exec sleep 1000") as before:
        settled = settle_orphan(turn(None), f"{before.mark}.1", 100)

        assert settled == OrphanSettled(FIRST, "ended")
        assert not lives(before.birth.pid)
        assert settle_orphan(turn(None), f"{before.mark}.1", 100).outcome == "gone"


def test_harness_of_another_boot_is_gone_and_nobody_is_signalled(tmp_path: Path) -> None:
    with predecessor(tmp_path, "sh", "-c", "echo; exec sleep 1000") as before:
        earlier = structs.replace(before.birth, boot_id="another-boot")

        assert before.settle(earlier) == "gone"
        assert lives(before.birth.pid)


def test_harness_of_another_launch_is_not_signalled(tmp_path: Path) -> None:
    with predecessor(tmp_path, "sh", "-c", "echo; exec sleep 1000") as other:
        assert settle_orphan(turn(None), f"{other.mark}.11", 100).outcome == "gone"
        assert settle_orphan(turn(None), other.mark, 100).outcome == "gone"
        assert lives(other.birth.pid)


def test_stranger_that_has_the_recorded_number_is_not_signalled() -> None:
    source = "sleep 1000 & echo; wait"
    with subprocess.Popen(
        ("sh", "-c", source), start_new_session=True, stdout=subprocess.PIPE
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"\n"
        present = birth_of(stranger.pid)
        recorded = structs.replace(present, start_ticks=present.start_ticks - 1)

        assert settle_orphan(turn(recorded), uuid.uuid4().hex, 100).outcome == "gone"

        assert stranger.poll() is None
        os.killpg(stranger.pid, signal.SIGUSR1)
        assert stranger.wait(PATIENCE_S) == -signal.SIGUSR1


def test_process_that_shows_nothing_but_the_session_is_reported_and_not_signalled() -> None:
    source = "env -i sh -c 'echo $$; exec sleep 1000' & read x"
    with subprocess.Popen(
        ("sh", "-c", source),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as leader:
        assert leader.stdout is not None
        pid = int(leader.stdout.readline())
        recorded = birth_of(leader.pid)
        leader.kill()
        leader.wait()
        pidfd = os.pidfd_open(pid)
        try:
            assert settle_orphan(turn(recorded), uuid.uuid4().hex, 100).outcome == "survived"
            assert lives(pid)
        finally:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            wait_dead(pidfd)
            os.close(pidfd)

        assert settle_orphan(turn(recorded), uuid.uuid4().hex, 100).outcome == "gone"


def test_settling_needs_no_event_loop() -> None:
    source = "import sys; import runnerd.harness.orphan; print('asyncio' in sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", source), capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
