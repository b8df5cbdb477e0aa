"""A store that is a few dictionaries: the port's twin for tests without a disk.

What it holds counts as durable the moment `commit` returns. Every name of a code and every
rule of the port holds here too, so the contract suite runs over it.
"""

import copy
from collections.abc import Sequence
from typing import assert_never

import msgspec

from controller_mock.core.actions import (
    Change,
    CountDelivery,
    CountRedelivery,
    CountResultRedelivery,
    PutCommand,
    PutCredential,
    PutEvent,
    PutResult,
    PutRun,
)
from controller_mock.core.state import (
    DurableRun,
    RunConfig,
    SettledCommand,
    StoredCall,
    StoredCommand,
    StoredRun,
    run_row,
)
from controller_mock.storage.store import (
    Batch,
    CommandRow,
    CredentialRow,
    EventIdConflict,
    StoredEvent,
    StoreFailed,
)
from protocol.errors import ErrorCode, PrpError
from protocol.event_types import INPUT_TYPES
from protocol.ids import CommandId, ControllerSeq, RunId, SourceSeq
from protocol.limits import CREDENTIALS_MAX, DIGEST_WINDOW_EVENTS, SETTLED_RESULTS_MAX


class _Tables:
    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.row = run_row(DurableRun())
        self.events: dict[int, StoredEvent] = {}
        self.event_ids: set[str] = set()
        self.commands: dict[int, CommandRow] = {}
        self.credentials: dict[str, PutCredential] = {}

    def copy(self) -> "_Tables":
        twin = copy.copy(self)
        twin.events = dict(self.events)
        twin.event_ids = set(self.event_ids)
        twin.commands = dict(self.commands)
        twin.credentials = dict(self.credentials)
        return twin


class MemoryStore:
    """A `Store` without a disk; ``fails_next`` makes the next commit fail and change nothing."""

    def __init__(self) -> None:
        self._runs: dict[RunId, _Tables] = {}
        self.fails_next = False

    def create_run(self, config: RunConfig) -> None:
        run_id = RunId(config.identity.run_id)
        if run_id in self._runs:
            raise PrpError(ErrorCode.RUN_EXISTS, run_id)
        self._runs[run_id] = _Tables(config)

    def commit(self, batches: Sequence[Batch]) -> None:
        if self.fails_next:
            self.fails_next = False
            raise StoreFailed("as the test asked")
        changed: dict[RunId, _Tables] = {}
        for run_id, changes in batches:
            if run_id not in changed:
                changed[run_id] = self._tables(run_id).copy()
            for change in changes:
                _apply(run_id, changed[run_id], change)
        self._runs.update(changed)

    def load_runs(self) -> list[tuple[RunConfig, StoredRun]]:
        return [self.load_run(run_id) for run_id in self._runs]

    def load_run(self, run_id: RunId) -> tuple[RunConfig, StoredRun]:
        tables = self._tables(run_id)
        held = list(tables.credentials.values())
        leases = [credential for credential in held if credential.kind == "lease"]
        kept = held[-CREDENTIALS_MAX:]
        first = max(1, len(tables.events) - DIGEST_WINDOW_EVENTS + 1)
        rows = list(tables.commands.values())
        return tables.config, StoredRun(
            row=tables.row,
            credentials=tuple(c for c in held if c in kept or c in leases[-1:]),
            open_commands=tuple(_open(row) for row in rows if row.status is None),
            settled=tuple(_settled(row) for row in rows if row.status is not None)[
                -SETTLED_RESULTS_MAX:
            ],
            tool_calls=_calls(tables),
            first_digest_seq=SourceSeq(first),
            digests=b"".join(
                bytes.fromhex(tables.events[seq].digest)
                for seq in range(first, len(tables.events) + 1)
            ),
        )

    def run_ids(self) -> list[RunId]:
        return list(self._runs)

    def events(self, run_id: RunId, after_seq: int, limit: int) -> list[StoredEvent]:
        found = self._runs[run_id].events if run_id in self._runs else {}
        return [event for seq, event in sorted(found.items()) if seq > after_seq][:limit]

    def commands(self, run_id: RunId) -> list[CommandRow]:
        return list(self._runs[run_id].commands.values()) if run_id in self._runs else []

    def command(self, run_id: RunId, controller_seq: int) -> CommandRow | None:
        rows = {row.controller_seq: row for row in self.commands(run_id)}
        return rows.get(controller_seq)

    def credentials(self, run_id: RunId) -> list[CredentialRow]:
        held = self._runs[run_id].credentials if run_id in self._runs else {}
        return [
            CredentialRow(
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
            for credential in held.values()
        ]

    def close(self) -> None:
        return

    def _tables(self, run_id: RunId) -> _Tables:
        if run_id not in self._runs:
            raise PrpError(ErrorCode.RUN_UNKNOWN, run_id)
        return self._runs[run_id]


def _apply(run_id: RunId, tables: _Tables, change: Change) -> None:
    match change:
        case PutEvent():
            _put_event(run_id, tables, change)
        case CountRedelivery():
            event = tables.events[change.source_seq]
            tables.events[change.source_seq] = msgspec.structs.replace(
                event, delivery_count=event.delivery_count + 1
            )
        case PutCommand():
            tables.commands[change.controller_seq] = CommandRow(
                controller_seq=change.controller_seq,
                command_id=change.command_id,
                type=change.type,
                body=msgspec.Raw(change.body),
                fingerprint=change.fingerprint,
                issued_at=change.issued_at,
                delivery_count=0,
            )
        case CountDelivery():
            _count(tables, change.controller_seq, delivery_count=1)
        case PutResult():
            _put_result(tables, change)
        case CountResultRedelivery():
            _count(tables, change.controller_seq, result_count=1)
        case PutCredential():
            tables.credentials[change.credential_id] = change
        case PutRun():
            tables.row = change
        case _:
            assert_never(change)


def _put_event(run_id: RunId, tables: _Tables, event: PutEvent) -> None:
    if event.source_event_id in tables.event_ids:
        raise EventIdConflict(run_id, event.source_seq)
    tables.event_ids.add(event.source_event_id)
    assert event.source_seq == len(tables.events) + 1, "the core hands events on in order"
    tables.events[event.source_seq] = StoredEvent(
        source_seq=event.source_seq,
        source_event_id=event.source_event_id,
        event_type=event.event_type,
        priority=event.priority,
        digest=event.digest.hex(),
        body=msgspec.Raw(event.body),
        delivery_count=1,
        received_at_unix_ms=event.received_at_unix_ms,
        connection_number=event.connection_number,
    )


def _put_result(tables: _Tables, result: PutResult) -> None:
    row = tables.commands[result.controller_seq]
    assert row.status is None, "a result is never replaced"
    tables.commands[result.controller_seq] = msgspec.structs.replace(
        row,
        status=result.status,
        result=msgspec.Raw(result.body),
        result_digest=result.digest.hex(),
        result_count=1,
        result_received_at_unix_ms=result.received_at_unix_ms,
    )


def _count(tables: _Tables, seq: int, *, delivery_count: int = 0, result_count: int = 0) -> None:
    row = tables.commands[seq]
    tables.commands[seq] = msgspec.structs.replace(
        row,
        delivery_count=row.delivery_count + delivery_count,
        result_count=row.result_count + result_count,
    )


def _calls(tables: _Tables) -> tuple[StoredCall, ...]:
    return tuple(
        StoredCall(
            msgspec.json.decode(event.body)["payload"]["semantic_tool"]["callId"], SourceSeq(seq)
        )
        for seq, event in sorted(tables.events.items())
        if event.event_type in INPUT_TYPES
    )


def _open(row: CommandRow) -> StoredCommand:
    return StoredCommand(
        body=bytes(row.body), fingerprint=row.fingerprint, deliveries=row.delivery_count
    )


def _settled(row: CommandRow) -> SettledCommand:
    assert row.status is not None
    assert row.result_digest is not None
    return SettledCommand(
        command_id=CommandId(row.command_id),
        controller_seq=ControllerSeq(row.controller_seq),
        type=row.type,
        issued_at=row.issued_at,
        fingerprint=row.fingerprint,
        status=row.status,
        result_digest=bytes.fromhex(row.result_digest),
    )
