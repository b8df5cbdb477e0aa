"""Tests of `runnerd sessions`: what it says, how it refuses, and what it leaves untouched."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from protocol.base.posix_fs import PosixLocks
from protocol.errors import ErrorCode, ExitStatus, exit_status
from runnerd.console.sessions_command import run_sessions
from tests.runnerd.runs.sessions.lines import (
    NOW,
    data,
    entry,
    everything,
    header,
    ids,
    laid_out,
    legacy,
    legacy_header,
    legacy_message,
    message,
    opened,
)

LEGACY = data(legacy_header(id="old"), legacy_message("a", None), legacy_message("b", "a"))
UNSUPPORTED = data(legacy_header(id="odd"), legacy("custom_message", "x", None))
VERSIONED = data(header(id="new"), entry(1, "a", None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return laid_out(
        tmp_path / "sessions",
        {
            "old.jsonl": LEGACY,
            "new.jsonl": VERSIONED,
            "--workspace-demo--/2026-01-01T00-00-00-000Z_new.jsonl": VERSIONED,
        },
    )


def told(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    status = run_sessions([*words, "--json"])
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return status, found


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    capfd.readouterr()
    status = run_sessions(words)
    return status, capfd.readouterr().out.splitlines()


def looks(folder: Path) -> dict[str, Any]:
    """Return everything of a folder that a change would show in."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    } | {"files": everything(folder), ".": folder.stat().st_mtime_ns}


def by_id(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["sessionId"]: one for one in found["sessions"]}


def test_inspect_tells_what_opening_would_do_and_changes_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = looks(folder)

    status, found = told(capfd, "inspect", "--sessions", str(folder))
    _, lines = said(capfd, "inspect", "--sessions", str(folder))

    assert status == 0
    accounts = by_id(found)
    assert {name: accounts["old"][name] for name in ("form", "outlook", "backup", "messages")} == {
        "form": "legacy",
        "outlook": "migrate",
        "backup": "none",
        "messages": 2,
    }
    assert (accounts["new"]["form"], accounts["new"]["outlook"]) == ("versioned", "mend")
    assert lines[0].split() == [
        *("session", "form", "opening", "messages", "entries", "backup", "bytes")
    ]
    assert lines[2].split() == ["old", "legacy", "migrate", "2", "2", "none", str(len(LEGACY))]
    assert looks(folder) == before


def test_inspect_names_why_a_session_would_be_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    laid_out(folder, {"odd.jsonl": UNSUPPORTED, "bad.jsonl": b"no session"})

    status, found = told(capfd, "inspect", "--sessions", str(folder))
    _, lines = said(capfd, "inspect", "bad", "--sessions", str(folder))

    accounts = by_id(found)
    assert status == 0
    assert (accounts["odd"]["outlook"], accounts["odd"]["code"]) == (
        "refuse",
        "session_migration_unsupported",
    )
    assert (accounts["bad"]["form"], accounts["bad"]["code"]) == (
        "neither",
        "session_migration_invalid",
    )
    assert "session_migration_invalid: line 1: not JSON" in lines[1]


def test_migrate_brings_every_session_over_once(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, first = told(capfd, "migrate", "--sessions", str(folder))
    done = everything(folder)
    _, lines = said(capfd, "migrate", "--sessions", str(folder))

    assert (status, first["copy"]) == (0, None)
    assert {name: one["done"] for name, one in by_id(first).items()} == {
        "old": "migrated",
        "new": "mended",
    }
    assert lines == [
        "new: versioned already, 1 messages",
        "old: versioned already, 2 messages",
    ]
    assert everything(folder) == done
    assert done["old.jsonl.v3.backup"][0] == LEGACY
    assert ids(opened(folder, "old")) == ["m-a", "m-b"]


def test_migrate_copy_leaves_the_folder_as_it_is_and_says_where_the_copy_lies(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = looks(folder)

    status, found = told(capfd, "migrate", "--copy", "--sessions", f"{folder}/")

    assert status == 0
    assert looks(folder) == before
    copy = Path(found["copy"])
    assert copy.parent == folder.parent
    assert ids(opened(copy, "old")) == ["m-a", "m-b"]
    assert told(capfd, "verify", "--sessions", str(copy))[0] == 0
    _, lines = said(capfd, "migrate", "old", "--copy", "--sessions", str(folder))
    assert lines[0].startswith(f"copy: {folder}.copy-")
    assert lines[1:] == ["old: migrated, 2 messages"]
    assert len(list(folder.parent.iterdir())) == 3


def test_migrate_goes_on_behind_a_session_that_it_must_refuse(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    laid_out(folder, {"bad.jsonl": b"no session", "odd.jsonl": UNSUPPORTED})

    status, found = told(capfd, "migrate", "--sessions", str(folder))

    done = by_id(found)
    assert status == exit_status(ErrorCode.SESSION_MIGRATION_INVALID) == ExitStatus.DATA
    assert (done["bad"]["code"], done["bad"]["done"]) == ("session_migration_invalid", None)
    assert done["odd"]["code"] == "session_migration_unsupported"
    assert done["old"]["done"] == "migrated"
    assert (folder / "bad.jsonl").read_bytes() == b"no session"
    assert (folder / "odd.jsonl").read_bytes() == UNSUPPORTED


def test_verify_proves_a_session_by_its_backup(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(folder, "old").append([message("c")], NOW)
    opened(folder, "new")
    before = looks(folder)

    status, lines = said(capfd, "verify", "--sessions", str(folder))

    assert status == 0
    assert lines == [
        "new: whole, 1 messages; every line continues the one before",
        "old: whole, 3 messages; it goes on from its backup",
    ]
    assert looks(folder) == before


def spoil_backup(folder: Path) -> None:
    (folder / "old.jsonl.v3.backup").write_bytes(LEGACY + b"\n")


def spoil_session(folder: Path) -> None:
    public = folder / "old.jsonl"
    public.write_bytes(public.read_bytes().replace(b'"id":"b"', b'"id":"z"'))


def spoil_line(folder: Path) -> None:
    public = folder / "old.jsonl"
    public.write_bytes(public.read_bytes().replace(b'"seq":2', b'"seq":3'))


def unlink_names(folder: Path) -> None:
    public = folder / "old.jsonl"
    public.unlink()
    public.write_bytes(data(header(id="old"), entry(1, "q", None)))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (spoil_backup, "session_migration_conflict"),
        (spoil_session, "session_migration_conflict"),
        (spoil_line, "session_restore_failed"),
        (unlink_names, "session_layout_conflict"),
    ],
)
def test_verify_finds_what_was_spoiled_and_changes_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str], spoil: Any, code: str
) -> None:
    opened(folder, "old")
    spoil(folder)
    before = looks(folder)

    status, found = told(capfd, "verify", "old", "--sessions", str(folder))
    _, lines = said(capfd, "verify", "old", "--sessions", str(folder))

    assert (status, by_id(found)["old"]["code"]) == (ExitStatus.DATA, code)
    assert lines[0].startswith(f"old: {code}: ")
    assert looks(folder) == before


def test_verify_says_that_a_backup_is_gone_and_what_will_be_mended(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(folder, "old")
    (folder / "old.jsonl.v3.backup").unlink()
    with (folder / "old.jsonl").open("ab") as file:
        file.write(b'{"kind":')

    status, lines = said(capfd, "verify", "old", "--sessions", str(folder))

    assert status == 0
    assert lines == [
        "old: whole, 2 messages; the backup of its legacy file is gone, "
        "to be mended when it is opened"
    ]


def test_migration_of_a_session_that_is_written_waits_for_its_writer(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = os.open(folder, os.O_RDONLY)
    held = PosixLocks().try_lock(directory, ".old.write.lock")

    status, found = told(capfd, "migrate", "old", "--sessions", str(folder))

    held.release()
    os.close(directory)
    assert (status, by_id(found)["old"]["code"]) == (
        ExitStatus.CANNOT_CREATE,
        "session_write_locked",
    )
    assert (folder / "old.jsonl").read_bytes() == LEGACY


def test_name_cannot_move_the_cursor_of_a_terminal(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.jsonl").write_bytes(b'{"type":"session","version":3,"id":"\x1b[2J"}\n')

    _, lines = said(capfd, "inspect", "--sessions", str(folder))

    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("inspect absent --sessions {}", "session_restore_failed"),
        ("inspect a.b --sessions {}", "invalid_session_id"),
        ("inspect --sessions {}/absent", "usage_invalid"),
        ("migrate --sessions {}/old.jsonl", "usage_invalid"),
        ("", "usage_invalid"),
        ("list --sessions {}", "usage_invalid"),
        ("inspect", "usage_invalid"),
        ("inspect --sessions", "usage_invalid"),
        ("inspect --sessions=", "usage_invalid"),
        ("inspect --sessions {} --copy", "usage_invalid"),
        ("inspect a b --sessions {}", "usage_invalid"),
        ("migrate --sessions {} --sessions {}", "usage_invalid"),
        ("verify --sessions {} --runs x", "usage_invalid"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_code(
    folder: Path, capfd: pytest.CaptureFixture[str], words: str, code: str
) -> None:
    before = looks(folder)

    status, found = told(capfd, *words.format(folder, folder).split())

    assert (status, found["refused"]["code"]) == (exit_status(ErrorCode(code)), code)
    assert status in (ExitStatus.USAGE, ExitStatus.DATA)
    remedy = found["refused"]["remedy"]
    assert (remedy == "see runnerd sessions --help") == (code == "usage_invalid")
    assert looks(folder) == before


def test_copy_that_cannot_be_made_is_refused_and_nothing_is_left(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(folder / "fifo")

    status, found = told(capfd, "migrate", "--copy", "--sessions", str(folder))

    assert (status, found["refused"]["code"]) == (ExitStatus.IO, "session_migration_failed")
    assert [path.name for path in folder.parent.iterdir()] == ["sessions"]


def test_empty_folder_has_nothing_to_say(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("inspect", "verify", "migrate"):
        assert told(capfd, command, "--sessions", str(tmp_path))[0] == 0
    assert list(tmp_path.iterdir()) == []
    shutil.rmtree(tmp_path)


def test_help_is_shown_without_a_folder(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["migrate", "--help"], ["inspect", "-h"]):
        status, lines = said(capfd, *words)
        assert (status, lines[0].split()[:3]) == (0, ["usage:", "runnerd", "sessions"])
