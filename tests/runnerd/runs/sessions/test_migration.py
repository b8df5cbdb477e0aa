"""The legacy import: it loses nothing, whatever goes wrong, and is done once (M07, I22)."""

import errno
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.backend import Opening
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import (
    CWD,
    ID,
    NOW,
    VERSION_NAME,
    data,
    everything,
    header,
    ids,
    laid_out,
    legacy,
    legacy_header,
    legacy_message,
    message,
    opened,
    sessions_in,
)
from tests.runnerd.runs.sessions.test_legacy import HANGS_NOT_TOGETHER

PUBLIC, BACKUP = f"{ID}.jsonl", f"{ID}.jsonl.v3.backup"
SOURCE = data(legacy_header(), legacy_message("a", None), legacy_message("b", "a"))
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return laid_out(tmp_path / "sessions", {PUBLIC: SOURCE})


def test_legacy_session_is_migrated_once_and_goes_on(folder: Path) -> None:
    first = opened(folder)
    done = everything(folder)
    second = opened(folder)

    assert (first.opening, ids(first)) == (Opening.MIGRATED, ["m-a", "m-b"])
    assert (second.opening, ids(second)) == (Opening.OPENED, ["m-a", "m-b"])
    assert everything(folder) == done
    assert done[BACKUP][0] == SOURCE
    assert sorted(done) == sorted([PUBLIC, BACKUP, VERSION_NAME])
    migration = second.header.migration
    assert migration is not None
    assert (migration.source_sha256, migration.is_complete, migration.backup_file) == (
        hashlib.sha256(SOURCE).hexdigest(),
        True,
        BACKUP,
    )

    second.append([message("c")], NOW)
    assert ids(opened(folder)) == ["m-a", "m-b", "m-c"]


def test_migrated_session_belongs_to_who_opens_it_or_stays_where_it_was(tmp_path: Path) -> None:
    for name, cwd, expected in (("one", "/elsewhere", "/elsewhere"), ("two", None, CWD)):
        folder = laid_out(tmp_path / name, {PUBLIC: SOURCE})

        assert sessions_in(folder).open(ID, cwd, NOW).header.cwd == expected


# --- Weak point 1: what cannot be read back is never published -------------------------------


@pytest.mark.parametrize("lines", HANGS_NOT_TOGETHER.values(), ids=HANGS_NOT_TOGETHER)
def test_source_whose_lines_do_not_hang_together_stays_and_leaves_nothing(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    folder = laid_out(tmp_path / "sessions", {PUBLIC: data(legacy_header(), *lines)})
    before = everything(folder)

    for _ in range(2):
        with refused(ErrorCode.SESSION_MIGRATION_INVALID):
            opened(folder)

    assert everything(folder) == before


def test_source_that_was_put_in_order_is_migrated_afterwards(tmp_path: Path) -> None:
    folder = laid_out(
        tmp_path / "sessions", {PUBLIC: data(legacy_header(), legacy_message("a", "ghost"))}
    )
    with refused(ErrorCode.SESSION_MIGRATION_INVALID):
        opened(folder)

    (folder / PUBLIC).write_bytes(SOURCE)

    assert ids(opened(folder)) == ["m-a", "m-b"]


def test_source_that_cannot_be_converted_stays_with_a_backup_and_an_open_marker(
    tmp_path: Path,
) -> None:
    source = data(
        legacy_header(), legacy_message("a", None), legacy("custom_message", "x", "a", content="z")
    )
    folder = laid_out(tmp_path / "sessions", {PUBLIC: source})
    inode = (folder / PUBLIC).stat().st_ino

    for _ in range(2):
        with refused(ErrorCode.SESSION_MIGRATION_UNSUPPORTED):
            opened(folder)

    left = everything(folder)
    assert left[PUBLIC] == (source, inode)
    assert left[BACKUP][0] == source
    assert left[VERSION_NAME][0].count(b"\n") == 1
    assert b'"complete":false' in left[VERSION_NAME][0]


@pytest.mark.parametrize("cut", [1, 40, len(SOURCE) - 2, SOURCE.index(b"\n") + 20])
def test_torn_source_is_never_mended(tmp_path: Path, cut: int) -> None:
    folder = laid_out(tmp_path / "sessions", {PUBLIC: SOURCE[:cut]})
    before = everything(folder)

    with refused(ErrorCode.SESSION_MIGRATION_INVALID):
        opened(folder)

    assert everything(folder) == before


# --- The public file is never lost ------------------------------------------------------------


class Striking(PosixFilesystem):
    """A disk on which one call fails, and which looks at the public name at each call."""

    def __init__(self, folder: Path, failing: int) -> None:
        self._public = folder / PUBLIC
        self._failing = failing
        self.count = 0
        self.seen: set[bytes] = set()

    def create_exclusive(self, directory: int, name: str, mode: int) -> int:
        self._strike()
        return super().create_exclusive(directory, name, mode)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._strike()
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._strike()
        super().sync(descriptor)

    def rename(self, directory: int, source: str, target: str) -> None:
        self._strike()
        super().rename(directory, source, target)
        self.seen.add(self._public.read_bytes())

    def link_into(self, directory: int, source: str, target_directory: int, target: str) -> None:
        self._strike()
        super().link_into(directory, source, target_directory, target)

    def unlink(self, directory: int, name: str) -> None:
        self._strike()
        super().unlink(directory, name)
        self.seen.add(self._public.read_bytes())

    def _strike(self) -> None:
        self.seen.add(self._public.read_bytes())
        self.count += 1
        if self.count == self._failing:
            raise OSError(errno.EIO, "struck")


def test_public_name_holds_the_source_or_the_session_at_every_moment(tmp_path: Path) -> None:
    failing, is_over = 0, False
    while not is_over:
        failing += 1
        folder = laid_out(tmp_path / str(failing), {PUBLIC: SOURCE})
        fs = Striking(folder, failing)

        try:
            sessions_in(folder, fs).open(ID, CWD, NOW)
        except PrpError:
            assert (folder / PUBLIC).read_bytes() == SOURCE or ids(opened(folder)) != []
        else:
            is_over = fs.count < failing

        session = opened(folder)
        assert ids(session) == ["m-a", "m-b"]
        assert fs.seen <= {SOURCE, (folder / PUBLIC).read_bytes()}
        assert (folder / BACKUP).read_bytes() == SOURCE
        assert [name for name in everything(folder) if name.endswith(".tmp")] == []
        shutil.rmtree(folder)
    assert failing > 10


def test_backup_of_something_else_stops_the_migration_before_it_begins(folder: Path) -> None:
    (folder / BACKUP).write_bytes(SOURCE + b"\n")
    before = everything(folder)

    with refused(ErrorCode.SESSION_MIGRATION_CONFLICT):
        opened(folder)

    assert everything(folder) == before


def test_backup_that_is_the_source_is_fine(folder: Path) -> None:
    (folder / BACKUP).write_bytes(SOURCE)

    assert ids(opened(folder)) == ["m-a", "m-b"]
    assert (folder / BACKUP).read_bytes() == SOURCE


def test_begun_migration_whose_source_is_gone_shows_no_empty_session(folder: Path) -> None:
    source = data(legacy_header(), legacy("custom_message", "x", None, content="z"))
    (folder / PUBLIC).write_bytes(source)
    with refused(ErrorCode.SESSION_MIGRATION_UNSUPPORTED):
        opened(folder)
    (folder / PUBLIC).unlink()
    before = everything(folder)

    with refused(ErrorCode.SESSION_LAYOUT_CONFLICT):
        opened(folder)

    assert everything(folder) == before
    assert before[BACKUP][0] == source


def test_complete_target_that_lacks_messages_never_takes_the_source_s_place(folder: Path) -> None:
    opened(folder)
    version = folder / VERSION_NAME
    first = version.read_bytes().split(b"\n")[0] + b"\n"
    (folder / PUBLIC).unlink()
    (folder / PUBLIC).write_bytes(SOURCE)
    version.write_bytes(first)
    before = everything(folder)

    with refused(ErrorCode.SESSION_LAYOUT_CONFLICT):
        opened(folder)

    assert everything(folder) == before


def test_session_that_went_on_is_kept_when_the_source_is_put_back(folder: Path) -> None:
    opened(folder).append([message("c")], NOW)
    (folder / PUBLIC).unlink()
    (folder / PUBLIC).write_bytes(SOURCE)

    assert ids(opened(folder)) == ["m-a", "m-b", "m-c"]


@pytest.mark.parametrize("content", [b"", b"not a session\n", b"\0" * 100, b"[" * 100_000])
def test_public_file_that_is_no_session_is_never_written_over(folder: Path, content: bytes) -> None:
    (folder / PUBLIC).write_bytes(content)
    before = everything(folder)
    with refused(ErrorCode.SESSION_MIGRATION_INVALID):
        opened(folder)
    assert everything(folder) == before

    laid_out(folder, {VERSION_NAME: data(header())})
    before = everything(folder)
    with refused(ErrorCode.SESSION_LAYOUT_CONFLICT):
        opened(folder)
    assert everything(folder) == before


OPENER = """
import sys
from pathlib import Path
from tests.runnerd.runs.sessions.lines import CWD, ID, NOW, ids, sessions_in
from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Sessions
sys.stdin.readline()
entropy = SystemEntropy()
backend = FileSessions(PosixFilesystem(), entropy, PosixLocks(), sys.argv[1])
session = Sessions(backend, entropy).open(ID, CWD, NOW)
print(session.opening.value, *ids(session))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("files", "messages"), [({}, []), ({PUBLIC: SOURCE}, ["m-a", "m-b"])], ids=["new", "legacy"]
)
def test_processes_that_open_at_once_make_one_session(
    tmp_path: Path, files: dict[str, bytes], messages: list[str]
) -> None:
    folder = laid_out(tmp_path / "sessions", files)
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]

    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    said = [opener.communicate(timeout=60)[0].split() for opener in openers]

    assert [opener.returncode for opener in openers] == [0] * 4
    assert [words[1:] for words in said] == [messages] * 4
    first = "migrated" if files else "created"
    assert sorted(words[0] for words in said) == sorted([first, *["opened"] * 3])
    assert len(list(folder.glob("--*--/*.jsonl"))) == 1
