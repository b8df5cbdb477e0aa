"""The system calls behind the ports, the kernel lock, the clocks (R9, R10, faults P06, P07)."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.base.posix_fs import (
    Lock,
    PosixFilesystem,
    SystemClock,
    SystemEntropy,
    lock_directory,
)
from protocol.errors import ErrorCode, PrpError

HOLD = """
import sys
from protocol.base.posix_fs import lock_directory
lock = lock_directory(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from protocol.base.posix_fs import lock_directory
from protocol.errors import PrpError
sys.stdin.read(1)
try:
    lock = lock_directory(sys.argv[1])
except PrpError as error:
    print(error.code.value, flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def start(code: str, directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture
def holder(directory: Path) -> "Iterator[subprocess.Popen[str]]":
    with start(HOLD, directory) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refusal(directory: Path) -> PrpError:
    with pytest.raises(PrpError) as caught:
        lock_directory(str(directory))
    return caught.value


def test_sync_reaches_the_kernel() -> None:
    reading, writing = os.pipe()

    # The kernel has nothing to synchronise in a pipe, and says so.
    with pytest.raises(OSError, match="Invalid argument"):
        PosixFilesystem().sync(writing)

    os.close(reading)
    os.close(writing)


def test_close_gives_the_descriptor_back(directory: Path) -> None:
    fs = PosixFilesystem()
    descriptor = fs.open_directory(str(directory))

    fs.close(descriptor)

    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.fstat(descriptor)


def test_file_is_created_only_where_no_name_is(directory: Path) -> None:
    fs = PosixFilesystem()
    (directory / "taken").write_bytes(b"")
    (directory / "link").symlink_to("nowhere")
    opened = fs.open_directory(str(directory))

    for name in ("taken", "link"):
        with pytest.raises(FileExistsError):
            fs.create_exclusive(opened, name, 0o600)
    fs.close(opened)

    assert not (directory / "nowhere").exists()


def test_only_a_directory_is_opened_as_one(directory: Path) -> None:
    fs = PosixFilesystem()
    (directory / "file").write_bytes(b"")
    (directory / "link").symlink_to(".")
    os.mkfifo(directory / "fifo")

    for name in ("file", "link", "fifo"):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            fs.open_directory(f"{directory}/{name}")


def test_names_are_listed_up_to_a_bound_again_and_again(directory: Path) -> None:
    fs = PosixFilesystem()
    for name in ("a", "b", "c"):
        (directory / name).touch()
    opened = fs.open_directory(str(directory))

    assert sorted(fs.list_directory(opened, 9)) == ["a", "b", "c"]
    assert len(fs.list_directory(opened, 2)) == 2
    assert fs.list_directory(opened, 0) == []
    fs.close(opened)


def test_only_an_empty_directory_is_removed(directory: Path) -> None:
    (directory / "full" / "empty").mkdir(parents=True)

    with pytest.raises(OSError, match="not empty"):
        PosixFilesystem().remove_directory(f"{directory}/full")
    PosixFilesystem().remove_directory(f"{directory}/full/empty")

    assert os.listdir(directory / "full") == []


def test_second_holder_is_refused_and_told_who_holds(
    directory: Path, holder: "subprocess.Popen[str]"
) -> None:
    error = refusal(directory)

    assert error.code is ErrorCode.STATE_LOCKED
    assert f"process {holder.pid}" in error.message


def test_lock_is_free_when_its_holder_was_killed(
    directory: Path, holder: "subprocess.Popen[str]"
) -> None:
    holder.kill()
    holder.wait()

    lock = lock_directory(str(directory))

    assert json.loads((directory / "runner.lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_exactly_one_of_many_starts_gets_the_lock(directory: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(start(TRY, directory)) for _ in range(8)]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("g")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes if process.stdout is not None]
        for process in processes:
            process.kill()

    assert sorted(answers) == ["held\n"] + ["state_locked\n"] * 7


def test_second_lock_in_one_process_is_refused(directory: Path) -> None:
    lock = lock_directory(str(directory))

    assert refusal(directory).code is ErrorCode.STATE_LOCKED

    lock.release()
    lock_directory(str(directory)).release()


def test_lock_file_is_private_and_names_this_process_by_its_birth(directory: Path) -> None:
    lock = lock_directory(str(directory))

    record = json.loads((directory / "runner.lock").read_bytes())
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    lock.release()

    assert stat.S_IMODE(os.stat(directory / "runner.lock").st_mode) == 0o600
    assert record == {
        "pid": os.getpid(),
        "startTicks": int(fields[19]),
        "bootId": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "host": os.uname().nodename,
    }


def test_longer_record_of_a_dead_holder_is_overwritten_whole(directory: Path) -> None:
    path = directory / "runner.lock"
    path.write_bytes(b'{"pid":1,"startTicks":' + b"9" * 200 + b"}\n")
    path.chmod(0o600)

    lock = lock_directory(str(directory))

    assert json.loads(path.read_bytes())["pid"] == os.getpid()
    lock.release()


@pytest.mark.parametrize("record", [b"", b"\0" * 300, b'{"pid":"x"}\n', b"\xff\n", b'{"pid":'])
def test_holder_without_a_readable_record_is_still_obeyed(directory: Path, record: bytes) -> None:
    lock = lock_directory(str(directory))
    (directory / "runner.lock").write_bytes(record)

    error = refusal(directory)
    lock.release()

    assert error.code is ErrorCode.STATE_LOCKED
    assert error.message == "the directory is in use by another process"


def test_lock_is_not_inherited_by_a_program_that_the_holder_starts(directory: Path) -> None:
    code = "import os; print(*(os.path.realpath(f'/proc/self/fd/{n}') for n in range(64)))"
    lock = lock_directory(str(directory))

    seen = subprocess.run(
        [sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=True
    )
    lock.release()

    assert "/proc" in seen.stdout
    assert "runner.lock" not in seen.stdout


def test_lock_file_stays_when_the_lock_is_released_twice(directory: Path) -> None:
    lock = lock_directory(str(directory))
    lock.release()
    lock.release()

    assert os.listdir(directory) == ["runner.lock"]


def test_lock_file_is_refused_when_it_is_a_symlink(directory: Path, tmp_path: Path) -> None:
    (directory / "runner.lock").symlink_to(tmp_path / "elsewhere")

    assert refusal(directory).code is ErrorCode.STATE_UNSAFE
    assert not (tmp_path / "elsewhere").exists()


def test_lock_file_is_refused_when_it_has_a_second_name(directory: Path) -> None:
    lock_directory(str(directory)).release()
    os.link(directory / "runner.lock", directory / "second")

    assert refusal(directory).code is ErrorCode.STATE_UNSAFE


def test_lock_file_is_refused_when_others_may_reach_it(directory: Path) -> None:
    lock_directory(str(directory)).release()
    (directory / "runner.lock").chmod(0o644)

    assert refusal(directory).code is ErrorCode.STATE_UNSAFE


def test_lock_file_is_refused_without_waiting_when_it_is_a_fifo(directory: Path) -> None:
    os.mkfifo(directory / "runner.lock", 0o600)

    assert refusal(directory).code is ErrorCode.STATE_UNSAFE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_lock_file_is_refused_when_it_is_of_another_user(directory: Path) -> None:
    lock_directory(str(directory)).release()
    os.chown(directory / "runner.lock", 12345, -1)

    assert refusal(directory).code is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize("name", ["nowhere", "a\0b"])
def test_lock_is_refused_when_there_is_no_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(PrpError) as caught:
        lock_directory(f"{tmp_path}/{name}")

    assert caught.value.code is ErrorCode.STATE_UNSAFE


def test_lock_tells_a_disk_that_takes_no_byte_from_an_unsafe_file(directory: Path) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)){TRY}"

    with start(limited, directory) as process:
        words, _ = process.communicate("x", timeout=60)

    assert words.strip() == "storage_unavailable"


def test_released_lock_leaves_no_descriptor_and_does_not_linger_in_a_child(directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    lock = lock_directory(str(directory))
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        # A child that has not executed a program yet shares every descriptor.
        os.read(reading, 1)
        os._exit(0)

    lock.release()
    lock_directory(str(directory)).release()
    os.write(writing, b"g")
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)

    assert len(os.listdir("/proc/self/fd")) == before


def test_refused_locks_leak_no_descriptor(directory: Path) -> None:
    lock: Lock = lock_directory(str(directory))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        refusal(directory)

    assert len(os.listdir("/proc/self/fd")) == before
    lock.release()


def test_clock_reads_whole_milliseconds_and_never_goes_back() -> None:
    clock = SystemClock()
    first, second = clock.now(), clock.now()

    # An hour is no bound on speed: it tells milliseconds from other units.
    assert abs(first.unix_ms - time.time() * 1000) < 3_600_000
    assert isinstance(first.unix_ms, int)
    assert isinstance(first.mono_ms, int)
    assert first.mono_ms <= second.mono_ms


def test_entropy_does_not_repeat() -> None:
    tokens = {SystemEntropy().token_bytes(16) for _ in range(100)}

    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}
