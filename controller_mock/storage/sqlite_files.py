"""The files of a SQLite store: a private directory, one database in it, one owner.

It decides which file may be opened at all and how a new one appears whole. It refuses to
know rows. A file that it refuses is left as it is, byte for byte.
"""

import contextlib
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Final

from controller_mock.storage.sqlite_schema import (
    APPLICATION_ID,
    MIGRATIONS,
    SCHEMA_VERSION,
    TABLES,
    Migrations,
)
from protocol.base.posix_fs import PosixFilesystem
from protocol.base.private_directory import (
    FILE_MODE,
    check_private_file,
    close_quietly,
    reason_of,
    refusal_of,
)
from protocol.errors import ErrorCode, PrpError

DATABASE_NAME: Final = "controller.db"
LOCK_NAME: Final = "controller.lock"

_NEW_NAME: Final = "controller.db.new"
_WAL_SUFFIX: Final = "-wal"
_BESIDE: Final = ("-journal", _WAL_SUFFIX, "-shm")
_LEFTOVERS: Final = (_NEW_NAME, *(_NEW_NAME + suffix for suffix in _BESIDE))
FILE_NAMES: Final = frozenset(
    (LOCK_NAME, DATABASE_NAME, *(DATABASE_NAME + suffix for suffix in _BESIDE), *_LEFTOVERS)
)
"""Every name that a store gives to a file in its directory."""

# Source: sqlite.org/fileformat.html, "The Database Header".
_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100

_BUSY_TIMEOUT_S: Final = 1.0
_DAMAGE: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")


def create_if_absent(directory: int, path: Path) -> None:
    """Make an empty database appear under its name in one step, durable when this returns.

    Raises:
        PrpError: ``state_missing`` if a log is there without its database,
            ``storage_write_failed``, ``storage_sync_failed``.
    """
    fs = PosixFilesystem()
    with _writing():
        for name in _LEFTOVERS:
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(directory, name)
        if os.path.lexists(path / DATABASE_NAME):
            return
        if os.path.lexists(path / (DATABASE_NAME + _WAL_SUFFIX)):
            raise PrpError(ErrorCode.STATE_MISSING, "a log is there and its database is not")
        descriptor = fs.create_exclusive(directory, _NEW_NAME, FILE_MODE)
        try:
            fs.change_mode(descriptor, FILE_MODE)
            with contextlib.closing(_connect(path / _NEW_NAME, "rw")) as connection:
                migrate(connection)
                connection.execute("PRAGMA journal_mode = WAL")
            fs.sync(descriptor)
        finally:
            close_quietly(fs, descriptor)
        fs.rename(directory, _NEW_NAME, DATABASE_NAME)
    try:
        fs.sync(directory)
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_SYNC_FAILED, reason_of(error)) from error


def check_database(directory: int, path: Path) -> int:
    """Refuse a database that this program must not open for writing; only read from it.

    Returns:
        Its schema version, at most ours. Or raises PrpError ``state_missing``,
        ``state_unsafe``, ``state_corrupt``, ``state_foreign``,
        ``state_version_unsupported`` or ``storage_read_failed``.
    """
    header = _read_header(directory)
    if header[: len(_MAGIC)] != _MAGIC or len(header) < _HEADER_BYTES:
        raise _corrupt("is not a database")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise PrpError(ErrorCode.STATE_FOREIGN, f"{DATABASE_NAME} belongs to another program")
    # Without a log the file is all there is, and reading it so leaves no files beside it.
    mode = "ro" if _has_log(path) else "ro&immutable=1"
    with reading(), contextlib.closing(_connect(path / DATABASE_NAME, mode)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if not 1 <= version <= SCHEMA_VERSION:
            words = f"{DATABASE_NAME} has version {version}, not {SCHEMA_VERSION}"
            raise PrpError(ErrorCode.STATE_VERSION_UNSUPPORTED, words)
        if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise _corrupt("is damaged")
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not {name for (name,) in names}.issuperset(TABLES):
            raise _corrupt("lacks a table")
        return int(version)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write."""
    return _connect(path / DATABASE_NAME, "ro")


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Return a connection whose commits are durable when they return."""
    connection = _connect(path / DATABASE_NAME, "rw")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def migrate(connection: sqlite3.Connection, migrations: Migrations = MIGRATIONS) -> None:
    """Bring the schema up to the last of the migrations in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, statements in enumerate(migrations[version:], start=version + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute("INSERT INTO migrations (version) VALUES (?)", (number,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")
    connection.execute("COMMIT")


@contextlib.contextmanager
def reading() -> Generator[None]:
    """Give what SQLite raises while it reads a code; its words may quote a row, so they go."""
    try:
        yield
    except sqlite3.Error as error:
        name = name_of(error)
        # Text that does not decode is reported without a code of SQLite's own.
        if name is None or name.startswith(_DAMAGE):
            raise _corrupt(name or "holds text that does not decode") from None
        raise PrpError(ErrorCode.STORAGE_READ_FAILED, name) from None


def name_of(error: sqlite3.Error) -> str | None:
    """Return SQLite's name for an error, e.g. ``SQLITE_FULL``."""
    name: str | None = getattr(error, "sqlite_errorname", None)
    return name


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    # Threads take turns under the store's own locks.
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _read_header(directory: int) -> bytes:
    fs = PosixFilesystem()
    try:
        descriptor = fs.open_read(directory, DATABASE_NAME)
    except FileNotFoundError:
        raise PrpError(ErrorCode.STATE_MISSING, DATABASE_NAME) from None
    except OSError as error:
        raise refusal_of(error, DATABASE_NAME) from error
    try:
        check_private_file(fs, fs.fstat(descriptor), DATABASE_NAME)
        return fs.read(descriptor, _HEADER_BYTES)
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_READ_FAILED, reason_of(error)) from error
    finally:
        close_quietly(fs, descriptor)


def _has_log(path: Path) -> bool:
    try:
        return (path / (DATABASE_NAME + _WAL_SUFFIX)).stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_READ_FAILED, reason_of(error)) from error


@contextlib.contextmanager
def _writing() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, reason_of(error)) from error
    except sqlite3.Error as error:
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, name_of(error) or "") from None


def _corrupt(words: str) -> PrpError:
    return PrpError(ErrorCode.STATE_CORRUPT, f"{DATABASE_NAME} {words}")
