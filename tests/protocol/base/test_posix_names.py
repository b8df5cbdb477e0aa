"""Appending, second names and waited-for locks of the real disk."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem, PosixLocks
from protocol.errors import ErrorCode, PrpError

fs = PosixFilesystem()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "log").write_bytes(b"one")
    descriptor = fs.open_directory(str(tmp_path))
    yield descriptor
    os.close(descriptor)


def test_each_write_adds_to_the_end_of_an_appended_file(directory: int, tmp_path: Path) -> None:
    first, second = fs.open_append(directory, "log"), fs.open_append(directory, "log")

    fs.write(first, b"two")
    fs.write(second, b"three")
    fs.write(first, b"four")

    assert (tmp_path / "log").read_bytes() == b"onetwothreefour"
    assert not os.get_inheritable(first)
    fs.close(first)
    fs.close(second)


def test_append_opens_no_symlink_and_creates_nothing(directory: int, tmp_path: Path) -> None:
    (tmp_path / "sign").symlink_to("log")

    with pytest.raises(OSError, match="symbolic"):
        fs.open_append(directory, "sign")
    with pytest.raises(FileNotFoundError):
        fs.open_append(directory, "other")
    assert sorted(os.listdir(tmp_path)) == ["log", "sign"]


def test_second_name_is_the_same_file_and_replaces_nothing(directory: int) -> None:
    fs.link(directory, "log", "second")

    with pytest.raises(FileExistsError):
        fs.link(directory, "log", "second")
    one, other = fs.status_of(directory, "log"), fs.status_of(directory, "second")
    assert one == other
    assert one.link_count == 2


def test_second_name_in_another_directory_is_the_same_file(directory: int, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    below = fs.open_directory_in(directory, "below")

    fs.link_into(directory, "log", below, "second")

    with pytest.raises(FileExistsError):
        fs.link_into(directory, "log", below, "second")
    assert fs.status_of(directory, "log") == fs.status_of(below, "second")
    assert not os.get_inheritable(below)
    fs.close(below)


def test_directory_in_another_is_opened_through_no_symlink(directory: int, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to("/")

    with pytest.raises(NotADirectoryError):
        fs.open_directory_in(directory, "elsewhere")
    with pytest.raises(NotADirectoryError):
        fs.open_directory_in(directory, "log")
    with pytest.raises(FileNotFoundError):
        fs.open_directory_in(directory, "absent")


def test_link_tells_what_it_names_and_a_file_names_nothing(directory: int, tmp_path: Path) -> None:
    (tmp_path / "sign").symlink_to("../elsewhere")

    assert fs.read_link(str(tmp_path / "sign")) == "../elsewhere"
    with pytest.raises(OSError, match="Invalid"):
        fs.read_link(str(tmp_path / "log"))


def test_status_of_a_name_follows_no_symlink(directory: int, tmp_path: Path) -> None:
    (tmp_path / "sign").symlink_to("log")

    status = fs.status_of(directory, "sign")

    assert status.is_symlink
    assert status.identity != fs.status_of(directory, "log").identity


def test_replaced_file_has_another_identity(directory: int, tmp_path: Path) -> None:
    before = fs.status_of(directory, "log").identity
    (tmp_path / "new").write_bytes(b"one")

    fs.rename(directory, "new", "log")

    assert fs.status_of(directory, "log").identity != before


def test_lock_by_name_is_waited_for_no_longer_than_allowed(directory: int) -> None:
    locks = PosixLocks()
    held = locks.try_lock(directory, "lock")
    refused: list[ErrorCode] = []

    def is_free() -> bool:
        try:
            locks.try_lock(directory, "lock").release()
        except PrpError as error:
            refused.append(error.code)
            return False
        return True

    assert not locks.wait(is_free, 0)
    assert refused == [ErrorCode.STATE_LOCKED]
    held.release()
    assert locks.wait(is_free, 0)


def test_waiting_ends_when_the_answer_changes() -> None:
    answers = iter([False, False, True])

    assert PosixLocks().wait(lambda: next(answers), 60_000)


def test_processes_are_told_from_numbers_that_none_has() -> None:
    locks = PosixLocks()

    assert locks.process_exists(os.getpid())
    assert locks.process_exists(1)
    assert not locks.process_exists(2**31 - 1)
    assert locks.process_exists(2**80)
