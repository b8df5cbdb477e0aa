"""A SQLite store that is read while another process owns it, or after that has died."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from controller_mock.storage.sqlite import open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME
from controller_mock.storage.sqlite_reads import SqliteReader
from protocol.errors import ErrorCode, PrpError
from tests.storage.changes import RUN, events
from tests.storage.sqlite_places import WAL, contents

ROOT: Final = Path(__file__).resolve().parents[2]


def test_reading_beside_needs_a_store_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    for missing in (tmp_path / "nowhere", tmp_path / "empty"):
        with pytest.raises(PrpError) as caught:
            SqliteReader.beside(missing)

        assert caught.value.code is ErrorCode.STATE_MISSING
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_store_is_read_beside_its_owner(place: Path) -> None:
    store = open_store(place)
    store.commit([(RUN, events([220]))])

    assert _in_another_process(place, _READ) == "220"

    store.commit([(RUN, events([221]))])
    assert len(store.events(RUN, 0, 1_000)) == 221
    store.close()


def test_a_store_is_read_beside_when_its_owner_died(place: Path) -> None:
    _in_another_process(place, _COMMIT_AND_DIE)
    assert (place / WAL).stat().st_size > 0
    before = contents(place)

    reader = SqliteReader.beside(place)

    assert len(reader.events(RUN, 0, 1_000)) == 220
    reader.close()
    assert contents(place)[DATABASE_NAME] == before[DATABASE_NAME]
    assert contents(place)[WAL] == before[WAL]


_READ: Final = """
from controller_mock.storage.sqlite_reads import SqliteReader
reader = SqliteReader.beside(place)
print(len(reader.events(RUN, 0, 1_000)))
reader.close()
"""


_COMMIT_AND_DIE: Final = """
from controller_mock.storage.sqlite import open_store
open_store(place).commit([(RUN, events([220]))])
os._exit(0)
"""


def _in_another_process(place: Path, script: str) -> str:
    """Run a script with a process of its own, as the kernel's file locks belong to processes."""
    start = """
import os, sys
from pathlib import Path
from tests.storage.changes import RUN, events
place = Path(sys.argv[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", start + script, str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
