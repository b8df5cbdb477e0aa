"""A commit costs what it changes, whatever is stored already (D8)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from controller_mock.storage.sqlite import CommitCost, SqliteStore, open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME
from tests.controller_mock.core.world import CONFIG
from tests.storage.changes import RUN, events

SMALL, LARGE = 100, 20_000
BATCH = 100
BODY = b'{"text":"' + b"x" * 600 + b'"}'


class Cost(msgspec.Struct, frozen=True):
    """What one commit of ``BATCH`` events took."""

    statements: int
    rows: int
    log_bytes: int


def _filled(store: SqliteStore, start: int, end: int) -> None:
    for first in range(start, end, 1_000):
        store.commit([(RUN, events(range(first, min(first + 1_000, end)), body=BODY))])


def _cost_of_a_commit(store: SqliteStore, place: Path, first: int) -> Cost:
    with closing(sqlite3.connect(place / DATABASE_NAME)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    log = place / (DATABASE_NAME + "-wal")
    size, before = log.stat().st_size, store.cost
    store.commit([(RUN, events(range(first, first + BATCH), body=BODY))])
    after: CommitCost = store.cost
    return Cost(
        after.statements - before.statements,
        after.rows - before.rows,
        log.stat().st_size - size,
    )


def test_a_commit_costs_the_same_when_the_history_is_two_hundred_times_longer(
    tmp_path: Path,
) -> None:
    place = tmp_path / "data"
    store = open_store(place)
    store.create_run(CONFIG)
    _filled(store, 1, SMALL + 1)
    early = _cost_of_a_commit(store, place, SMALL + 1)
    _filled(store, SMALL + BATCH + 1, LARGE + 1)

    late = _cost_of_a_commit(store, place, LARGE + 1)

    assert (late.statements, late.rows) == (early.statements, early.rows) == (2, BATCH + 1)
    # Only where pages happen to split may a few more of them be written.
    assert abs(late.log_bytes - early.log_bytes) <= early.log_bytes // 5
    store.close()
