"""Room beyond the end of a log: a run ends truthfully on a full disk (R15)."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from protocol.limits import RESERVE_STEP_BYTES, RUN_LOG_RESERVE_BYTES
from runnerd.runs.journal import RunJournal
from runnerd.runs.log_room import is_an_end
from runnerd.runs.projection import ProjectionStatus, project_run
from runnerd.runs.records import Durability, OperationEvent, RecordKind
from runnerd.runs.run_store import RunStore
from tests.crash.saves import CountingEntropy
from tests.runnerd.runs.logs import RUN, record, store_in
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.run_worker import Attempt
from tests.simulator.disk import Disk, File
from tests.simulator.disk_process import DiskProcess

CRITICAL = Durability.CRITICAL
FILE = f"{RUN}.jsonl"
TAKEN_MAX = RUN_LOG_RESERVE_BYTES + RESERVE_STEP_BYTES


def simulated(disk: Disk) -> RunStore:
    return RunStore(DiskProcess(disk), CountingEntropy(), MemoryLocks(), "/runs")


def fill(disk: Disk) -> None:
    disk.capacity_bytes = None
    disk.capacity_bytes = sum(file.room for file in disk.inodes.values() if isinstance(file, File))


def taken(path: Path) -> int:
    """Return the bytes that a file takes from the disk beyond its length."""
    status = path.stat()
    return status.st_blocks * 512 - status.st_size


def test_fact_that_begins_something_is_refused_on_a_full_disk_and_nothing_is_lost() -> None:
    disk = Disk()
    run = simulated(disk).open_run(RUN)
    run.append(record(1), CRITICAL)
    fill(disk)

    # A step is used up before room is asked for.
    appended = 1
    with refused(ErrorCode.RUN_STATE_FAILED):
        while True:
            run.append(record(appended + 1, {"text": "x" * 30_000}), CRITICAL)
            appended += 1

    assert appended * 30_000 < TAKEN_MAX - RUN_LOG_RESERVE_BYTES + 60_000
    assert len(list(run.records())) == appended
    disk.capacity_bytes = None
    run.append(record(appended + 1), CRITICAL)
    assert len(list(run.records())) == appended + 1


def test_ends_have_room_however_often_the_run_is_opened_on_a_full_disk() -> None:
    disk = Disk()
    store = simulated(disk)
    store.open_run(RUN).append(record(1), CRITICAL)
    fill(disk)
    size = RUN_LOG_RESERVE_BYTES // 8

    # A process that failed with a fact lets go of the log and reads it again.
    for sequence in range(2, 8):
        run = simulated(disk).open_run(RUN)
        run.append(record(sequence, {"x": "x" * size}, kind=RecordKind.VERIFICATION), CRITICAL)
        run.close()

    assert len(simulated(disk).read(RUN).records) == 7


def test_room_is_asked_for_in_steps() -> None:
    process = DiskProcess(Disk())
    run = RunStore(process, CountingEntropy(), MemoryLocks(), "/runs").open_run(RUN)
    for sequence in range(1, 302):
        run.append(record(sequence, {"text": "x" * 1_000}), Durability.ORDINARY)

    asked = sum(call.name == "allocate_ahead" for call in process.calls)

    assert asked == 1 + 301 * 1_100 // RESERVE_STEP_BYTES


def test_room_is_given_back_when_the_log_is_closed_and_readers_never_see_it(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    run.append(record(1), CRITICAL)
    if taken(tmp_path / FILE) < RUN_LOG_RESERVE_BYTES:
        pytest.skip("this file system takes no room in advance")

    assert taken(tmp_path / FILE) <= TAKEN_MAX + 4096
    assert store.read(RUN).end.complete_bytes == (tmp_path / FILE).stat().st_size
    run.close()
    store.close()

    assert taken(tmp_path / FILE) < 4096
    assert store_in(tmp_path).read(RUN).end.is_torn is False


class NoRoomInAdvance(PosixFilesystem):
    """A file system that cannot do it, as some over a network."""

    def allocate_ahead(self, descriptor: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def test_nothing_is_refused_where_no_room_is_taken_in_advance(tmp_path: Path) -> None:
    store = store_in(tmp_path, fs=NoRoomInAdvance())
    run = store.open_run(RUN)

    for sequence in range(1, 20):
        run.append(record(sequence, {"text": "x" * 60_000}), CRITICAL)

    assert len(store.read(RUN).records) == 19
    store.close()


@pytest.mark.parametrize(
    ("kind", "payload", "ends"),
    [
        (RecordKind.VERIFICATION, {}, True),
        (RecordKind.PAUSE, {}, True),
        (RecordKind.FINISH, {}, True),
        (RecordKind.START, {}, False),
        (RecordKind.RESUME, {}, False),
        (RecordKind.CONTROL, {"event": "COMPLETE"}, False),
        *(
            (RecordKind.OPERATION, {"event": event.value}, event.value[:2] not in ("AC", "ST"))
            for event in OperationEvent
            if event is not OperationEvent.RESUME
        ),
        (RecordKind.OPERATION, {"event": "RESUME"}, False),
        (RecordKind.EVENT, {"event": {"type": "tool_call"}}, False),
        (RecordKind.EVENT, {"event": {"type": "effect_receipt", "status": "started"}}, False),
        (RecordKind.EVENT, {"event": {"type": "effect_receipt", "status": "committed"}}, True),
        (RecordKind.EVENT, {"event": {"type": "effect_receipt", "status": "unknown"}}, True),
        (RecordKind.EVENT, None, False),
    ],
)
def test_only_ends_use_the_room(kind: RecordKind, payload: JsonValue, ends: bool) -> None:
    assert is_an_end(record(2, kind=kind, payload=payload)) is ends


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("a file system is mounted only by root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def take_all_room(path: Path) -> None:
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass


def test_run_on_a_real_full_disk_is_verified_completed_and_finished(
    small_disk: Path, tmp_path: Path
) -> None:
    store = store_in(small_disk / "runs")
    run = store.open_run(RUN)
    attempt = Attempt(run, str(tmp_path / "ledger"))
    attempt.begin()
    take_all_room(small_disk / "filler")
    # More than the page that the file has begun.
    run.append(record(4, {"x": "x" * 100_000}, kind=RecordKind.VERIFICATION), CRITICAL)

    attempt.work(0)
    run.close()

    found = project_run(store.read(RUN).records)
    assert found.status is ProjectionStatus.FINISHED
    assert RunJournal(store.open_run(RUN)).status.is_terminal
    store.close()
