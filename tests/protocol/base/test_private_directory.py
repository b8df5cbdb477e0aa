"""The order in which a private directory comes to be, and what stops it (S17, I8)."""

import errno
from typing import Final

import pytest

from protocol.base.private_directory import open_private_directory
from protocol.errors import ErrorCode, PrpError
from tests.simulator.choices import Tape
from tests.simulator.disk import ROOT, Directory, Disk, File, Symlink
from tests.simulator.disk_faults import Call, Die, Died, Fault, Refuse
from tests.simulator.disk_process import DiskProcess

PATH = "/run/state"
OURS = frozenset(("state.json", "state.lock"))


def striking(disk: Disk, name: str, subject: str, number: int) -> DiskProcess:
    def nemesis(call: Call) -> Fault | None:
        return Refuse(number) if (call.name, call.subject) == (name, subject) else None

    return DiskProcess(disk, nemesis)


def opened(process: DiskProcess, path: str = PATH) -> int:
    return open_private_directory(process, path, OURS.__contains__)


def refusal(process: DiskProcess, path: str = PATH) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        opened(process, path)
    assert process.open_subjects == []
    return caught.value.code


def with_directory() -> Disk:
    disk = Disk()
    opened(DiskProcess(disk))
    return disk


def directory_of(disk: Disk, mode: int, *names: str) -> Directory:
    """Return the directory of a disk with this mode and these names in it."""
    number = disk.directory(disk.directory(ROOT).entries["run"]).entries["state"]
    directory = disk.directory(number)
    directory.mode = mode
    for name in names:
        directory.entries[name] = disk.add(File(0o600, disk.uid))
    return directory


def exists(disk: Disk, path: str) -> bool:
    try:
        DiskProcess(disk).lstat(path)
    except FileNotFoundError:
        return False
    return True


def test_each_directory_gets_a_durable_name_before_the_next_is_made() -> None:
    process = DiskProcess(Disk())

    opened(process)

    changes = [(c.name, c.subject) for c in process.calls if c.name in ("make_directory", "sync")]
    assert changes == [
        ("make_directory", "/run"),
        ("sync", "/"),
        ("make_directory", "/run/state"),
        ("sync", "/run"),
    ]


def test_name_of_an_existing_directory_is_made_durable_again() -> None:
    process = DiskProcess(with_directory())

    opened(process)

    assert [call.subject for call in process.calls if call.name == "sync"] == ["/run"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_existing_directory_is_accepted_when_its_parent_may_not_be_listed(number: int) -> None:
    process = striking(with_directory(), "open_directory", "/run", number)

    opened(process)

    assert process.open_subjects == [PATH]


def test_existing_directory_is_refused_when_its_parent_cannot_be_read() -> None:
    process = striking(with_directory(), "open_directory", "/run", errno.EIO)

    assert refusal(process) is ErrorCode.STORAGE_UNAVAILABLE


def test_new_directory_is_undone_when_its_parent_may_not_be_listed() -> None:
    process = striking(disk := Disk(), "open_directory", "/run", errno.EACCES)

    assert refusal(process) is ErrorCode.STATE_UNSAFE
    assert (exists(disk, "/run"), exists(disk, PATH)) == (True, False)


def test_new_directory_is_undone_when_its_name_cannot_be_made_durable() -> None:
    process = striking(disk := Disk(), "sync", "/run", errno.EIO)

    assert refusal(process) is ErrorCode.STORAGE_SYNC_FAILED
    assert not exists(disk, PATH)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, ErrorCode.STATE_UNSAFE),
        (errno.ENAMETOOLONG, ErrorCode.STATE_UNSAFE),
        (errno.ENOSPC, ErrorCode.STORAGE_UNAVAILABLE),
        (errno.EROFS, ErrorCode.STORAGE_UNAVAILABLE),
        (errno.EMFILE, ErrorCode.STORAGE_UNAVAILABLE),
    ],
)
def test_directory_that_cannot_be_made_tells_a_bad_name_from_a_bad_disk(
    number: int, code: ErrorCode
) -> None:
    process = striking(Disk(), "make_directory", PATH, number)

    assert refusal(process) is code


@pytest.mark.parametrize("name", ["fstat", "list_directory", "change_mode"])
@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EPERM, ErrorCode.STATE_UNSAFE), (errno.EIO, ErrorCode.STORAGE_UNAVAILABLE)],
)
def test_directory_is_refused_when_its_mode_cannot_be_learned_or_set(
    name: str, number: int, code: ErrorCode
) -> None:
    directory_of(disk := with_directory(), 0o755)
    process = striking(disk, name, PATH, number)

    assert refusal(process) is code


def test_directory_is_refused_when_it_keeps_an_open_mode() -> None:
    class Stubborn(DiskProcess):
        def change_mode(self, descriptor: int, mode: int) -> None:
            return

    disk = with_directory()
    directory_of(disk, 0o750)

    assert refusal(Stubborn(disk)) is ErrorCode.STATE_UNSAFE


def test_directory_below_a_symlink_is_accepted_and_a_symlink_itself_is_not() -> None:
    disk = with_directory()
    disk.directory(ROOT).entries["link"] = disk.add(Symlink("/run"))
    disk.directory(ROOT).entries["loop"] = disk.add(Symlink("/loop"))

    opened(DiskProcess(disk), "/link/state")

    assert refusal(DiskProcess(disk), "/link") is ErrorCode.STATE_UNSAFE
    assert refusal(DiskProcess(disk), "/loop/state") is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize("mode", [0o755, 0o2700, 0o500])
@pytest.mark.parametrize("names", [(), ("state.json", "state.lock"), ("lost+found", "state.lock")])
def test_directory_is_made_private_when_all_in_it_is_ours(mode: int, names: tuple[str]) -> None:
    directory = directory_of(disk := with_directory(), mode, *names)

    opened(DiskProcess(disk))

    assert directory.mode == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o550])
@pytest.mark.parametrize("names", [("bin",), ("state.json", "letter.txt")])
def test_directory_keeps_its_mode_when_it_holds_what_is_not_ours(
    mode: int, names: tuple[str]
) -> None:
    directory = directory_of(disk := with_directory(), mode, *names)

    assert refusal(DiskProcess(disk)) is ErrorCode.STATE_UNSAFE
    assert directory.mode == mode


def test_root_of_the_machine_keeps_its_mode() -> None:
    disk = with_directory()
    disk.directory(ROOT).mode = 0o755

    assert refusal(DiskProcess(disk), "/") is ErrorCode.STATE_UNSAFE
    assert disk.directory(ROOT).mode == 0o755


def test_private_directory_is_accepted_whatever_else_it_holds() -> None:
    directory_of(disk := with_directory(), 0o700, "announcement")

    assert opened(DiskProcess(disk)) is not None


def test_new_directory_whose_name_may_not_be_durable_is_made_again() -> None:
    """A start died before the name was synchronised; the next one's sync of it failed."""
    disk = Disk()
    parent = disk.add(Directory(0o755, disk.uid))
    disk.directory(ROOT).entries["run"] = disk.directory(ROOT).stable["run"] = parent
    is_sync_of_name: Final = ("sync", "/run")

    def dies(call: Call) -> Fault | None:
        return Die(is_after=False) if (call.name, call.subject) == is_sync_of_name else None

    def fails(call: Call) -> Fault | None:
        return Refuse(errno.EIO) if (call.name, call.subject) == is_sync_of_name else None

    with pytest.raises(Died):
        opened(DiskProcess(disk, dies))
    code = refusal(DiskProcess(disk, fails, Tape((1,) * 20)))
    opened(DiskProcess(disk))
    disk.lose_power(Tape((1,) * 20))

    assert code is ErrorCode.STORAGE_SYNC_FAILED
    assert list(disk.directory(parent).entries) == ["state"]


def test_directory_of_another_mode_outlives_a_failed_sync_of_its_name() -> None:
    disk = with_directory()
    directory_of(disk, 0o755)

    refusal(striking(disk, "sync", "/run", errno.EIO))

    assert exists(disk, PATH)
