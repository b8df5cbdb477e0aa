"""An event costs the same however many came before it: counted, not timed (D8, Gate E)."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from controller_mock.storage import sqlite_schema
from controller_mock.storage.sqlite import open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME
from tests.bench.cost import (
    EVENTS,
    FEW,
    LINES_PER_BATCH,
    MANY,
    DiskWorld,
    controller_cost,
    digits_apart,
    runner_cost,
)


async def test_an_event_costs_the_controller_the_same_when_many_are_stored(
    tmp_path: Path,
) -> None:
    few = await controller_cost(tmp_path / "few", FEW)

    many = await controller_cost(tmp_path / "many", MANY)

    assert many == few
    # The event's own row and the run's cursor; each commit has a beginning and an end.
    assert (few.rows, few.statements) == (2 * EVENTS, 4 * EVENTS)


async def test_controller_cost_notices_when_an_event_touches_what_is_stored(
    tmp_path: Path,
) -> None:
    for name in ("few", "many"):
        open_store(tmp_path / name).close()
        with contextlib.closing(sqlite3.connect(tmp_path / name / DATABASE_NAME)) as connection:
            connection.execute(
                "CREATE TRIGGER planted AFTER INSERT ON events WHEN new.received_at_unix_ms <>"
                " 1767323045678 BEGIN UPDATE events SET delivery_count = 1; END"
            )
            connection.commit()
    few = await controller_cost(tmp_path / "few", 10)

    many = await controller_cost(tmp_path / "many", FEW)

    assert many.rows > few.rows


async def test_controller_cost_notices_when_a_statement_runs_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = await controller_cost(tmp_path / "fewer", 10)
    longer = sqlite_schema.INSERT_EVENTS + " -- and something more"
    monkeypatch.setattr(sqlite_schema, "INSERT_EVENTS", longer)

    more = await controller_cost(tmp_path / "more", 10)

    assert more.text_bytes > fewer.text_bytes
    assert more.statements == fewer.statements


def test_a_batch_of_lines_costs_the_runner_the_same_when_many_are_acknowledged(
    tmp_path: Path,
) -> None:
    few = runner_cost(tmp_path / "few", FEW)

    many = runner_cost(tmp_path / "many", MANY)

    assert many == few
    # One replacement, which syncs the file and its directory; the ACK costs none.
    assert (few.replacements, few.syncs) == (1, 2)
    assert few.file_bytes > LINES_PER_BATCH


def test_runner_cost_notices_when_the_outbox_is_deeper(tmp_path: Path) -> None:
    with contextlib.closing(DiskWorld(tmp_path / "runner")) as world:
        world.connect()
        world.prepare()
        world.start_turn()
        world.is_on_disk = True
        sizes: list[int] = []
        for _ in range(2):
            world.fs.written.clear()
            world.lines("one line")
            sizes.append(digits_apart(b"".join(world.fs.written)))

    assert sizes[1] > sizes[0]


def test_numbers_and_digests_of_any_length_count_as_one_character() -> None:
    digest = b"0a" * 32

    assert digits_apart(b"seq 1 " + digest) == digits_apart(b"seq 20000 " + digest[::-1])
    assert digits_apart(b"a1") < digits_apart(b"aa1")
