"""Reading of a SQLite store, by its owner and beside it.

It decides whether a row proves itself. It refuses to write, and to know what a run does
next.
"""

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import msgspec

from controller_mock.core.actions import PutCredential, PutRun
from controller_mock.core.digest_window import DIGEST_BYTES
from controller_mock.core.state import (
    RunConfig,
    SettledCommand,
    StoredCall,
    StoredCommand,
    StoredRun,
)
from controller_mock.storage import sqlite_schema as sql
from controller_mock.storage.sqlite_files import check_database, open_for_reading, reading
from controller_mock.storage.store import CommandRow, CredentialRow, StoredEvent
from protocol.base.posix_fs import PosixFilesystem
from protocol.base.private_directory import close_quietly, refusal_of
from protocol.commands import command_fingerprint, decode_command, result_digest
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CommandId, ControllerSeq, CredentialId, Identity, RunId, SourceSeq
from protocol.limits import CREDENTIALS_MAX, DIGEST_WINDOW_EVENTS, SETTLED_RESULTS_MAX
from protocol.secrets import Secret

ESCAPED: Final = "\x01"
"""Starts an event id that is stored as a JSON text, because SQLite would cut it at U+0000."""

_Row = tuple[Any, ...]


class SqliteReader:
    """The reading half of a store. Any thread may call it; one call runs at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with reading():
            self._connection: sqlite3.Connection | None = open_for_reading(path)

    @classmethod
    def beside(cls, path: Path) -> "SqliteReader":
        """Open somebody else's store, whether its controller runs or not.

        Raises:
            PrpError: ``state_missing``, ``state_unsafe``, ``state_corrupt``,
                ``state_foreign``, ``state_version_unsupported``, ``storage_read_failed``.
        """
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise PrpError(ErrorCode.STATE_MISSING, "no such directory") from None
        except OSError as error:
            raise refusal_of(error, "data directory") from error
        try:
            check_database(directory, path)
        finally:
            close_quietly(PosixFilesystem(), directory)
        return cls(path)

    def close(self) -> None:
        """Give the connection up. A second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def run_ids(self) -> list[RunId]:
        """Return the names of all runs in the order of their creation."""
        with self.snapshot() as connection:
            rows = connection.execute("SELECT run_id FROM runs ORDER BY position").fetchall()
        return [RunId(run_id) for (run_id,) in rows]

    def load_runs(self) -> list[tuple[RunConfig, StoredRun]]:
        """Return all runs; see `Store.load_runs`."""
        with self.snapshot() as connection:
            rows = connection.execute(sql.SELECT_RUNS, (None,)).fetchall()
            return [_stored_run(connection, row) for row in rows]

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        """Return one run; see `Store.load_run`."""
        with self.snapshot() as connection:
            row = connection.execute(sql.SELECT_RUNS, (run_id,)).fetchone()
            if row is None:
                raise PrpError(ErrorCode.RUN_UNKNOWN, run_id)
            return _stored_run(connection, row)

    def events(self, run_id: RunId, after_seq: int, limit: int) -> list[StoredEvent]:
        """Return committed events; see `Store.events`."""
        with self.snapshot() as connection:
            rows = connection.execute(sql.SELECT_EVENTS, (run_id, after_seq, limit)).fetchall()
        return [_event(row) for row in rows]

    def commands(self, run_id: RunId) -> list[CommandRow]:
        """Return all commands; see `Store.commands`."""
        with self.snapshot() as connection:
            rows = connection.execute(sql.SELECT_COMMANDS, (run_id,)).fetchall()
        return [_command(row) for row in rows]

    def command(self, run_id: RunId, controller_seq: int) -> CommandRow | None:
        """Return one command; see `Store.command`."""
        with self.snapshot() as connection:
            row = connection.execute(sql.SELECT_COMMAND, (run_id, controller_seq)).fetchone()
        return None if row is None else _command(row)

    def credentials(self, run_id: RunId) -> list[CredentialRow]:
        """Return all credentials without their keys; see `Store.credentials`."""
        with self.snapshot() as connection:
            rows = connection.execute(sql.SELECT_CREDENTIALS, (run_id, 0)).fetchall()
        return [_credential_row(_credential(row)) for row in rows]

    @contextlib.contextmanager
    def snapshot(self) -> Generator[sqlite3.Connection]:
        """Let several statements see one committed state; errors leave with a code."""
        with self._lock, reading():
            assert self._connection is not None, "the store is closed"
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                # A failing disk has ended the transaction already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _stored_run(connection: sqlite3.Connection, row: _Row) -> tuple[RunConfig, StoredRun]:
    config, stored_row = _config(row), _run_row(row)
    run_id = config.identity.run_id
    count, lowest, highest = connection.execute(sql.EVENT_BOUNDS, (run_id,)).fetchone()
    _require(count == highest == stored_row.acked_source_seq and lowest == 1, "events are missing")
    (commands,) = connection.execute(sql.COUNT_COMMANDS, (run_id,)).fetchone()
    _require(commands == stored_row.last_controller_seq, "commands are missing")
    open_ = connection.execute(sql.SELECT_OPEN, (run_id,)).fetchall()
    settled = connection.execute(sql.SELECT_SETTLED, (run_id, SETTLED_RESULTS_MAX)).fetchall()
    newest = connection.execute(sql.NEWEST_CREDENTIALS, (run_id, CREDENTIALS_MAX)).fetchone()
    credentials = connection.execute(sql.SELECT_CREDENTIALS, (run_id, *newest)).fetchall()
    first = max(1, highest - DIGEST_WINDOW_EVENTS + 1)
    digests = connection.execute(sql.SELECT_DIGESTS, (run_id, first)).fetchall()
    return config, StoredRun(
        row=stored_row,
        credentials=tuple(_credential(found) for found in credentials),
        open_commands=tuple(_open_command(_command(found)) for found in open_),
        settled=tuple(_settled_command(_command(found)) for found in settled),
        first_digest_seq=SourceSeq(first),
        digests=_joined(digests),
        tool_calls=_calls(connection, run_id),
    )


def _calls(connection: sqlite3.Connection, run_id: str) -> tuple[StoredCall, ...]:
    found: list[StoredCall] = []
    for call_id, source_seq in connection.execute(sql.SELECT_CALLS, (run_id,)):
        _require(isinstance(call_id, str), f"event {source_seq} carries no call")
        found.append(StoredCall(call_id, SourceSeq(source_seq)))
    return tuple(found)


def _config(row: _Row) -> RunConfig:
    try:
        return RunConfig(
            identity=Identity(
                run_id=row[0],
                runner_instance_id=row[1],
                environment_lease_id=row[2],
                normalized_session_id=row[3],
                turn_id=row[4],
                item_id=row[5],
            ),
            runner_version=row[6],
            runner_digest=row[7],
            lease_ttl_ms=row[8],
            protocol_max=row[9],
        )
    except ValueError:
        raise _corrupt("a run has an impossible configuration") from None


def _run_row(row: _Row) -> PutRun:
    return PutRun(
        acked_source_seq=row[10],
        last_controller_seq=row[11],
        revocation_epoch=row[12],
        connection_count=row[13],
        malformed_frames=row[14],
        replay_deliveries=row[15],
        integrity_fault=row[16],
        run_terminal_state=row[17],
    )


def _joined(rows: list[tuple[str]]) -> bytes:
    try:
        digests = bytes.fromhex("".join(digest for (digest,) in rows))
    except ValueError:
        raise _corrupt("a digest is not hex") from None
    _require(len(digests) == len(rows) * DIGEST_BYTES, "a digest has another length")
    return digests


def _event(row: _Row) -> StoredEvent:
    event_id, body = row[1], row[5].encode()
    _require(hashlib.sha256(body).hexdigest() == row[6], f"event {row[0]} has changed")
    return StoredEvent(
        source_seq=row[0],
        source_event_id=_plain_id(event_id),
        event_type=row[2],
        priority=row[3],
        digest=row[4],
        body=msgspec.Raw(body),
        delivery_count=row[7],
        received_at_unix_ms=row[8],
        connection_number=row[9],
    )


def _plain_id(event_id: str) -> str:
    if not event_id.startswith(ESCAPED):
        return event_id
    try:
        return msgspec.json.decode(event_id[len(ESCAPED) :], type=str)
    except msgspec.MsgspecError:
        raise _corrupt("an event id has changed") from None


def _command(row: _Row) -> CommandRow:
    """Return a command whose digests prove its bytes, and its result's."""
    found = CommandRow(
        controller_seq=row[0],
        command_id=row[1],
        type=row[2],
        body=msgspec.Raw(row[3].encode()),
        fingerprint=row[4],
        issued_at=row[5],
        delivery_count=row[6],
        status=row[7],
        result=msgspec.UNSET if row[8] is None else msgspec.Raw(row[8].encode()),
        result_digest=row[9],
        result_count=row[10],
        result_received_at_unix_ms=row[11],
    )
    words = f"command {found.controller_seq} has changed"
    try:
        command = decode_command(bytes(found.body))
        _require(command_fingerprint(command) == found.fingerprint, words)
        if isinstance(found.result, msgspec.Raw):
            _require(result_digest(bytes(found.result)).hex() == found.result_digest, words)
    except (PrpError, msgspec.MsgspecError):
        raise _corrupt(words) from None
    named = (command.controller_seq, command.command_id, command.type, command.issued_at)
    _require(named == (found.controller_seq, found.command_id, found.type, found.issued_at), words)
    return found


def _open_command(row: CommandRow) -> StoredCommand:
    return StoredCommand(
        body=bytes(row.body), fingerprint=row.fingerprint, deliveries=row.delivery_count
    )


def _settled_command(row: CommandRow) -> SettledCommand:
    _require(row.status is not None and row.result_digest is not None, "a result is incomplete")
    assert row.status is not None, "checked above"
    assert row.result_digest is not None, "checked above"
    return SettledCommand(
        command_id=CommandId(row.command_id),
        controller_seq=ControllerSeq(row.controller_seq),
        type=row.type,
        issued_at=row.issued_at,
        fingerprint=row.fingerprint,
        status=row.status,
        result_digest=bytes.fromhex(row.result_digest),
    )


def _credential(row: _Row) -> PutCredential:
    _require(row[1] in ("bootstrap", "lease") and row[6] in (None, 1, 2), "a credential is odd")
    try:
        key = bytes.fromhex(row[2])
    except ValueError:
        raise _corrupt("a credential's key is not hex") from None
    _require(len(key) == DIGEST_BYTES, "a credential's key has another length")
    return PutCredential(
        credential_id=CredentialId(row[0]),
        kind=row[1],
        auth_key=Secret(key),
        expires_at_unix_ms=row[3],
        revocation_epoch=row[4],
        lease_id=row[5],
        lease_version=row[6],
        used=bool(row[7]),
        revoked=bool(row[8]),
        superseded=bool(row[9]),
    )


def _credential_row(credential: PutCredential) -> CredentialRow:
    return CredentialRow(
        credential_id=credential.credential_id,
        kind=credential.kind,
        expires_at_unix_ms=credential.expires_at_unix_ms,
        revocation_epoch=credential.revocation_epoch,
        lease_id=credential.lease_id,
        lease_version=credential.lease_version,
        used=credential.used,
        revoked=credential.revoked,
        superseded=credential.superseded,
    )


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise _corrupt(words)


def _corrupt(words: str) -> PrpError:
    return PrpError(ErrorCode.STATE_CORRUPT, words)
