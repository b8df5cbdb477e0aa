"""Files that a SQLite store refuses, and that it leaves them as they are."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from controller_mock.storage.sqlite import open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME, migrate, open_for_writing
from controller_mock.storage.sqlite_reads import SqliteReader
from controller_mock.storage.sqlite_schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from protocol.credentials import auth_key
from protocol.envelope import OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from tests.controller_mock.core.world import CONFIG, TICKET, lease_token
from tests.storage.changes import RUN
from tests.storage.sqlite_places import WAL, contents


def altered(place: Path, *statements: str) -> None:
    """Change the database as another program would."""
    with closing(sqlite3.connect(place / DATABASE_NAME)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def _empty(database: Path) -> None:
    database.write_bytes(b"")


def _zero_filled(database: Path) -> None:
    database.write_bytes(bytes(database.stat().st_size))


def _garbage(database: Path) -> None:
    database.write_bytes(b"not a database at all\n" * 1_000)


def _cut_in_the_header(database: Path) -> None:
    os.truncate(database, 60)


def _cut_in_a_page(database: Path) -> None:
    os.truncate(database, database.stat().st_size - 1_000)


def _cut_between_pages(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 8_192 * 4_096)


def _zeros_in_a_page(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[3 * 4_096 : 4 * 4_096] = bytes(4_096)
    database.write_bytes(data)


def _another_program(database: Path) -> None:
    altered(database.parent, "PRAGMA application_id = 7")


def _a_new_database(database: Path) -> None:
    database.unlink()
    altered(database.parent, "CREATE TABLE anything (a)")
    database.chmod(0o600)


def _a_later_version(database: Path) -> None:
    altered(database.parent, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def _no_version(database: Path) -> None:
    altered(database.parent, "PRAGMA user_version = 0")


def _a_table_less(database: Path) -> None:
    altered(database.parent, "DROP TABLE events")


DAMAGE: Final[dict[Callable[[Path], None], ErrorCode]] = {
    _empty: ErrorCode.STATE_CORRUPT,
    _zero_filled: ErrorCode.STATE_CORRUPT,
    _garbage: ErrorCode.STATE_CORRUPT,
    _cut_in_the_header: ErrorCode.STATE_CORRUPT,
    _cut_in_a_page: ErrorCode.STATE_CORRUPT,
    _cut_between_pages: ErrorCode.STATE_CORRUPT,
    _zeros_in_a_page: ErrorCode.STATE_CORRUPT,
    _another_program: ErrorCode.STATE_FOREIGN,
    _a_new_database: ErrorCode.STATE_FOREIGN,
    _a_later_version: ErrorCode.STATE_VERSION_UNSUPPORTED,
    _no_version: ErrorCode.STATE_VERSION_UNSUPPORTED,
    _a_table_less: ErrorCode.STATE_CORRUPT,
}


@pytest.mark.parametrize("reader", [open_store, SqliteReader.beside], ids=["owner", "beside"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_refused_by_name_and_left_alone(
    place: Path, damage: Callable[[Path], None], reader: Callable[[Path], object]
) -> None:
    damage(place / DATABASE_NAME)
    before = contents(place)

    with pytest.raises(PrpError) as caught:
        reader(place)

    assert caught.value.code is DAMAGE[damage]
    assert contents(place) == before


def _wide_mode(place: Path) -> None:
    (place / DATABASE_NAME).chmod(0o644)


def _symlink(place: Path) -> None:
    (place / DATABASE_NAME).rename(place.parent / "elsewhere")
    (place / DATABASE_NAME).symlink_to(place.parent / "elsewhere")


def _second_name(place: Path) -> None:
    (place.parent / "second").hardlink_to(place / DATABASE_NAME)


def _directory(place: Path) -> None:
    (place / DATABASE_NAME).unlink()
    (place / DATABASE_NAME).mkdir(mode=0o600)


@pytest.mark.parametrize("reader", [open_store, SqliteReader.beside], ids=["owner", "beside"])
@pytest.mark.parametrize("damage", [_wide_mode, _symlink, _second_name, _directory])
def test_a_file_that_is_not_private_is_refused(
    place: Path, damage: Callable[[Path], None], reader: Callable[[Path], object]
) -> None:
    damage(place)
    before = contents(place)

    with pytest.raises(PrpError) as caught:
        reader(place)

    assert caught.value.code is ErrorCode.STATE_UNSAFE
    assert contents(place) == before


def test_a_log_without_its_database_is_no_fresh_start(place: Path) -> None:
    (place / DATABASE_NAME).rename(place / WAL)
    before = contents(place)

    with pytest.raises(PrpError) as caught:
        open_store(place)

    assert caught.value.code is ErrorCode.STATE_MISSING
    assert contents(place) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET acked_source_seq = acked_source_seq - 1",
        "UPDATE runs SET last_controller_seq = last_controller_seq + 1",
        "UPDATE runs SET runner_digest = 'sha256:'",
        "UPDATE runs SET turn_id = 'a turn'",
        "DELETE FROM events WHERE source_seq = 7",
        "DELETE FROM commands WHERE controller_seq = 1",
        "UPDATE events SET digest = 'ab' WHERE source_seq = 7",
        "UPDATE events SET digest = 'no hex' WHERE source_seq = 7",
        "UPDATE commands SET body = replace(body, 'turn', 'torn') WHERE controller_seq = 3",
        "UPDATE commands SET body = '{' WHERE controller_seq = 3",
        "UPDATE commands SET type = 'turn.steer' WHERE controller_seq = 3",
        "UPDATE commands SET result = replace(result, 'a', 'b') WHERE controller_seq = 1",
        "UPDATE commands SET result_digest = NULL WHERE controller_seq = 1",
        "UPDATE commands SET result = '{}' WHERE controller_seq = 1",
        "UPDATE credentials SET auth_key = 'ab'",
        "UPDATE credentials SET auth_key = 'no hex'",
        "UPDATE credentials SET kind = 'other'",
        "UPDATE credentials SET lease_version = 9",
    ],
)
def test_a_run_that_does_not_prove_itself_is_not_loaded(place: Path, statement: str) -> None:
    altered(place, statement)
    store = open_store(place)

    with pytest.raises(PrpError) as caught:
        store.load_runs()

    assert caught.value.code is ErrorCode.STATE_CORRUPT
    store.close()


def test_a_changed_event_is_not_read(place: Path) -> None:
    altered(place, "UPDATE events SET body = replace(body, 'x', 'y') WHERE source_seq = 30")
    store = open_store(place)

    assert len(store.events(RUN, 0, 29)) == 29
    with pytest.raises(PrpError) as caught:
        store.events(RUN, 0, 30)

    assert caught.value.code is ErrorCode.STATE_CORRUPT
    store.close()


def test_text_that_is_no_text_has_a_code_and_is_not_quoted(place: Path) -> None:
    altered(place, "UPDATE events SET body = CAST(X'736563726574FF' AS TEXT) WHERE source_seq = 9")
    store = open_store(place)

    with pytest.raises(PrpError) as caught:
        store.events(RUN, 0, 30)

    assert caught.value.code is ErrorCode.STATE_CORRUPT
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    store.close()


def test_a_half_made_database_is_made_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    for name in ("controller.db.new", "controller.db.new-journal"):
        (data / name).write_bytes(b"left by a process that died")

    store = open_store(data)
    store.create_run(CONFIG)
    store.close()

    assert not list(data.glob("*.new*"))


def test_a_new_database_names_its_program_and_version(place: Path) -> None:
    with closing(sqlite3.connect(place / DATABASE_NAME)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("SELECT version FROM migrations").fetchall() == [
            (version,) for version in range(1, SCHEMA_VERSION + 1)
        ]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_each_opening_begins_a_greater_owner_epoch_also_from_a_copy(tmp_path: Path) -> None:
    owners: list[OwnerEpoch] = []
    for _ in range(3):
        store = open_store(tmp_path / "data")
        owners.append(store.owner)
        store.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    for name in ("data", "copy"):
        store = open_store(tmp_path / name)
        owners.append(store.owner)
        store.close()

    assert [owner.owner_epoch for owner in owners] == [1, 2, 3, 4, 4]
    assert len({owner.owner_id for owner in owners}) == len(owners)


def test_database_of_the_first_schema_gets_an_owner_and_keeps_its_runs(place: Path) -> None:
    with closing(sqlite3.connect(place / DATABASE_NAME)) as connection:
        connection.executescript(
            "DROP TABLE owners; DROP INDEX tool_inputs; "
            "DELETE FROM migrations WHERE version > 1; PRAGMA user_version = 1"
        )

    store = open_store(place)

    assert store.owner.owner_epoch == 1
    assert len(store.run_ids()) == 1
    store.close()


def test_an_older_schema_is_brought_up_to_date_and_keeps_its_rows(place: Path) -> None:
    later = (*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN added TEXT",))

    with closing(open_for_writing(place)) as connection:
        migrate(connection, later)
        migrate(connection, later)

        assert connection.execute("PRAGMA user_version").fetchone() == (len(later),)
        assert connection.execute("SELECT count(*), added FROM runs").fetchone() == (1, None)
        assert connection.execute("SELECT max(version) FROM migrations").fetchone() == (len(later),)


def test_an_older_schema_stays_when_it_cannot_be_brought_up_to_date(place: Path) -> None:
    broken = (*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN added TEXT", "no statement"))

    with closing(open_for_writing(place)) as connection, pytest.raises(sqlite3.Error):
        migrate(connection, broken)

    store = open_store(place)
    assert store.run_ids() == [RUN]
    store.close()


def test_a_commit_is_synchronised_before_it_returns(place: Path) -> None:
    # SIGKILL cannot show the difference: only a power cut does.
    with closing(open_for_writing(place)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_no_token_is_in_the_files(place: Path) -> None:
    found = b"".join(path.read_bytes() for path in place.iterdir())

    for token in (TICKET, lease_token(1), lease_token(3)):
        text = bytes(token.reveal())
        for spelled in (text, text.hex().encode()):
            assert spelled not in found
    # The keys are there, as the design has it: without them no proof can be judged.
    assert auth_key(TICKET).reveal().hex().encode() in found
