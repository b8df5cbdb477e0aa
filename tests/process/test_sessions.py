"""`runnerd sessions` as a process: beside the daemon's own arguments, and killed on its way."""

import json
import signal
from pathlib import Path

import pytest

from tests.process.daemon import daemon
from tests.runnerd.runs.sessions.lines import (
    data,
    ids,
    laid_out,
    legacy_header,
    legacy_message,
    opened,
)

pytestmark = pytest.mark.process

LEGACY = data(legacy_header(), legacy_message("a", None))


def test_folder_is_inspected_migrated_and_verified(tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "sessions", {"s1.jsonl": LEGACY})
    forms: list[str] = []
    for command in ("inspect", "migrate", "inspect", "verify"):
        words = ["sessions", command, "--sessions", str(folder), "--json"]
        with daemon(words, ticket=None) as running:
            assert running.wait() == 0, running.stderr
            [session] = json.loads(running.stdout)["sessions"]
            forms.append(session.get("form", session.get("done")))
            assert running.stderr == ""

    assert forms == ["legacy", "migrated", "versioned", "versioned"]
    assert ids(opened(folder)) == ["m-a"]


def test_refusal_ends_with_its_documented_line_and_status(tmp_path: Path) -> None:
    words = ["sessions", "inspect", "absent", "--sessions", str(tmp_path)]
    with daemon(words, ticket=None) as running:
        assert running.wait() == 65
        assert running.last_line == (
            "runnerd: session_restore_failed: there is no such session in this folder; "
            "the public file was left as it is: see `runnerd sessions inspect`"
        )


def test_help_is_that_of_the_command(tmp_path: Path) -> None:
    with daemon(["sessions", "--help"], ticket=None) as running:
        assert running.wait() == 0
        assert running.stdout.startswith("usage: runnerd sessions inspect")


def test_migration_that_is_killed_leaves_the_source_or_the_session(tmp_path: Path) -> None:
    messages = [legacy_message(f"e{n}", f"e{n - 1}" if n else None) for n in range(2000)]
    source = data(legacy_header(), *messages)
    for number in range(4):
        folder = laid_out(tmp_path / str(number), {"s1.jsonl": source})
        words = ["sessions", "migrate", "--sessions", str(folder)]
        with daemon(words, ticket=None) as running:
            backup = folder / "s1.jsonl.v3.backup"
            while not backup.exists() and running.process.poll() is None:
                pass
            running.signal(signal.SIGKILL)
            running.process.wait()

        is_source = (folder / "s1.jsonl").read_bytes() == source
        assert is_source or backup.read_bytes() == source
        assert len(ids(opened(folder))) == 2000
