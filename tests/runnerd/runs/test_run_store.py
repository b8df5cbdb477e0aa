"""The folder of runs on a real disk: reading, adding, mending, and who may do it when."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import Durability, RecordKind
from runnerd.runs.run_log import LogFormat
from tests.runnerd.runs.logs import RUN, record, store_in

FILE = f"{RUN}.jsonl"
CRITICAL, ORDINARY = Durability.CRITICAL, Durability.ORDINARY


class Struck(PosixFilesystem):
    """A disk on which one call fails with one errno, from now on."""

    def __init__(self) -> None:
        self.failing = ""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._strike("write")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._strike("sync")
        super().sync(descriptor)

    def _strike(self, call: str) -> None:
        if call == self.failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def written(folder: Path, count: int = 2, new_format: LogFormat = LogFormat.CHAINED) -> bytes:
    store = store_in(folder, new_format=new_format)
    for sequence in range(1, count + 1):
        store.append(record(sequence), CRITICAL)
    store.close()
    return (folder / FILE).read_bytes()


def refusal(folder: Path, sequence: int, payload: str = "x") -> ErrorCode:
    store = store_in(folder)
    with pytest.raises(PrpError) as caught:
        store.append(record(sequence, payload), CRITICAL)
    store.close()
    return caught.value.code


def test_log_is_private_and_only_its_own_names_are_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    written(folder)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert sorted(os.listdir(folder)) == [f".{RUN}.lock", FILE]


def test_reading_creates_and_changes_nothing(tmp_path: Path) -> None:
    written(tmp_path / "runs")
    before = os.lstat(tmp_path / "runs" / FILE)
    (tmp_path / "runs" / f".{RUN}.lock").unlink()
    store, nowhere = store_in(tmp_path / "runs"), store_in(tmp_path / "nowhere")

    assert len(store.read(RUN).records) == 2
    assert store.read("other").records == ()
    assert nowhere.read(RUN).records == ()
    assert nowhere.list_runs() == []

    store.close()
    assert os.listdir(tmp_path) == ["runs"]
    assert os.listdir(tmp_path / "runs") == [FILE]
    assert os.lstat(tmp_path / "runs" / FILE).st_mtime_ns == before.st_mtime_ns


def test_runs_are_listed_by_their_logs_alone(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", ".a.lock", "a.jsonl.lock", "x y.jsonl", "c.json", "d"):
        (tmp_path / name).touch()

    assert store_in(tmp_path).list_runs() == ["a", "b"]


def test_folder_that_holds_other_things_and_is_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter.txt").touch()

    assert refusal(folder, 1) is ErrorCode.STATE_UNSAFE
    assert os.listdir(folder) == ["letter.txt"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@pytest.mark.parametrize("run_id", ["", "a/b", "..", "a.b", "a\n", "a\0", "ä"])
def test_run_id_that_is_no_plain_name_is_refused_everywhere(tmp_path: Path, run_id: str) -> None:
    store = store_in(tmp_path)

    for action in (
        lambda: store.read(run_id),
        lambda: store.open_run(run_id),
        lambda: store.append(record(1, run_id=run_id), CRITICAL),
        lambda: store.barrier(run_id, CRITICAL),
    ):
        with pytest.raises(PrpError) as caught:
            action()
        assert caught.value.code is ErrorCode.INVALID_RUN_ID
    assert os.listdir(tmp_path) == []


def test_equal_record_again_writes_nothing(tmp_path: Path) -> None:
    before = written(tmp_path)
    store = store_in(tmp_path)

    store.append(record(1), CRITICAL)
    store.append(record(2), ORDINARY)

    store.close()
    assert (tmp_path / FILE).read_bytes() == before


def test_record_with_another_content_or_number_is_a_conflict(tmp_path: Path) -> None:
    before = written(tmp_path)

    for sequence in (1, 2, 4, 0, -1):
        assert refusal(tmp_path, sequence) is ErrorCode.RUN_STATE_CONFLICT
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("log_format", list(LogFormat), ids=lambda kind: kind.value)
def test_existing_log_keeps_its_format(tmp_path: Path, log_format: LogFormat) -> None:
    before = written(tmp_path, new_format=log_format)
    [other] = [kind for kind in LogFormat if kind is not log_format]
    store = store_in(tmp_path, new_format=other)

    store.append(record(3), CRITICAL)

    log = store.read(RUN)
    store.close()
    assert log.end.log_format is log_format
    assert (tmp_path / FILE).read_bytes().startswith(before)


def test_torn_tail_is_cut_once_and_the_rest_keeps_its_bytes(tmp_path: Path) -> None:
    before = written(tmp_path, new_format=LogFormat.PLAIN)
    odd = before.replace(b'{"n":2}', b'{"n":1e400,"m":12345678901234567890}') + b"\n \r\n"
    (tmp_path / FILE).write_bytes(odd + b'{"version":1,"ru')
    store = store_in(tmp_path)

    first = store.read(RUN)
    inode = (tmp_path / FILE).stat().st_ino
    second = store.read(RUN)

    store.close()
    assert first.end.is_torn
    assert not second.end.is_torn
    assert (tmp_path / FILE).read_bytes() == odd
    assert (tmp_path / FILE).stat().st_ino == inode


def test_torn_tail_is_shown_and_kept_when_nothing_is_to_be_mended(tmp_path: Path) -> None:
    torn = written(tmp_path)[:-3]
    (tmp_path / FILE).write_bytes(torn)
    store = store_in(tmp_path)

    log = store.read(RUN, mends=False)
    scanned = list(store.scan(RUN, mends=False))

    store.close()
    assert (log.end.is_torn, len(log.records)) == (True, 1)
    assert scanned == list(log.records)
    assert (tmp_path / FILE).read_bytes() == torn


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "changed": lambda whole: whole.replace(b'"n":1', b'"n":7'),
    "first_lost": lambda whole: whole[whole.index(b"\n") + 1 :],
    "zeros": lambda whole: whole + b"\0\0\n",
    "not_text": lambda whole: b"\xff" + whole,
    "blank_line": lambda whole: whole.replace(b"\n", b"\n\n"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_log_is_refused_and_untouched_by_readers_and_writers(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    damaged = damage(written(tmp_path))
    (tmp_path / FILE).write_bytes(damaged)
    store = store_in(tmp_path)

    for action in (
        lambda: store.read(RUN),
        lambda: store.open_run(RUN),
        lambda: store.append(record(3), CRITICAL),
        lambda: store.barrier(RUN, CRITICAL),
    ):
        with pytest.raises(PrpError) as caught:
            action()
        assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT

    store.close()
    assert (tmp_path / FILE).read_bytes() == damaged
    assert sorted(os.listdir(tmp_path)) == [f".{RUN}.lock", FILE]


@pytest.mark.parametrize("kind", ["directory", "fifo", "symlink"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / FILE
    if kind == "directory":
        path.mkdir(mode=0o700)
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    else:
        path.symlink_to(tmp_path / "elsewhere")
    store = store_in(tmp_path)

    with pytest.raises(PrpError) as caught:
        store.read(RUN)

    assert caught.value.code is ErrorCode.RUN_STATE_FAILED
    assert refusal(tmp_path, 1) is ErrorCode.RUN_STATE_FAILED
    assert not (tmp_path / "elsewhere").exists()


def test_two_stores_add_to_one_log_in_turn(tmp_path: Path) -> None:
    one, other = store_in(tmp_path), store_in(tmp_path)

    for sequence in range(1, 9):
        (one if sequence % 2 else other).append(record(sequence), ORDINARY)

    assert [found.sequence for found in one.read(RUN).records] == list(range(1, 9))
    one.close()
    other.close()


@pytest.mark.parametrize(("call", "code"), [("write", "failed"), ("sync", "barrier_failed")])
def test_record_that_could_not_be_written_is_not_there_and_the_next_try_adds_it(
    tmp_path: Path, call: str, code: str
) -> None:
    fs = Struck()
    store = store_in(tmp_path, fs=fs)
    store.append(record(1), CRITICAL)
    run = store.open_run("other")
    run.close()

    fs.failing = call
    with pytest.raises(PrpError) as caught:
        store.append(record(2), CRITICAL)
    fs.failing = ""

    assert caught.value.code.value.endswith(code)
    store.append(record(2), CRITICAL)
    assert [found.sequence for found in store.read(RUN).records] == [1, 2]
    store.close()


def test_writer_notices_that_its_file_was_taken_away_and_never_starts_over(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    run.append(record(1), CRITICAL)
    (tmp_path / FILE).unlink()

    for sequence in (2, 2, 1):
        with pytest.raises(PrpError) as caught:
            run.append(record(sequence), CRITICAL)
        assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT

    run.close()
    store.close()
    assert not (tmp_path / FILE).exists()


def test_writer_notices_that_its_file_was_changed_by_someone_else(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    run.append(record(1), CRITICAL)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"\n")

    with pytest.raises(PrpError) as caught:
        run.append(record(2), CRITICAL)

    assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT
    run.close()
    store.close()


def test_record_of_another_run_is_refused_by_an_open_run(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run("other")

    with pytest.raises(PrpError) as caught:
        run.append(record(1), CRITICAL)

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT
    run.close()
    store.close()


def test_facts_of_a_log_are_known_when_it_is_opened(tmp_path: Path) -> None:
    written(tmp_path)
    store = store_in(tmp_path)
    store.append(record(3, kind=RecordKind.FINISH), CRITICAL)

    run = store.open_run(RUN)

    assert (run.facts.last_sequence, run.facts.is_finished) == (3, True)
    assert [found.sequence for found in run.records()] == [1, 2, 3]
    run.close()
    store.close()


def test_descriptors_are_given_back_by_every_refusal(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / FILE).write_bytes(b"{\n")
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        refusal(tmp_path, 3)
        store = store_in(tmp_path)
        with pytest.raises(PrpError):
            store.open_run(RUN)
        store.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_leftovers_of_dead_writers_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    written(tmp_path)
    foreign = {f".{RUN}.jsonl.tmp", f"{FILE}.77.abc.tmp", f".other.jsonl.{'0' * 32}.tmp"}
    for name in (*foreign, f".{FILE}.{'0' * 32}.tmp"):
        (tmp_path / name).touch()
    store = store_in(tmp_path)

    store.open_run(RUN).close()

    store.close()
    assert set(os.listdir(tmp_path)) == {FILE, f".{RUN}.lock", *foreign}


@pytest.mark.parametrize(
    ("durability", "code"),
    [
        (CRITICAL, ErrorCode.DURABILITY_BARRIER_FAILED),
        (ORDINARY, ErrorCode.RUN_STATE_FAILED),
    ],
)
def test_first_record_that_could_not_be_synchronised_leaves_no_file(
    tmp_path: Path, durability: Durability, code: ErrorCode
) -> None:
    fs = Struck()
    store = store_in(tmp_path, fs=fs)
    run = store.open_run(RUN)

    fs.failing = "sync"
    with pytest.raises(PrpError) as caught:
        run.append(record(1), durability)
    fs.failing = ""

    assert caught.value.code is code
    assert os.listdir(tmp_path) == [f".{RUN}.lock"]
    assert run.append(record(1), durability).achieved is durability
    run.close()
    store.close()


def test_closed_store_closes_its_runs_and_they_write_nowhere_else(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    run.append(record(1), CRITICAL)

    store.close()
    run.close()

    again = store_in(tmp_path)
    assert again.open_run(RUN).facts.last_sequence == 1
    with pytest.raises(PrpError) as caught:
        run.append(record(2), CRITICAL)
    assert caught.value.code is ErrorCode.RUN_STATE_FAILED
    again.close()
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 1
