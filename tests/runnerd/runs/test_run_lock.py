"""One writer per run: kernel locks of real processes, and the original's lock files."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import Durability
from runnerd.runs.run_lock import foreign_lock_name, lock_file_name, lock_run
from tests.runnerd.runs.logs import RUN, record, store_in
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.simulator.disk import Disk
from tests.simulator.disk_process import DiskProcess

CRITICAL = Durability.CRITICAL
WRITER = """
import sys
from pathlib import Path
from protocol.errors import PrpError
from runnerd.runs.records import Durability
from tests.runnerd.runs.logs import record, store_in
sys.stdin.read(1)
try:
    run = store_in(Path(sys.argv[1])).open_run("run-a")
except PrpError as error:
    print(error.code.value, flush=True)
else:
    run.append(record(1, {"by": sys.argv[2]}), Durability.CRITICAL)
    print("wrote", flush=True)
sys.stdin.read()
"""


class Writers:
    """Processes that each try to write the first record of one run."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def start(self, name: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(self._folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("g")
    process.stdin.flush()


def answer(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    with ExitStack() as stack:
        yield Writers(tmp_path, stack)


def test_one_of_two_processes_wins_a_run_and_nothing_is_overwritten(
    writers: Writers, tmp_path: Path
) -> None:
    racing = [writers.start(str(number)) for number in range(2)]
    for process in racing:
        go(process)

    answers = [answer(process) for process in racing]

    assert sorted(answers) == ["run_state_locked", "wrote"]
    [found] = store_in(tmp_path).read(RUN).records
    assert found.payload == {"by": str(answers.index("wrote"))}


def test_run_is_free_when_its_writer_was_killed(writers: Writers, tmp_path: Path) -> None:
    process = writers.start("first")
    go(process)
    assert answer(process) == "wrote"
    process.kill()
    process.wait()

    run = store_in(tmp_path).open_run(RUN)

    assert run.facts.last_sequence == 1
    run.close()


def test_reader_waits_for_no_writer_and_touches_nothing_that_it_is_adding(
    writers: Writers, tmp_path: Path
) -> None:
    process = writers.start("first")
    go(process)
    assert answer(process) == "wrote"
    with (tmp_path / f"{RUN}.jsonl").open("ab") as file:
        file.write(b'{"version":1')
    before = (tmp_path / f"{RUN}.jsonl").read_bytes()

    readings = [len(store_in(tmp_path).read(RUN).records) for _ in range(3)]

    assert readings == [1, 1, 1]
    assert (tmp_path / f"{RUN}.jsonl").read_bytes() == before


def test_lock_file_stays_and_names_its_holder(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)

    with pytest.raises(PrpError) as caught:
        store_in(tmp_path).open_run(RUN)
    run.close()
    store.close()

    owner = json.loads((tmp_path / lock_file_name(RUN)).read_text())
    assert set(owner) == {"pid", "startTicks", "bootId", "host"}
    assert owner["pid"] == os.getpid()
    assert caught.value.code is ErrorCode.RUN_STATE_LOCKED
    assert str(os.getpid()) in caught.value.message


def test_name_of_a_living_process_in_a_lock_file_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / lock_file_name(RUN)
    store_in(tmp_path).open_run(RUN).close()
    # As after a kill, when another process got the number, or another host shares the folder.
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": os.getppid()}))

    run = store_in(tmp_path).open_run(RUN)

    assert json.loads(path.read_text())["pid"] == os.getpid()
    run.close()


def test_lock_of_one_run_leaves_the_others_alone(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    runs = [store.open_run(name) for name in ("a", "b")]

    for run in runs:
        run.append(record(1, run_id=run.run_id), CRITICAL)
        run.close()

    assert store.list_runs() == ["a", "b"]
    store.close()


def test_lock_file_that_others_may_reach_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.open_run(RUN).close()
    (tmp_path / lock_file_name(RUN)).chmod(0o644)

    with pytest.raises(PrpError) as caught:
        store.open_run(RUN)

    assert caught.value.code is ErrorCode.STATE_UNSAFE
    store.close()


class ForeignWorld:
    """A simulated folder in which the original left a lock file."""

    def __init__(self, content: bytes, living: frozenset[int] = frozenset()) -> None:
        self.process = DiskProcess(Disk())
        self.directory = self.process.open_directory("/")
        self.locks = MemoryLocks(living)
        descriptor = self.process.create_exclusive(self.directory, foreign_lock_name(RUN), 0o600)
        self.process.write(descriptor, content)
        self.process.close(descriptor)

    def refusal(self) -> str:
        with pytest.raises(PrpError) as caught:
            lock_run(self.process, self.locks, self.directory, RUN, 0)
        assert caught.value.code is ErrorCode.RUN_STATE_LOCKED
        assert self.locks.held == set()
        assert foreign_lock_name(RUN) in self.process.list_directory(self.directory, 9)
        return caught.value.message


def owner_record(**members: object) -> bytes:
    return json.dumps({"pid": 77, "createdAt": "2026-01-01", "nonce": "n", **members}).encode()


def test_foreign_lock_of_a_dead_process_is_reported_and_never_removed() -> None:
    message = ForeignWorld(owner_record()).refusal()

    assert "77" in message
    assert "remove the lock" in message


def test_foreign_lock_of_a_living_process_is_waited_for() -> None:
    world = ForeignWorld(owner_record(), living=frozenset({77}))

    assert "lives" in world.refusal()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b"{" * 2000,
        owner_record(pid=0),
        owner_record(pid=True),
        owner_record(pid="77"),
        owner_record(pid=1.5),
        owner_record(nonce=""),
        owner_record(nonce=5),
    ],
    ids=repr,
)
def test_foreign_lock_that_does_not_say_whose_it_is_is_refused_at_once(content: bytes) -> None:
    world = ForeignWorld(content, living=frozenset({0, 1, 77}))

    assert "does not say" in world.refusal()
