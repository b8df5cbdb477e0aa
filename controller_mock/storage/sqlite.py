"""The default store: SQLite in WAL mode, one transaction per commit.

It decides how the changes of all runs become one statement per kind. It refuses to know
why a change was made.
"""

import hashlib
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, assert_never

import msgspec

from controller_mock.core.actions import (
    CountDelivery,
    CountRedelivery,
    CountResultRedelivery,
    PutCommand,
    PutCredential,
    PutEvent,
    PutResult,
    PutRun,
)
from controller_mock.core.state import RunConfig, StoredRun
from controller_mock.storage import sqlite_schema as sql
from controller_mock.storage.sqlite_files import (
    FILE_NAMES,
    LOCK_NAME,
    check_database,
    create_if_absent,
    migrate,
    name_of,
    open_for_writing,
)
from controller_mock.storage.sqlite_owner import claim
from controller_mock.storage.sqlite_reads import ESCAPED, SqliteReader
from controller_mock.storage.store import (
    Batch,
    CommandRow,
    CredentialRow,
    EventIdConflict,
    StoredEvent,
    StoreFailed,
)
from protocol.base.posix_fs import Lock, PosixFilesystem, lock_directory
from protocol.base.private_directory import close_quietly, open_private_directory
from protocol.envelope import OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId

Value = str | int | None
Rows = list[tuple[Value, ...]]

_UNIQUE: Final = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
_IS_USED: Final = """
SELECT 1 FROM events WHERE run_id = ? AND source_event_id = ? AND source_seq <> ?
"""


class CommitCost(msgspec.Struct, frozen=True):
    """What all commits of a store have cost so far."""

    commits: int = 0
    statements: int = 0
    rows: int = 0


class SqliteStore:
    """A `Store` in a private directory that this process alone writes to."""

    def __init__(self, path: Path, lock: Lock, owner: OwnerEpoch) -> None:
        """Use `open_store`."""
        self.owner = owner
        self._path = path
        self._directory_lock = lock
        self._write_lock = threading.Lock()
        self._reader = SqliteReader(path)
        self._writer: sqlite3.Connection | None = None
        self._known = set(self._reader.run_ids())
        self._cost = CommitCost()
        self._is_closed = False

    @property
    def cost(self) -> CommitCost:
        """Commits, statements and rows since the store was opened."""
        return self._cost

    def create_run(self, config: RunConfig) -> None:
        """Add a run; see `Store.create_run`."""
        identity = config.identity
        if identity.run_id in self._known:
            raise PrpError(ErrorCode.RUN_EXISTS, identity.run_id)
        values = (
            identity.run_id,
            identity.runner_instance_id,
            identity.environment_lease_id,
            identity.normalized_session_id,
            identity.turn_id,
            identity.item_id,
            config.runner_version,
            config.runner_digest,
            config.lease_ttl_ms,
            config.protocol_max,
        )
        with self._write_lock:
            self._transact([(sql.INSERT_RUN, values, 1)])
        self._known.add(RunId(identity.run_id))

    def commit(self, batches: Sequence[Batch]) -> None:
        """Make all changes durable or none; see `Store.commit`."""
        for run_id, _ in batches:
            if run_id not in self._known:
                raise PrpError(ErrorCode.RUN_UNKNOWN, run_id)
        statements = _statements(batches)
        with self._write_lock:
            try:
                self._transact(statements)
            except _NotUnique:
                raise self._conflict(batches) from None

    def load_runs(self) -> list[tuple[RunConfig, StoredRun]]:
        """Return all runs; see `Store.load_runs`."""
        return self._reader.load_runs()

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        """Return one run; see `Store.load_run`."""
        return self._reader.load_run(run_id)

    def run_ids(self) -> list[RunId]:
        """Return the names of all runs; see `Store.run_ids`."""
        return self._reader.run_ids()

    def events(self, run_id: RunId, after_seq: int, limit: int) -> list[StoredEvent]:
        """Return committed events; see `Store.events`."""
        return self._reader.events(run_id, after_seq, limit)

    def commands(self, run_id: RunId) -> list[CommandRow]:
        """Return all commands; see `Store.commands`."""
        return self._reader.commands(run_id)

    def command(self, run_id: RunId, controller_seq: int) -> CommandRow | None:
        """Return one command; see `Store.command`."""
        return self._reader.command(run_id, controller_seq)

    def credentials(self, run_id: RunId) -> list[CredentialRow]:
        """Return all credentials; see `Store.credentials`."""
        return self._reader.credentials(run_id)

    def close(self) -> None:
        """Give the store and its directory up; see `Store.close`."""
        with self._write_lock:
            self._is_closed = True
            self._reader.close()
            self._give_writer_up()
            self._directory_lock.release()

    def _transact(self, statements: Sequence[tuple[str, tuple[Value, ...], int]]) -> None:
        """Run statements in one transaction; each must touch as many rows as it says."""
        assert not self._is_closed, "the store is closed"
        try:
            writer = self._writer = self._writer or open_for_writing(self._path)
            writer.execute("BEGIN IMMEDIATE")
            for statement, values, rows in statements:
                found = writer.execute(statement, values).rowcount
                assert found == rows, f"{found} rows where {rows} were named"
            writer.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            self._give_writer_up()
            if name_of(error) in _UNIQUE:
                raise _NotUnique from None
            raise StoreFailed(name_of(error) or "a constraint") from None
        except sqlite3.Error as error:
            # A descriptor whose sync failed is not believed again (R4).
            self._give_writer_up()
            raise StoreFailed(name_of(error) or "SQLite") from None
        except BaseException:
            self._give_writer_up()
            raise
        self._cost = CommitCost(
            self._cost.commits + 1,
            self._cost.statements + len(statements),
            self._cost.rows + sum(rows for _, _, rows in statements),
        )

    def _give_writer_up(self) -> None:
        """Close the writing connection; an open transaction is rolled back with it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _conflict(self, batches: Sequence[Batch]) -> PrpError:
        """Name the event whose id is used already, in the store or in the batches."""
        seen: set[tuple[RunId, str]] = set()
        with self._reader.snapshot() as connection:
            for run_id, change in _flat(batches):
                if not isinstance(change, PutEvent):
                    continue
                key = (run_id, _stored_id(change.source_event_id))
                found = connection.execute(_IS_USED, (*key, change.source_seq)).fetchone()
                if found is not None or key in seen:
                    return EventIdConflict(run_id, change.source_seq)
                seen.add(key)
        return StoreFailed("a row is there already")


class _NotUnique(Exception):
    """A row of the commit repeats a key."""


def open_store(path: Path, neighbours: Collection[str] = ()) -> SqliteStore:
    """Open the store in a directory, which is created with an empty one if it is absent.

    Args:
        neighbours: names beside the store that are the program's own as well; see
            `open_private_directory`.

    Raises:
        PrpError: ``state_locked`` while another process has it, ``state_unsafe``,
            ``state_missing``, ``state_corrupt``, ``state_foreign`` or
            ``state_version_unsupported``, in which cases the file is unchanged;
            ``storage_read_failed``, ``storage_write_failed``, ``storage_sync_failed``.

    Source: architecture D8, faults R9 and R24.
    """
    fs = PosixFilesystem()
    ours = FILE_NAMES.union(neighbours)
    directory = open_private_directory(fs, os.fspath(path), ours.__contains__)
    try:
        lock = lock_directory(os.fspath(path), LOCK_NAME)
        try:
            create_if_absent(directory, path)
            version = check_database(directory, path)
            if version < sql.SCHEMA_VERSION:
                _migrate(path)
            return SqliteStore(path, lock, claim(path))
        except BaseException:
            lock.release()
            raise
    finally:
        close_quietly(fs, directory)


def _migrate(path: Path) -> None:
    try:
        writer = open_for_writing(path)
        try:
            migrate(writer)
        finally:
            writer.close()
    except sqlite3.Error as error:
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, name_of(error) or "") from None


def _flat(batches: Sequence[Batch]) -> Iterable[tuple[RunId, object]]:
    return ((run_id, change) for run_id, changes in batches for change in changes)


def _statements(batches: Sequence[Batch]) -> list[tuple[str, tuple[Value, ...], int]]:
    """Return one statement per kind of change, in an order in which each finds its row."""
    events: Rows = []
    redelivered: defaultdict[tuple[str, int], int] = defaultdict(int)
    commands: Rows = []
    delivered: defaultdict[tuple[str, int], int] = defaultdict(int)
    results: Rows = []
    repeated: defaultdict[tuple[str, int], int] = defaultdict(int)
    credentials: dict[str, tuple[Value, ...]] = {}
    runs: dict[str, tuple[Value, ...]] = {}
    for run_id, changes in batches:
        for change in changes:
            match change:
                case PutEvent():
                    events.append(_event(run_id, change))
                case PutRun():
                    runs[run_id] = (run_id, *msgspec.structs.astuple(change))
                case CountRedelivery():
                    redelivered[run_id, change.source_seq] += 1
                case PutCommand():
                    commands.append(_command(run_id, change))
                case CountDelivery():
                    delivered[run_id, change.controller_seq] += 1
                case PutResult():
                    results.append(_result(run_id, change))
                case CountResultRedelivery():
                    repeated[run_id, change.controller_seq] += 1
                case PutCredential():
                    credentials[change.credential_id] = _credential(run_id, change)
                case _:
                    assert_never(change)
    kinds = (
        (sql.INSERT_EVENTS, events),
        (sql.COUNT_REDELIVERIES, _counted(redelivered)),
        (sql.INSERT_COMMANDS, commands),
        (sql.COUNT_DELIVERIES, _counted(delivered)),
        (sql.PUT_RESULTS, results),
        (sql.COUNT_RESULTS, _counted(repeated)),
        (sql.PUT_CREDENTIALS, list(credentials.values())),
        (sql.PUT_RUNS, list(runs.values())),
    )
    return [_of(statement, rows) for statement, rows in kinds if rows]


def _of(statement: str, rows: Rows) -> tuple[str, tuple[Value, ...], int]:
    if len(rows) == 1:
        # One event at a time is the common case, and JSON costs it more than its own insertion.
        return sql.of_one_row(statement), rows[0], 1
    return statement, (msgspec.json.encode(rows).decode(),), len(rows)


def _counted(counter: Mapping[tuple[str, int], int]) -> Rows:
    return [(run_id, seq, more) for (run_id, seq), more in counter.items()]


def _event(run_id: RunId, event: PutEvent) -> tuple[Value, ...]:
    return (
        run_id,
        event.source_seq,
        _stored_id(event.source_event_id),
        event.event_type,
        event.priority,
        event.digest.hex(),
        event.body.decode(),
        hashlib.sha256(event.body).hexdigest(),
        event.received_at_unix_ms,
        event.connection_number,
    )


def _stored_id(event_id: str) -> str:
    # SQLite ends a text from JSON at U+0000, and two ids must not become one.
    if "\0" in event_id or event_id.startswith(ESCAPED):
        return ESCAPED + msgspec.json.encode(event_id).decode()
    return event_id


def _command(run_id: RunId, command: PutCommand) -> tuple[Value, ...]:
    return (
        run_id,
        command.controller_seq,
        command.command_id,
        command.type,
        command.body.decode(),
        command.fingerprint,
        command.issued_at,
    )


def _result(run_id: RunId, result: PutResult) -> tuple[Value, ...]:
    return (
        run_id,
        result.controller_seq,
        result.status,
        result.body.decode(),
        result.digest.hex(),
        result.received_at_unix_ms,
    )


def _credential(run_id: RunId, credential: PutCredential) -> tuple[Value, ...]:
    return (
        run_id,
        credential.credential_id,
        credential.kind,
        credential.auth_key.reveal().hex(),
        credential.expires_at_unix_ms,
        credential.revocation_epoch,
        credential.lease_id,
        credential.lease_version,
        int(credential.used),
        int(credential.revoked),
        int(credential.superseded),
    )
