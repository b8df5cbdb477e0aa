"""`controller-mock inspect`: what a store holds, read beside a controller that may be running.

It decides which facts of a run are shown and in which order. It refuses to write, and to
show a body, a key or a token.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.console.timeline import payload_of, printable
from controller_mock.core.state import RunConfig, StoredRun
from controller_mock.storage.sqlite_reads import SqliteReader
from controller_mock.storage.store import CommandRow, CredentialRow, StoredEvent
from protocol.canonical_json import JsonValue
from protocol.ids import Identity, RunId

_EVENTS_PER_READ: Final = 1_000
_OUTCOME_TYPES: Final = frozenset({"run.terminal", "turn.interrupted", "runner.reconciled"})


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the table of runs."""

    run_id: str
    outcome: str | None
    """What `run.terminal` said; None while the run is open."""
    revoked: bool
    events: int
    commands: int
    open_commands: int
    connections: int
    integrity_fault: str | None


class ConnectionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The events that first arrived on one connection."""

    number: int
    first_source_seq: int
    last_source_seq: int
    first_received_at_unix_ms: int
    last_received_at_unix_ms: int


class RunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run in full, without bodies."""

    summary: RunSummary
    identity: Identity
    runner_version: str
    runner_digest: str
    acked_source_seq: int
    last_controller_seq: int
    revocation_epoch: int
    malformed_frames: int
    replay_deliveries: int
    events_by_type: dict[str, int]
    redelivered_events: int
    connections: list[ConnectionSummary]
    commands: list[CommandRow]
    credentials: list[CredentialRow]
    milestones: list[StoredEvent]
    """The run's end, interruptions and restarts."""


def report_all(data: Path) -> list[RunSummary]:
    """Return all runs of a store in the order of their creation; PrpError as `beside` has it."""
    reader = SqliteReader.beside(data)
    try:
        return [_summary(config, stored) for config, stored in reader.load_runs()]
    finally:
        reader.close()


def report_one(data: Path, run_id: RunId) -> RunReport:
    """Return one run; PrpError ``run_unknown`` or as `SqliteReader.beside` has it.

    Every event and result is read, so a row that does not prove itself is found here.
    """
    reader = SqliteReader.beside(data)
    try:
        config, stored = reader.load_run(run_id)
        types: Counter[str] = Counter()
        connections: dict[int, ConnectionSummary] = {}
        milestones: list[StoredEvent] = []
        redelivered = 0
        for event in _events(reader, run_id):
            types[event.event_type] += 1
            redelivered += event.delivery_count > 1
            connections[event.connection_number] = _widened(
                connections.get(event.connection_number), event
            )
            if event.event_type in _OUTCOME_TYPES:
                milestones.append(event)
        return RunReport(
            summary=_summary(config, stored),
            identity=config.identity,
            runner_version=config.runner_version,
            runner_digest=config.runner_digest,
            acked_source_seq=stored.row.acked_source_seq,
            last_controller_seq=stored.row.last_controller_seq,
            revocation_epoch=stored.row.revocation_epoch,
            malformed_frames=stored.row.malformed_frames,
            replay_deliveries=stored.row.replay_deliveries,
            events_by_type=dict(sorted(types.items())),
            redelivered_events=redelivered,
            connections=sorted(connections.values(), key=lambda found: found.number),
            commands=reader.commands(run_id),
            credentials=reader.credentials(run_id),
            milestones=milestones,
        )
    finally:
        reader.close()


def _events(reader: SqliteReader, run_id: RunId) -> Iterator[StoredEvent]:
    after = 0
    while batch := reader.events(run_id, after, _EVENTS_PER_READ):
        yield from batch
        after = batch[-1].source_seq


def _summary(config: RunConfig, stored: StoredRun) -> RunSummary:
    row = stored.row
    return RunSummary(
        run_id=config.identity.run_id,
        outcome=row.run_terminal_state,
        revoked=row.revocation_epoch > 0,
        events=row.acked_source_seq,
        commands=row.last_controller_seq,
        open_commands=len(stored.open_commands),
        connections=row.connection_count,
        integrity_fault=row.integrity_fault,
    )


def _widened(found: ConnectionSummary | None, event: StoredEvent) -> ConnectionSummary:
    return ConnectionSummary(
        number=event.connection_number,
        first_source_seq=event.source_seq if found is None else found.first_source_seq,
        last_source_seq=event.source_seq,
        first_received_at_unix_ms=(
            event.received_at_unix_ms if found is None else found.first_received_at_unix_ms
        ),
        last_received_at_unix_ms=event.received_at_unix_ms,
    )


# --- for a person -----------------------------------------------------------------------------


def runs_as_text(runs: list[RunSummary]) -> str:
    """Return the table of runs."""
    if not runs:
        return "no runs\n"
    head = ("RUN", "OUTCOME", "EVENTS", "COMMANDS", "OPEN", "CONNECTIONS", "FAULT")
    rows = [
        (
            run.run_id,
            _state_of(run),
            str(run.events),
            str(run.commands),
            str(run.open_commands),
            str(run.connections),
            run.integrity_fault or "-",
        )
        for run in runs
    ]
    return _table([head, *rows])


def run_as_text(report: RunReport) -> str:
    """Return one run, section by section."""
    summary, identity = report.summary, report.identity
    facts = [
        ("run", identity.run_id),
        ("outcome", _state_of(summary) + _reason_of(report.milestones)),
        ("integrity", summary.integrity_fault or "no fault"),
        ("runner", f"{identity.runner_instance_id}, version {report.runner_version}"),
        ("artifact", report.runner_digest),
        ("environment", identity.environment_lease_id),
        ("session", identity.normalized_session_id),
        ("turn, item", f"{identity.turn_id}, {identity.item_id}"),
        ("events", f"{summary.events} committed, contiguous from 1"),
        (
            "repeats",
            f"{report.redelivered_events} events arrived more than once,"
            f" {report.replay_deliveries} deliveries in all were repeats",
        ),
        ("connections", str(summary.connections)),
        ("refused", f"{report.malformed_frames} frames were not genuine"),
    ]
    sections = [_table(facts)]
    if report.events_by_type:
        counts = [(name, str(count)) for name, count in report.events_by_type.items()]
        sections.append(_table([("EVENT TYPE", "COUNT"), *counts]))
    if report.connections:
        rows = map(_connection_row, report.connections)
        sections.append(_table([("CONNECTION", "EVENTS", "FIRST", "LAST"), *rows]))
    if report.commands:
        rows = map(_command_row, report.commands)
        sections.append(_table([("SEQ", "COMMAND", "STATUS", "DELIVERED", "RESULTS"), *rows]))
    return "\n".join(sections)


def _state_of(run: RunSummary) -> str:
    return run.outcome or ("revoked" if run.revoked else "open")


def _reason_of(milestones: list[StoredEvent]) -> str:
    """Return why the run ended as it did, in brackets; empty if nothing says so."""
    for event in milestones:
        if event.event_type == "run.terminal":
            found = payload_of(event).get("reconciliation")
            reason = found.get("reason") if isinstance(found, dict) else None
            return "" if reason is None else f" ({printable(str(reason))})"
    return ""


def _connection_row(found: ConnectionSummary) -> tuple[str, ...]:
    return (
        str(found.number),
        f"{found.first_source_seq}-{found.last_source_seq}",
        _time(found.first_received_at_unix_ms),
        _time(found.last_received_at_unix_ms),
    )


def _command_row(row: CommandRow) -> tuple[str, ...]:
    code = _code_of(row)
    return (
        str(row.controller_seq),
        row.type,
        (row.status or "open") + (f" ({code})" if code else ""),
        str(row.delivery_count),
        str(row.result_count),
    )


def _code_of(row: CommandRow) -> str:
    """Return the code of a command that was not carried out; empty if there is none."""
    if not isinstance(row.result, msgspec.Raw):
        return ""
    members: JsonValue = msgspec.json.decode(row.result)
    result = members.get("result") if isinstance(members, dict) else None
    code = result.get("code") if isinstance(result, dict) else None
    return printable(code) if isinstance(code, str) else ""


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"
