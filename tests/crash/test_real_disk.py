"""The atomic file on a real file system: privacy, leftovers, errors (faults S14, S17, S20)."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.base.atomic_file import AtomicFile, WriteFailed
from protocol.base.ports import Filesystem
from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LEFTOVER_NAMES_MAX
from protocol.reactions import REACTIONS, Reaction

pytestmark = pytest.mark.crash

BODY = b'{"a":1}'
SIZE_MAX = 4096
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="modes do not bind root")


class Place:
    """A state directory to be, and the files made for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "state.json"
        self._made: list[AtomicFile] = []

    def file(self, directory: str | None = None, fs: Filesystem | None = None) -> AtomicFile:
        file = AtomicFile(
            fs or PosixFilesystem(),
            SystemEntropy(),
            directory=directory or str(self.directory),
            name="state.json",
            schema="test.state.v1",
            size_max=SIZE_MAX,
        )
        self._made.append(file)
        return file

    def opened(self) -> AtomicFile:
        file = self.file()
        file.open_directory()
        return file

    def saved(self) -> AtomicFile:
        file = self.opened()
        file.replace(BODY)
        return file

    def close(self) -> None:
        for file in self._made:
            file.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "parent" / "state")
    yield place
    place.close()


def read_refusal(place: Place) -> ErrorCode:
    """Return the code of a refused load, having seen that it changed nothing."""
    before = sorted(os.listdir(place.directory)), os.lstat(place.path)
    with pytest.raises(PrpError) as caught:
        place.opened().read()
    after = sorted(os.listdir(place.directory)), os.lstat(place.path)
    assert after[0] == before[0]
    assert (after[1].st_ino, after[1].st_mtime_ns) == (before[1].st_ino, before[1].st_mtime_ns)
    return caught.value.code


def open_refusal(place: Place, directory: str | None = None) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        place.file(directory).open_directory()
    return caught.value.code


def test_saved_content_is_read_back_by_another_start(place: Place) -> None:
    place.saved()

    assert place.opened().recover() == BODY
    assert os.listdir(place.directory) == ["state.json"]


def test_read_gives_none_when_there_is_no_file(place: Place) -> None:
    assert place.opened().read() is None


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_directories_and_file_are_private_whatever_the_umask(place: Place, umask: int) -> None:
    before = os.umask(umask)
    try:
        place.saved()
    finally:
        os.umask(before)

    assert stat.S_IMODE(os.stat(place.directory.parent).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(place.directory).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(place.path).st_mode) == 0o600


def test_descriptors_are_not_inherited(place: Place) -> None:
    before = set(os.listdir("/proc/self/fd"))
    place.saved()

    opened = {int(name) for name in set(os.listdir("/proc/self/fd")) - before}
    inheritable = [number for number in opened if _is_open(number) and os.get_inheritable(number)]

    assert inheritable == []


def _is_open(number: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{number}")


def test_open_directory_is_tightened_when_it_is_ours(place: Place) -> None:
    place.directory.mkdir(parents=True)
    place.directory.chmod(0o2755)

    place.opened()

    assert stat.S_IMODE(os.stat(place.directory).st_mode) == 0o700


@pytest.mark.parametrize("tail", ["", "/", "/.", "//"])
def test_directory_is_refused_when_it_is_a_symlink(place: Place, tail: str) -> None:
    place.directory.mkdir(parents=True)
    link = place.directory.parent / "link"
    link.symlink_to(place.directory)

    assert open_refusal(place, f"{link}{tail}") is ErrorCode.STATE_UNSAFE
    assert os.listdir(place.directory) == []


def test_directory_is_refused_when_it_is_a_dangling_symlink(place: Place) -> None:
    place.directory.parent.mkdir()
    place.directory.symlink_to(place.directory.parent / "nowhere")

    assert open_refusal(place) is ErrorCode.STATE_UNSAFE
    assert os.listdir(place.directory.parent) == ["state"]


@pytest.mark.parametrize("tail", ["", "/below", "/below/it"])
def test_directory_is_refused_when_a_file_is_in_its_place(place: Place, tail: str) -> None:
    place.directory.parent.mkdir()
    place.directory.write_bytes(b"")

    assert open_refusal(place, f"{place.directory}{tail}") is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize("name", ["x" * 300, "a\ud800b", "a\0b"], ids=["long", "no_text", "nul"])
def test_directory_is_refused_when_its_name_is_impossible(place: Place, name: str) -> None:
    assert open_refusal(place, f"{place.directory}/{name}") is ErrorCode.STATE_UNSAFE


@needs_root
def test_directory_is_refused_when_it_is_of_another_user(place: Place) -> None:
    place.directory.mkdir(parents=True)
    os.chown(place.directory, 12345, -1)

    assert open_refusal(place) is ErrorCode.STATE_UNSAFE


@needs_user
def test_directory_is_refused_when_its_parent_may_not_be_written(place: Place) -> None:
    place.directory.parent.mkdir(mode=0o500)

    assert open_refusal(place) is ErrorCode.STATE_UNSAFE


def test_closing_twice_leaves_a_descriptor_of_others_alone(place: Place) -> None:
    file = place.opened()
    file.close()
    other = os.open(place.directory, os.O_RDONLY)

    file.close()

    assert os.fstat(other).st_ino == place.directory.stat().st_ino
    os.close(other)


def test_two_starts_may_create_the_directory_at_once(place: Place) -> None:
    class Late(PosixFilesystem):
        def make_directory(self, path: str, mode: int) -> None:
            super().make_directory(path, mode)
            super().make_directory(path, mode)

    file = place.file(fs=Late())
    file.open_directory()
    file.replace(BODY)

    assert place.opened().read() == BODY


def test_writes_stay_in_the_opened_directory_when_it_is_swapped(place: Place) -> None:
    file = place.saved()
    moved = place.directory.parent / "moved"
    place.directory.rename(moved)
    place.directory.mkdir(mode=0o700)

    file.replace(b'{"a":2}')

    assert os.listdir(place.directory) == []
    assert b'"content":{"a":2}}' in (moved / "state.json").read_bytes()


def test_file_is_refused_when_it_is_a_symlink(place: Place) -> None:
    place.saved()
    place.path.rename(place.directory / "real")
    place.path.symlink_to("real")

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


def test_file_is_refused_when_it_has_a_second_name(place: Place) -> None:
    place.saved()
    os.link(place.path, place.directory / "second")

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o601])
def test_file_is_refused_when_others_may_reach_it(place: Place, mode: int) -> None:
    place.saved()
    place.path.chmod(mode)

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


@needs_root
def test_file_is_refused_when_it_is_of_another_user(place: Place) -> None:
    place.saved()
    os.chown(place.path, 12345, -1)

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


def test_file_is_refused_without_waiting_when_it_is_a_fifo(place: Place) -> None:
    place.opened()
    os.mkfifo(place.path, 0o600)

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


def test_file_is_refused_when_it_is_a_directory(place: Place) -> None:
    place.opened()
    place.path.mkdir(mode=0o700)

    assert read_refusal(place) is ErrorCode.STATE_UNSAFE


@pytest.mark.parametrize(
    "data",
    [b"", bytes(64), b"{", b"x" * (SIZE_MAX + 1)],
    ids=["empty", "zeros", "cut", "too_large"],
)
def test_file_is_refused_and_untouched_when_it_is_damaged(place: Place, data: bytes) -> None:
    place.saved()
    place.path.write_bytes(data)

    assert read_refusal(place) is ErrorCode.STATE_CORRUPT
    assert place.path.read_bytes() == data


def test_save_is_refused_when_a_load_would_refuse_its_size(place: Place) -> None:
    file = place.saved()

    with pytest.raises(WriteFailed) as caught:
        file.replace(b'"' + b"x" * SIZE_MAX + b'"')

    assert (caught.value.code, caught.value.renamed) == (ErrorCode.STORAGE_WRITE_FAILED, False)
    assert file.read() == BODY


def test_largest_save_is_loaded(place: Place) -> None:
    file = place.saved()
    around = os.stat(place.path).st_size - len(BODY)
    largest = b'"' + b"x" * (SIZE_MAX - around - 2) + b'"'

    file.replace(largest)

    assert os.stat(place.path).st_size == SIZE_MAX
    assert place.opened().recover() == largest


def test_start_ends_with_an_exit_code_when_what_it_read_cannot_be_published(place: Place) -> None:
    place.saved()

    class Full(PosixFilesystem):
        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = place.file(fs=Full())
    file.open_directory()

    with pytest.raises(PrpError) as caught:
        file.recover()

    assert caught.value.code is ErrorCode.STORAGE_SYNC_FAILED
    assert REACTIONS[caught.value.code] is Reaction.EXIT
    assert place.opened().recover() == BODY


def test_save_fails_cleanly_when_a_directory_is_in_its_place(place: Place) -> None:
    file = place.opened()
    place.path.mkdir(mode=0o700)

    with pytest.raises(WriteFailed) as caught:
        file.replace(BODY)

    assert (caught.value.code, caught.value.renamed) == (ErrorCode.STORAGE_WRITE_FAILED, False)
    assert os.listdir(place.directory) == ["state.json"]


def test_thousands_of_leftovers_are_removed_and_foreign_names_stay(place: Place) -> None:
    file = place.saved()
    foreign = {
        ".state.json.tmp",
        f".state.json.{'0' * 31}.tmp",
        f".state.json.{'0' * 33}.tmp",
        f".state.json.{'A' * 32}.tmp",
        f".state.json.{'0' * 32}.tmp2",
        f".other.json.{'0' * 32}.tmp",
        f"state.json.{'0' * 32}.tmp",
    }
    for name in [*foreign, *(f".state.json.{number:032x}.tmp" for number in range(3000))]:
        (place.directory / name).touch()

    assert file.remove_leftovers() == 3000

    assert set(os.listdir(place.directory)) == {"state.json", *foreign}
    assert file.read() == BODY


def test_start_looks_at_a_bounded_number_of_names(place: Place) -> None:
    file = place.saved()
    for number in range(LEFTOVER_NAMES_MAX + 500):
        os.close(os.open(place.directory / f".state.json.{number:032x}.tmp", os.O_CREAT))

    first = file.remove_leftovers()

    assert LEFTOVER_NAMES_MAX - 1 <= first <= LEFTOVER_NAMES_MAX
    assert first + file.remove_leftovers() == LEFTOVER_NAMES_MAX + 500


def test_leftover_that_cannot_be_removed_does_not_stop_a_start(place: Place) -> None:
    file = place.saved()
    (place.directory / f".state.json.{'0' * 32}.tmp").mkdir()

    assert file.remove_leftovers() == 0
    assert file.read() == BODY
