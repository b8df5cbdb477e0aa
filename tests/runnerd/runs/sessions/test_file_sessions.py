"""Sessions on the real disk: two names, copies, mending, and who may do what."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.backend import Opening
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Sessions
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import (
    CWD,
    ID,
    NOW,
    PUBLIC,
    VERSION_NAME,
    data,
    entry,
    everything,
    header,
    ids,
    laid_out,
    legacy_header,
    legacy_message,
    message,
    opened,
    sessions_in,
)

VERSIONED = data(header(), entry(1, "a", None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def are_one_file(folder: Path) -> bool:
    [version] = folder.glob("--*--/*.jsonl")
    return version.samefile(folder / PUBLIC)


def test_session_is_one_private_file_under_two_names(folder: Path) -> None:
    opened(folder).append([message("a")], NOW)

    assert are_one_file(folder)
    assert [path.name for path in folder.glob("--*--")] == ["--workspace-demo--"]
    modes = [path.stat().st_mode & 0o777 for path in (folder / PUBLIC, folder, *folder.glob("--*"))]
    assert modes == [0o600, 0o700, 0o700]
    assert sorted(everything(folder)) == sorted([PUBLIC, version_of(folder)])


def version_of(folder: Path) -> str:
    [version] = folder.glob("--*--/*.jsonl")
    return str(version.relative_to(folder))


def test_looking_creates_nothing(folder: Path) -> None:
    sessions = sessions_in(folder)

    assert not sessions.exists(ID)

    assert not folder.exists()


def test_opening_a_session_again_writes_nothing(folder: Path) -> None:
    opened(folder).append([message("a")], NOW)
    before = everything(folder)

    assert opened(folder).opening is Opening.OPENED

    assert everything(folder) == before


def test_copied_folder_opens_and_goes_on_without_the_original(folder: Path, tmp_path: Path) -> None:
    opened(folder).append([message("a")], NOW)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    before = everything(folder)

    session = opened(copy)
    session.append([message("b")], NOW)

    assert (session.opening, ids(opened(copy))) == (Opening.MENDED, ["m-a", "m-b"])
    assert are_one_file(copy)
    assert everything(folder) == before


def test_public_file_that_was_copied_alone_is_a_session(folder: Path, tmp_path: Path) -> None:
    opened(folder).append([message("a")], NOW)
    copy = laid_out(tmp_path / "copy", {PUBLIC: (folder / PUBLIC).read_bytes()})

    assert ids(opened(copy)) == ["m-a"]
    assert are_one_file(copy)


def test_public_name_that_was_removed_is_given_back(folder: Path) -> None:
    opened(folder).append([message("a")], NOW)
    (folder / PUBLIC).unlink()

    assert ids(opened(folder)) == ["m-a"]
    assert are_one_file(folder)


@pytest.mark.parametrize("longer", [PUBLIC, VERSION_NAME])
def test_longer_of_two_files_gets_both_names(folder: Path, longer: str) -> None:
    goes_on = VERSIONED + data(entry(2, "b", "a"))
    laid_out(folder, {PUBLIC: VERSIONED, VERSION_NAME: VERSIONED} | {longer: goes_on})

    assert ids(opened(folder)) == ["m-a", "m-b"]
    assert are_one_file(folder)
    assert (folder / PUBLIC).read_bytes() == goes_on


def test_two_histories_are_a_conflict_and_both_stay(folder: Path) -> None:
    other = data(header(), entry(1, "z", None), entry(2, "y", "z"))
    laid_out(folder, {PUBLIC: VERSIONED, VERSION_NAME: other})
    before = everything(folder)

    for _ in range(2):
        with refused(ErrorCode.SESSION_LAYOUT_CONFLICT):
            opened(folder)

    assert everything(folder) == before


def test_unreadable_neighbour_stops_no_other_session(folder: Path) -> None:
    neighbours = {
        "--workspace-demo--/2026-01-01T00-00-00-000Z_zz.jsonl": b"broken header\n",
        "--workspace-demo--/notes": b"x",
        "zz.jsonl": b"broken",
        "--no-folder--": b"",
    }
    laid_out(folder, {VERSION_NAME: VERSIONED, **neighbours})
    before = everything(folder)

    assert ids(opened(folder)) == ["m-a"]
    after = everything(folder)
    assert {name: after[name] for name in neighbours} == {name: before[name] for name in neighbours}
    with refused(ErrorCode.SESSION_LAYOUT_CONFLICT):
        opened(folder, "zz")


def test_id_that_ends_like_another_is_another_session(folder: Path) -> None:
    laid_out(folder, {VERSION_NAME.replace("_s1", "_b_s1"): data(header(id="b_s1"))})

    assert opened(folder).is_new
    assert not opened(folder, "b_s1").is_new


def test_torn_tail_is_cut_once_and_the_rest_stays(folder: Path) -> None:
    laid_out(folder, {VERSION_NAME: VERSIONED + b'{"kind":"entry","la'})

    assert ids(opened(folder)) == ["m-a"]
    mended = everything(folder)
    assert ids(opened(folder)) == ["m-a"]

    assert mended[PUBLIC][0] == VERSIONED
    assert everything(folder) == mended


def test_last_line_without_its_end_gets_one(folder: Path) -> None:
    laid_out(folder, {VERSION_NAME: VERSIONED[:-1]})

    opened(folder).append([message("b")], NOW)

    assert (folder / PUBLIC).read_bytes().startswith(VERSIONED)
    assert ids(opened(folder)) == ["m-a", "m-b"]


def test_broken_last_line_that_was_written_whole_is_refused_and_stays(folder: Path) -> None:
    laid_out(folder, {VERSION_NAME: VERSIONED + b"{broken}\n"})
    before = everything(folder)

    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        opened(folder)

    assert everything(folder) == before


def test_tail_of_a_living_writer_is_left_alone(folder: Path) -> None:
    session = opened(folder)
    session.append([message("a")], NOW)
    with session.writer():
        with (folder / PUBLIC).open("ab") as file:
            file.write(b'{"kind":"ent')
        before = everything(folder)

        reader = opened(folder)

        assert (reader.opening, ids(reader)) == (Opening.OPENED, ["m-a"])
        assert everything(folder) == before


def test_file_that_somebody_else_wrote_is_not_written_over(folder: Path) -> None:
    session = opened(folder)
    with session.writer() as writer:
        writer.append([message("a")], NOW)
        with (folder / PUBLIC).open("ab") as file:
            file.write(data(entry(2, "x", session.branch()[0].entry_id)))
        with refused(ErrorCode.SESSION_SNAPSHOT_STALE):
            writer.append([message("b")], NOW)
        with refused(ErrorCode.SESSION_WRITE_LEASE_INVALID):
            writer.append([message("b")], NOW)

    assert ids(opened(folder)) == ["m-a", "m-x"]


def test_file_that_was_taken_away_is_noticed_and_not_made_anew(folder: Path) -> None:
    session = opened(folder)
    session.append([message("a")], NOW)
    shutil.rmtree(folder / "--workspace-demo--")
    (folder / PUBLIC).unlink()

    with refused(ErrorCode.SESSION_SNAPSHOT_STALE):
        session.append([message("b")], NOW)

    assert everything(folder) == {}


class Failing(PosixFilesystem):
    """A disk whose calls of one name fail for a while."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.calls: list[str] = []

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._strike("write")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._strike("sync")
        super().sync(descriptor)

    def rename(self, directory: int, source: str, target: str) -> None:
        self._strike("rename")
        super().rename(directory, source, target)

    def _strike(self, name: str) -> None:
        self.calls.append(name)
        if self.failures[:1] == [name]:
            del self.failures[0]
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", ["write", "sync"])
def test_failed_append_adds_nothing_and_the_next_one_works(folder: Path, call: str) -> None:
    fs = Failing()
    session = sessions_in(folder, fs).open(ID, CWD, NOW)
    with session.writer() as writer:
        writer.append([message("a")], NOW)
        fs.failures = [call]
        with refused(ErrorCode.STORAGE_WRITE_FAILED):
            writer.append([message("b")], NOW)
        assert ids(session) == ids(opened(folder)) == ["m-a"]
        writer.append([message("c")], NOW)

    assert ids(session) == ids(opened(folder)) == ["m-a", "m-c"]


def test_append_whose_outcome_nobody_knows_ends_the_lease(folder: Path) -> None:
    fs = Failing()
    session = sessions_in(folder, fs).open(ID, CWD, NOW)
    with session.writer() as writer:
        writer.append([message("a")], NOW)
        fs.failures = ["sync", "rename"]
        with refused(ErrorCode.DURABILITY_BARRIER_FAILED):
            writer.append([message("b")], NOW)
        with refused(ErrorCode.SESSION_WRITE_LEASE_INVALID):
            writer.append([message("c")], NOW)

    assert ids(opened(folder)) in (["m-a"], ["m-a", "m-b"])


def test_each_append_costs_one_sync_once_the_session_is_leased(folder: Path) -> None:
    fs = Failing()
    session = sessions_in(folder, fs).open(ID, CWD, NOW)
    session.append([message("a")], NOW)
    fs.calls.clear()

    session.append([message("b"), message("c")], NOW)
    session.append([message("d")], NOW)

    assert fs.calls == ["write", "sync"] * 2
    assert ids(opened(folder)) == ["m-a", "m-b", "m-c", "m-d"]


def test_folder_that_others_may_read_is_made_private_or_refused(folder: Path) -> None:
    laid_out(folder, {PUBLIC: VERSIONED, ".s1.write.lock": b"", "s1.jsonl.v3.backup": b""})
    (folder / ".s1.write.lock").chmod(0o600)
    folder.chmod(0o755)

    assert ids(opened(folder)) == ["m-a"]
    assert folder.stat().st_mode & 0o777 == 0o700

    (folder / "of somebody else").touch()
    folder.chmod(0o755)
    with refused(ErrorCode.STATE_UNSAFE):
        opened(folder)
    assert folder.stat().st_mode & 0o777 == 0o755


def link_elsewhere(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("make", [Path.mkdir, link_elsewhere])
def test_public_name_that_is_no_file_is_refused_and_stays(
    folder: Path, make: Callable[[Path], None]
) -> None:
    folder.mkdir(mode=0o700)
    make(folder / PUBLIC)

    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        opened(folder)

    assert (folder / PUBLIC).is_dir() or (folder / PUBLIC).is_symlink()


def test_every_session_of_a_folder_is_listed_once(folder: Path) -> None:
    laid_out(
        folder,
        {
            PUBLIC: VERSIONED,
            VERSION_NAME: VERSIONED,
            "old.jsonl": data(legacy_header(id="old"), legacy_message("a", None)),
            "--x--/2026_only-version.jsonl": data(header(id="only-version")),
            "notes.txt": b"",
        },
    )
    entropy = SystemEntropy()
    backend = FileSessions(PosixFilesystem(), entropy, PosixLocks(), str(folder))

    assert backend.list_sessions() == ["old", "only-version", "s1"]
    assert Sessions(backend, entropy).exists("only-version")


def test_message_too_large_for_a_session_is_refused_and_nothing_is_added(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runnerd.runs.sessions import file_lease

    session = opened(folder)
    monkeypatch.setattr(file_lease, "SESSION_BYTES_MAX", 500)

    with pytest.raises(PrpError) as caught:
        session.append([message("a" * 500)], NOW)

    assert caught.value.code is ErrorCode.STORAGE_WRITE_FAILED
    assert ids(opened(folder)) == []
