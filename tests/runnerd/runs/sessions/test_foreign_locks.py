"""Locks that another process holds on a session: of the original program, and our own."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.base.posix_fs import PosixLocks
from protocol.errors import ErrorCode
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import ID, NOW, PUBLIC, ids, laid_out, message, opened

LOCKS = [
    (f"{PUBLIC}.open.lock", ErrorCode.SESSION_OPEN_LOCKED),
    (f"{PUBLIC}.write.lock", ErrorCode.SESSION_WRITE_LOCKED),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def owner(pid: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "kind": "x", "pid": pid, "nonce": "n"}).encode()


@pytest.mark.parametrize(("name", "busy"), LOCKS)
@pytest.mark.parametrize("content", [owner(2**31 - 1), owner(0), owner("1"), b"", b"{", b"[]"])
def test_lock_of_the_original_without_a_living_owner_is_reported_and_stays(
    folder: Path, name: str, busy: ErrorCode, content: bytes
) -> None:
    laid_out(folder, {name: content})

    with refused(ErrorCode.SESSION_LOCK_RECOVERY_REQUIRED):
        opened(folder)

    assert (folder / name).read_bytes() == content
    assert not (folder / PUBLIC).exists()


@pytest.mark.parametrize(("name", "busy"), LOCKS)
def test_lock_of_the_original_with_a_living_owner_is_respected(
    folder: Path, name: str, busy: ErrorCode
) -> None:
    laid_out(folder, {name: owner(os.getpid())})

    with refused(busy):
        opened(folder)

    assert not (folder / PUBLIC).exists()
    (folder / name).unlink()
    assert opened(folder).is_new


def test_session_that_nothing_has_to_be_done_to_opens_beside_a_writer_of_the_original(
    folder: Path,
) -> None:
    session = opened(folder)
    session.append([message("a")], NOW)
    laid_out(folder, {f"{PUBLIC}.write.lock": owner(os.getpid())})

    assert ids(opened(folder)) == ["m-a"]
    with refused(ErrorCode.SESSION_WRITE_LOCKED):
        session.append([message("b")], NOW)


def test_opening_waits_for_nobody_longer_than_allowed(folder: Path) -> None:
    opened(folder)
    directory = os.open(folder, os.O_RDONLY)
    held = PosixLocks().try_lock(directory, f".{ID}.open.lock")

    with refused(ErrorCode.SESSION_OPEN_LOCKED):
        opened(folder)

    held.release()
    os.close(directory)
    opened(folder)
