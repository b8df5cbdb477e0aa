"""Each step of a replacement, failed one at a time: the code, and what is left (R4, S03-S10)."""

import errno
from collections.abc import Callable

import pytest

from protocol.base.atomic_file import AtomicFile, WriteFailed
from protocol.base.ports import FileStatus
from protocol.errors import ErrorCode, PrpError
from tests.crash.saves import SIZE_MAX, CountingEntropy, real_file
from tests.simulator.disk import Disk, File
from tests.simulator.disk_faults import Call, Fault, Refuse, Shorten
from tests.simulator.disk_process import DiskProcess

OLD, NEW = b'"old"', b'"new"'


class Switch:
    """A nemesis that does nothing until it is told what to do."""

    def __init__(self) -> None:
        self.strike: Callable[[Call], Fault | None] = lambda call: None

    def __call__(self, call: Call) -> Fault | None:
        return self.strike(call)


class Machine:
    """A process with the old content in its file."""

    def __init__(self) -> None:
        self.nemesis = Switch()
        self.disk = Disk()
        self.process = DiskProcess(self.disk, self.nemesis)
        self.process.make_directory("/var", 0o700)
        self.process.make_directory("/var/state", 0o700)
        self.file = real_file(self.process, CountingEntropy())
        self.file.open_directory()
        self.file.replace(OLD)
        self.begin = len(self.process.calls)

    def names(self) -> list[str]:
        watcher = DiskProcess(self.disk)
        return watcher.list_directory(watcher.open_directory("/var/state/run-1"), 100)

    def found(self) -> bytes | None:
        file: AtomicFile = real_file(DiskProcess(self.disk), CountingEntropy())
        file.open_directory()
        return file.read()

    def refusal(self, strike: Callable[[Call], Fault | None]) -> WriteFailed:
        """Return the failure of a save under a fault, which is over then."""
        self.nemesis.strike = strike
        with pytest.raises(WriteFailed) as caught:
            self.file.replace(NEW)
        self.nemesis.strike = lambda call: None
        return caught.value


@pytest.mark.parametrize("name", ["create_exclusive", "write", "sync", "close", "rename"])
def test_old_file_stands_and_a_new_attempt_succeeds_when_a_step_before_the_rename_fails(
    name: str,
) -> None:
    machine = Machine()

    failure = machine.refusal(lambda call: Refuse(errno.ENOSPC) if call.name == name else None)

    assert failure.code is ErrorCode.STORAGE_WRITE_FAILED
    assert (failure.errno, failure.renamed) == (errno.ENOSPC, False)
    assert machine.names() == ["state.json"]
    assert machine.found() == OLD
    machine.file.replace(NEW)
    assert machine.found() == NEW


def test_file_is_undecided_for_good_when_the_directory_sync_fails() -> None:
    machine = Machine()
    syncs = iter([None, Refuse(errno.EIO)])

    failure = machine.refusal(lambda call: next(syncs) if call.name == "sync" else None)
    calls = len(machine.process.calls)
    later = machine.refusal(lambda call: None)

    assert failure.code is later.code is ErrorCode.STORAGE_SYNC_FAILED
    assert (failure.errno, failure.renamed, later.renamed) == (errno.EIO, True, True)
    assert len(machine.process.calls) == calls
    assert machine.disk.violations == []


def test_file_is_undecided_when_a_failed_rename_took_the_sibling_away() -> None:
    class Betrayer(DiskProcess):
        def rename(self, directory: int, source: str, target: str) -> None:
            super().rename(directory, source, target)
            raise OSError(errno.EIO, "reported as failed")

    disk = Machine().disk
    file = real_file(Betrayer(disk), CountingEntropy())
    file.open_directory()

    for _ in range(2):
        with pytest.raises(WriteFailed) as caught:
            file.replace(NEW)
        assert caught.value.code is ErrorCode.STORAGE_SYNC_FAILED


def test_save_uses_five_calls_and_the_directory_sync() -> None:
    machine = Machine()

    machine.file.replace(NEW)

    names = [call.name for call in machine.process.calls[machine.begin :]]
    assert names == ["create_exclusive", "write", "sync", "close", "rename", "sync"]


def test_sibling_is_hidden_and_has_an_unpredictable_name() -> None:
    machine = Machine()

    machine.file.replace(NEW)

    created = machine.process.calls[machine.begin].subject
    assert created == f".state.json.{2:032x}.tmp"


def test_save_of_an_existing_sibling_name_touches_nothing() -> None:
    machine = Machine()
    directory = machine.process.open_directory("/var/state/run-1")
    taken = f".state.json.{2:032x}.tmp"
    machine.process.close(machine.process.create_exclusive(directory, taken, 0o600))

    failure = machine.refusal(lambda call: None)

    assert failure.errno == errno.EEXIST
    assert sorted(machine.names()) == [taken, "state.json"]


def test_save_succeeds_when_every_write_is_short() -> None:
    machine = Machine()
    machine.nemesis.strike = lambda call: Shorten(7) if call.name == "write" else None

    machine.file.replace(NEW)

    assert machine.found() == NEW


def test_save_fails_and_does_not_loop_when_the_disk_takes_nothing_more() -> None:
    machine = Machine()

    failure = machine.refusal(lambda call: Shorten(0) if call.name == "write" else None)

    assert (failure.errno, failure.renamed) == (errno.EIO, False)
    assert machine.names() == ["state.json"]


def test_load_is_bounded_when_the_file_grows_while_it_is_read() -> None:
    class Growing(DiskProcess):
        def fstat(self, descriptor: int) -> FileStatus:
            before = super().fstat(descriptor)
            for inode in self.disk.inodes.values():
                if isinstance(inode, File):
                    inode.data.extend(bytes(SIZE_MAX))
            return before

    process = Growing(Machine().disk)
    file = real_file(process, CountingEntropy())
    file.open_directory()
    before = len(process.calls)

    with pytest.raises(PrpError) as caught:
        file.read()

    assert caught.value.code is ErrorCode.STATE_CORRUPT
    assert sum(call.name == "read" for call in process.calls[before:]) < SIZE_MAX


def test_load_reads_no_byte_of_a_file_that_is_too_large() -> None:
    machine = Machine()
    for inode in machine.disk.inodes.values():
        if isinstance(inode, File):
            inode.data.extend(bytes(SIZE_MAX))

    with pytest.raises(PrpError) as caught:
        machine.file.read()

    assert caught.value.code is ErrorCode.STATE_CORRUPT
    assert "read" not in [call.name for call in machine.process.calls[machine.begin :]]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, ErrorCode.STATE_UNSAFE),
        (errno.ELOOP, ErrorCode.STATE_UNSAFE),
        (errno.EIO, ErrorCode.STORAGE_READ_FAILED),
        (errno.EMFILE, ErrorCode.STORAGE_READ_FAILED),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else "",
)
@pytest.mark.parametrize("name", ["open_read", "read"])
def test_load_tells_an_unsafe_file_from_a_failing_disk(
    number: int, code: ErrorCode, name: str
) -> None:
    machine = Machine()
    machine.nemesis.strike = lambda call: Refuse(number) if call.name == name else None

    with pytest.raises(PrpError) as caught:
        machine.file.read()

    assert caught.value.code is code


def test_closing_twice_lets_go_once() -> None:
    machine = Machine()

    machine.file.close()
    machine.file.close()

    assert machine.process.open_subjects == []
    assert [call.name for call in machine.process.calls[machine.begin :]] == ["close"]
