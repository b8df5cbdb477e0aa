"""The order in which a private directory comes to be, and what stops it (S17, I8)."""

import errno

import pytest

from protocol.base.private_directory import open_private_directory
from protocol.errors import ErrorCode, PrpError
from tests.simulator.disk import ROOT, Disk, Symlink
from tests.simulator.disk_process import Call, DiskProcess, Fault, Refuse

PATH = "/run/state"


def striking(disk: Disk, name: str, subject: str, number: int) -> DiskProcess:
    def nemesis(call: Call) -> Fault | None:
        return Refuse(number) if (call.name, call.subject) == (name, subject) else None

    return DiskProcess(disk, nemesis)


def refusal(process: DiskProcess, path: str = PATH) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        open_private_directory(process, path)
    assert process.open_subjects == []
    return caught.value.code


def with_directory() -> Disk:
    disk = Disk()
    open_private_directory(DiskProcess(disk), PATH)
    return disk


def exists(disk: Disk, path: str) -> bool:
    try:
        DiskProcess(disk).lstat(path)
    except FileNotFoundError:
        return False
    return True


def test_each_directory_gets_a_durable_name_before_the_next_is_made() -> None:
    process = DiskProcess(Disk())

    open_private_directory(process, PATH)

    changes = [(c.name, c.subject) for c in process.calls if c.name in ("make_directory", "sync")]
    assert changes == [
        ("make_directory", "/run"),
        ("sync", "/"),
        ("make_directory", "/run/state"),
        ("sync", "/run"),
    ]


def test_name_of_an_existing_directory_is_made_durable_again() -> None:
    process = DiskProcess(with_directory())

    open_private_directory(process, PATH)

    assert [call.subject for call in process.calls if call.name == "sync"] == ["/run"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_existing_directory_is_accepted_when_its_parent_may_not_be_listed(number: int) -> None:
    process = striking(with_directory(), "open_directory", "/run", number)

    open_private_directory(process, PATH)

    assert process.open_subjects == [PATH]


def test_existing_directory_is_refused_when_its_parent_cannot_be_read() -> None:
    process = striking(with_directory(), "open_directory", "/run", errno.EIO)

    assert refusal(process) is ErrorCode.STATE_UNSAFE


def test_new_directory_is_undone_when_its_parent_may_not_be_listed() -> None:
    process = striking(disk := Disk(), "open_directory", "/run", errno.EACCES)

    assert refusal(process) is ErrorCode.STATE_UNSAFE
    assert (exists(disk, "/run"), exists(disk, PATH)) == (True, False)


def test_new_directory_is_undone_when_its_name_cannot_be_made_durable() -> None:
    process = striking(disk := Disk(), "sync", "/run", errno.EIO)

    assert refusal(process) is ErrorCode.STORAGE_SYNC_FAILED
    assert not exists(disk, PATH)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_directory_is_refused_by_name_when_it_cannot_be_made(number: int) -> None:
    process = striking(Disk(), "make_directory", PATH, number)

    assert refusal(process) is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize("name", ["fstat", "change_mode"])
def test_directory_is_refused_when_its_mode_cannot_be_learned_or_set(name: str) -> None:
    disk = with_directory()
    disk.inodes[disk.directory(disk.directory(ROOT).entries["run"]).entries["state"]].mode = 0o755
    process = striking(disk, name, PATH, errno.EPERM)

    assert refusal(process) is ErrorCode.STATE_UNSAFE


def test_directory_is_refused_when_it_keeps_an_open_mode() -> None:
    class Stubborn(DiskProcess):
        def change_mode(self, descriptor: int, mode: int) -> None:
            return

    disk = with_directory()
    disk.inodes[disk.directory(disk.directory(ROOT).entries["run"]).entries["state"]].mode = 0o750

    assert refusal(Stubborn(disk)) is ErrorCode.STATE_UNSAFE


def test_directory_below_a_symlink_is_accepted_and_a_symlink_itself_is_not() -> None:
    disk = with_directory()
    disk.directory(ROOT).entries["link"] = disk.add(Symlink("/run"))
    disk.directory(ROOT).entries["loop"] = disk.add(Symlink("/loop"))

    open_private_directory(DiskProcess(disk), "/link/state")

    assert refusal(DiskProcess(disk), "/link") is ErrorCode.STATE_UNSAFE
    assert refusal(DiskProcess(disk), "/loop/state") is ErrorCode.STATE_UNSAFE
