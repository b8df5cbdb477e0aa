"""The simulated disk itself: each row of the table in faults.md 5.4."""

import errno

import pytest

from tests.simulator.choices import Choices, Tape, explore
from tests.simulator.disk import BLOCK_BYTES, ROOT, Disk, Mode
from tests.simulator.disk_faults import Die, Died, Fault, Lie, Refuse, Shorten, TurnReadOnly
from tests.simulator.disk_process import DiskProcess

both_modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def strike(name: str, fault: Fault) -> DiskProcess:
    """Return a process on a new disk whose calls of this name meet the fault."""
    return DiskProcess(Disk(), lambda call: fault if call.name == name else None)


def written(process: DiskProcess, name: str, data: bytes, *, is_synced: bool = True) -> int:
    root = process.open_directory("/")
    descriptor = process.create_exclusive(root, name, 0o600)
    process.write(descriptor, data)
    if is_synced:
        process.sync(descriptor)
    process.close(descriptor)
    return root


def content(disk: Disk, name: str) -> bytes | None:
    process = DiskProcess(disk)
    try:
        descriptor = process.open_read(process.open_directory("/"), name)
    except FileNotFoundError:
        return None
    return process.read(descriptor, 1 << 20)


def after_power_loss(disks: list[Disk], name: str) -> set[bytes | None]:
    """Return everything that a power loss may leave under ``name``."""
    unused = iter(disks)

    def run(choices: Choices) -> bytes | None:
        disk = next(unused)
        disk.lose_power(choices)
        return content(disk, name)

    return set(explore(run, exhaustive_max=len(disks), samples=0, seed=0))


def disks_with(
    mode: Mode, data: bytes, *, is_synced: bool, is_renamed: bool = False, is_kept: bool = False
) -> list[Disk]:
    """Return equal disks, one for each outcome to be tried."""
    disks: list[Disk] = []
    for _ in range(64):
        process = DiskProcess(disk := Disk(mode))
        root = written(process, "old" if is_renamed else "new", data, is_synced=is_synced)
        if is_renamed:
            process.rename(root, "old", "new")
        if is_kept:
            process.sync(root)
        disks.append(disk)
    return disks


def test_written_bytes_survive_when_only_the_process_dies() -> None:
    process = DiskProcess(disk := Disk())

    written(process, "new", b"abc", is_synced=False)

    assert content(disk, "new") == b"abc"


def test_unsynced_file_is_torn_at_block_edges_when_power_is_lost() -> None:
    data = b"x" * BLOCK_BYTES + b"y" * 10

    found = after_power_loss(disks_with(Mode.STRICT, data, is_synced=False, is_kept=True), "new")

    zeros = bytes(BLOCK_BYTES)
    assert found == {
        b"",
        zeros,
        b"x" * BLOCK_BYTES,
        zeros + bytes(10),
        zeros + b"y" * 10,
        b"x" * BLOCK_BYTES + bytes(10),
        data,
    }


def test_synced_file_is_whole_or_nameless_when_power_is_lost_in_strict_mode() -> None:
    disks = disks_with(Mode.STRICT, b"abc", is_synced=True)

    assert after_power_loss(disks, "new") == {None, b"abc"}


def test_synced_file_keeps_its_first_name_when_power_is_lost_in_ext4_like_mode() -> None:
    disks = disks_with(Mode.EXT4_LIKE, b"abc", is_synced=True)

    assert after_power_loss(disks, "new") == {b"abc"}


@both_modes
def test_rename_is_done_or_not_done_when_power_is_lost(mode: Mode) -> None:
    disks = disks_with(mode, b"abc", is_synced=True, is_renamed=True)

    assert after_power_loss(disks, "new") == {None, b"abc"}


@both_modes
def test_rename_is_kept_when_the_directory_was_synced(mode: Mode) -> None:
    disks = disks_with(mode, b"abc", is_synced=True, is_renamed=True, is_kept=True)

    assert after_power_loss(disks, "new") == {b"abc"}
    assert after_power_loss(disks, "old") == {None}


@both_modes
def test_removed_name_may_come_back_when_power_is_lost(mode: Mode) -> None:
    def run(choices: Choices) -> bytes | None:
        process = DiskProcess(disk := Disk(mode))
        root = written(process, "new", b"abc")
        process.sync(root)
        process.unlink(root, "new")
        disk.lose_power(choices)
        return content(disk, "new")

    assert set(explore(run, exhaustive_max=8, samples=0, seed=0)) == {None, b"abc"}


def test_later_operation_may_be_kept_without_an_earlier_one_in_strict_mode_only() -> None:
    def run_in(mode: Mode) -> set[tuple[bool, bool]]:
        def run(choices: Choices) -> tuple[bool, bool]:
            process = DiskProcess(disk := Disk(mode))
            written(process, "first", b"1", is_synced=False)
            written(process, "second", b"2", is_synced=False)
            disk.lose_power(choices)
            return content(disk, "first") is not None, content(disk, "second") is not None

        return set(explore(run, exhaustive_max=64, samples=0, seed=0))

    assert (False, True) in run_in(Mode.STRICT)
    assert run_in(Mode.EXT4_LIKE) == {(False, False), (True, False), (True, True)}


def test_second_sync_reports_success_and_keeps_nothing_when_the_first_one_failed() -> None:
    nemesis = iter([Refuse(errno.EIO), None, None])
    process = DiskProcess(
        disk := Disk(),
        lambda call: next(nemesis) if call.name == "sync" else None,
        Tape((1, 0)),
    )
    root = process.open_directory("/")
    descriptor = process.create_exclusive(root, "new", 0o600)
    process.write(descriptor, b"abc")

    with pytest.raises(OSError, match="Input/output"):
        process.sync(descriptor)
    process.sync(descriptor)
    process.sync(root)
    seen_before = content(disk, "new")
    disk.lose_power(Tape())

    assert disk.violations == ["I7 new synchronised again after a failure"]
    assert seen_before == b"abc"
    assert content(disk, "new") == b""


def test_sync_keeps_nothing_when_it_lies() -> None:
    process = strike("sync", Lie())
    root = written(process, "new", b"abc")
    process.sync(root)
    disk = process.disk

    disk.lose_power(Tape((1,)))

    assert content(disk, "new") is None


def test_write_does_less_than_asked_when_shortened() -> None:
    process = strike("write", Shorten(2))

    written(process, "new", b"abc")

    assert content(process.disk, "new") == b"ab"


def test_every_change_fails_and_reading_works_when_the_disk_turns_read_only() -> None:
    process = strike("rename", TurnReadOnly())
    root = written(process, "new", b"abc")

    with pytest.raises(OSError, match="Read-only"):
        process.rename(root, "new", "other")
    with pytest.raises(OSError, match="Read-only"):
        process.unlink(root, "new")

    assert content(process.disk, "new") == b"abc"


@pytest.mark.parametrize(("is_after", "found"), [(False, None), (True, b"")])
def test_dead_process_changes_nothing_more(is_after: bool, found: bytes | None) -> None:
    process = strike("create_exclusive", Die(is_after=is_after))
    root = process.open_directory("/")

    with pytest.raises(Died):
        process.create_exclusive(root, "new", 0o600)
    with pytest.raises(Died):
        process.unlink(root, "new")

    assert content(process.disk, "new") == found


def test_replaced_inode_is_forgotten_once_no_power_loss_can_bring_it_back() -> None:
    process = DiskProcess(disk := Disk())
    for number in range(3):
        root = written(process, f"temp{number}", b"abc")
        process.rename(root, f"temp{number}", "new")
        process.sync(root)

    assert len(disk.inodes) == 2


def test_status_tells_kind_owner_mode_and_links() -> None:
    process = DiskProcess(disk := Disk(uid=7))
    written(process, "new", b"abc")
    disk.directory(ROOT).entries["second"] = disk.directory(ROOT).entries["new"]

    status = process.lstat("/new")

    assert (status.is_regular, status.is_directory, status.is_symlink) == (True, False, False)
    assert (status.mode, status.owner_uid, status.link_count, status.size_bytes) == (0o600, 7, 2, 3)


def test_tape_walks_every_outcome_once() -> None:
    def run(choices: Choices) -> tuple[int, ...]:
        first = choices.choose("first", 2)
        return (first, choices.choose("second", 3)) if first else (first,)

    assert list(explore(run, exhaustive_max=9, samples=9, seed=0)) == [(0,), (1, 0), (1, 1), (1, 2)]


def test_samples_repeat_when_there_are_too_many_outcomes() -> None:
    def run(choices: Choices) -> tuple[int, ...]:
        return tuple(choices.choose("draw", 10) for _ in range(4))

    first = list(explore(run, exhaustive_max=2, samples=3, seed=5))

    assert len(first) == 5
    assert first == list(explore(run, exhaustive_max=2, samples=3, seed=5))
    assert first[2:] != list(explore(run, exhaustive_max=2, samples=3, seed=6))[2:]


def test_appended_bytes_follow_what_others_wrote_and_are_torn_when_power_is_lost() -> None:
    disk = Disk()
    process = DiskProcess(disk)
    root = written(process, "log", b"one")
    process.sync(root)
    first, second = process.open_append(root, "log"), process.open_append(root, "log")
    process.write(first, b"two")
    process.write(second, b"three")
    process.write(first, b"four")

    seen = content(disk, "log")
    disk.lose_power(Tape((1,)))

    assert seen == b"onetwothreefour"
    assert content(disk, "log") == b"one"


def test_second_name_is_the_same_file_and_replaces_nothing() -> None:
    disk = Disk()
    process = DiskProcess(disk)
    root = written(process, "log", b"one")

    process.link(root, "log", "second")

    with pytest.raises(FileExistsError):
        process.link(root, "log", "second")
    assert process.status_of(root, "log") == process.status_of(root, "second")
    assert process.status_of(root, "log").link_count == 2
    with pytest.raises(FileNotFoundError):
        process.status_of(root, "third")
