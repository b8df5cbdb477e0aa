"""Tables and statements of the SQLite store.

It decides what a row is and that one statement serves all rows of a kind in a commit. It
refuses to know files, threads and errors.
"""

import functools
import re
from typing import Final

APPLICATION_ID: Final = 0x50525043
"""`PRPC` in the database header: the file is a controller's."""

Migrations = tuple[tuple[str, ...], ...]
"""The statements that lead from each schema version to the next, oldest first."""

_RUNS: Final = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY NOT NULL,
    position INTEGER NOT NULL UNIQUE,
    runner_instance_id TEXT NOT NULL,
    environment_lease_id TEXT NOT NULL,
    normalized_session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    item_id TEXT NOT NULL,
    runner_version TEXT NOT NULL,
    runner_digest TEXT NOT NULL,
    lease_ttl_ms INTEGER NOT NULL,
    protocol_max INTEGER NOT NULL,
    acked_source_seq INTEGER NOT NULL DEFAULT 0,
    last_controller_seq INTEGER NOT NULL DEFAULT 0,
    revocation_epoch INTEGER NOT NULL DEFAULT 0,
    connection_count INTEGER NOT NULL DEFAULT 0,
    malformed_frames INTEGER NOT NULL DEFAULT 0,
    replay_deliveries INTEGER NOT NULL DEFAULT 0,
    integrity_fault TEXT,
    run_terminal_state TEXT
) STRICT
"""

_EVENTS: Final = """
CREATE TABLE events (
    run_id TEXT NOT NULL,
    source_seq INTEGER NOT NULL,
    source_event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    priority INTEGER NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    body_digest TEXT NOT NULL,
    delivery_count INTEGER NOT NULL DEFAULT 1,
    received_at_unix_ms INTEGER NOT NULL,
    connection_number INTEGER NOT NULL,
    PRIMARY KEY (run_id, source_seq),
    UNIQUE (run_id, source_event_id)
) STRICT
"""

_COMMANDS: Final = """
CREATE TABLE commands (
    run_id TEXT NOT NULL,
    controller_seq INTEGER NOT NULL,
    command_id TEXT NOT NULL,
    type TEXT NOT NULL,
    body TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    issued_at TEXT NOT NULL,
    delivery_count INTEGER NOT NULL DEFAULT 0,
    status TEXT,
    result TEXT,
    result_digest TEXT,
    result_count INTEGER NOT NULL DEFAULT 0,
    result_received_at_unix_ms INTEGER,
    PRIMARY KEY (run_id, controller_seq)
) STRICT
"""

_CREDENTIALS: Final = """
CREATE TABLE credentials (
    position INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    credential_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    auth_key TEXT NOT NULL,
    expires_at_unix_ms INTEGER NOT NULL,
    revocation_epoch INTEGER NOT NULL,
    lease_id TEXT,
    lease_version INTEGER,
    used INTEGER NOT NULL,
    revoked INTEGER NOT NULL,
    superseded INTEGER NOT NULL
) STRICT
"""

_OWNERS: Final = """
CREATE TABLE owners (
    epoch INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_id TEXT NOT NULL
) STRICT
"""

MIGRATIONS: Final[Migrations] = (
    (
        "CREATE TABLE migrations (version INTEGER PRIMARY KEY) STRICT",
        _RUNS,
        _EVENTS,
        _COMMANDS,
        "CREATE INDEX open_commands ON commands (run_id, controller_seq) WHERE status IS NULL",
        _CREDENTIALS,
        "CREATE INDEX credentials_of_run ON credentials (run_id, position)",
    ),
    (_OWNERS,),
    (
        "CREATE INDEX tool_inputs ON events (run_id, source_seq) "
        "WHERE event_type IN ('semantic_tool.input', 'mcp_app.tool_input')",
    ),
)
"""Only ever added to."""
SCHEMA_VERSION: Final = len(MIGRATIONS)

TABLES: Final = ("commands", "credentials", "events", "migrations", "runs")


def _columns(*places: int) -> str:
    return ", ".join(f"json_extract(value, '$[{place}]')" for place in places)


INSERT_RUN: Final = """
INSERT INTO runs (
    run_id, position, runner_instance_id, environment_lease_id, normalized_session_id, turn_id,
    item_id, runner_version, runner_digest, lease_ttl_ms, protocol_max
) VALUES (?, (SELECT coalesce(max(position), 0) + 1 FROM runs), ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

# Each of these takes one JSON array with one array per row. SQLite then does the whole batch in
# one call, in which it does not need the interpreter's lock (architecture 8.2).

INSERT_EVENTS: Final = f"""
INSERT INTO events (
    run_id, source_seq, source_event_id, event_type, priority, digest, body, body_digest,
    received_at_unix_ms, connection_number
) SELECT {_columns(*range(10))} FROM json_each(?)
"""

COUNT_REDELIVERIES: Final = f"""
UPDATE events SET delivery_count = delivery_count + counted.more
FROM (SELECT {_columns(0)} AS run, {_columns(1)} AS seq, {_columns(2)} AS more FROM json_each(?))
    AS counted
WHERE run_id = counted.run AND source_seq = counted.seq
"""

INSERT_COMMANDS: Final = f"""
INSERT INTO commands (run_id, controller_seq, command_id, type, body, fingerprint, issued_at)
SELECT {_columns(*range(7))} FROM json_each(?)
"""

COUNT_DELIVERIES: Final = f"""
UPDATE commands SET delivery_count = delivery_count + counted.more
FROM (SELECT {_columns(0)} AS run, {_columns(1)} AS seq, {_columns(2)} AS more FROM json_each(?))
    AS counted
WHERE run_id = counted.run AND controller_seq = counted.seq
"""

PUT_RESULTS: Final = f"""
UPDATE commands SET status = given.status, result = given.result, result_digest = given.digest,
    result_count = 1, result_received_at_unix_ms = given.received
FROM (
    SELECT {_columns(0)} AS run, {_columns(1)} AS seq, {_columns(2)} AS status,
        {_columns(3)} AS result, {_columns(4)} AS digest, {_columns(5)} AS received
    FROM json_each(?)
) AS given
WHERE run_id = given.run AND controller_seq = given.seq AND commands.status IS NULL
"""

COUNT_RESULTS: Final = f"""
UPDATE commands SET result_count = result_count + counted.more
FROM (SELECT {_columns(0)} AS run, {_columns(1)} AS seq, {_columns(2)} AS more FROM json_each(?))
    AS counted
WHERE run_id = counted.run AND controller_seq = counted.seq AND status IS NOT NULL
"""

# `WHERE true` tells the parser that ON does not belong to a join.
PUT_CREDENTIALS: Final = f"""
INSERT INTO credentials (
    run_id, credential_id, kind, auth_key, expires_at_unix_ms, revocation_epoch, lease_id,
    lease_version, used, revoked, superseded
) SELECT {_columns(*range(11))} FROM json_each(?) WHERE true
ON CONFLICT (credential_id) DO UPDATE SET
    expires_at_unix_ms = excluded.expires_at_unix_ms, used = excluded.used,
    revoked = excluded.revoked, superseded = excluded.superseded
WHERE run_id = excluded.run_id
"""

PUT_RUNS: Final = f"""
UPDATE runs SET (
    acked_source_seq, last_controller_seq, revocation_epoch, connection_count, malformed_frames,
    replay_deliveries, integrity_fault, run_terminal_state
) = ({_columns(*range(1, 9))})
FROM json_each(?) WHERE run_id = {_columns(0)}
"""

_COLUMN: Final = re.compile(r"json_extract\(value, '\$\[(\d+)\]'\)")


@functools.cache
def of_one_row(statement: str) -> str:
    """Return the statement that takes its one row as parameters, not as JSON, to the same end."""
    parameters = _COLUMN.sub(lambda place: f"?{int(place[1]) + 1}", statement)
    return parameters.replace("FROM json_each(?)", "")


# --- Reading ------------------------------------------------------------------------------------

SELECT_RUNS: Final = """
SELECT run_id, runner_instance_id, environment_lease_id, normalized_session_id, turn_id, item_id,
    runner_version, runner_digest, lease_ttl_ms, protocol_max, acked_source_seq,
    last_controller_seq, revocation_epoch, connection_count, malformed_frames, replay_deliveries,
    integrity_fault, run_terminal_state
FROM runs WHERE ?1 IS NULL OR run_id = ?1 ORDER BY position
"""

SELECT_EVENTS: Final = """
SELECT source_seq, source_event_id, event_type, priority, digest, body, body_digest,
    delivery_count, received_at_unix_ms, connection_number
FROM events WHERE run_id = ? AND source_seq > ? ORDER BY source_seq LIMIT ?
"""

EVENT_BOUNDS: Final = """
SELECT count(*), coalesce(min(source_seq), 1), coalesce(max(source_seq), 0)
FROM events WHERE run_id = ?
"""

SELECT_DIGESTS: Final = """
SELECT digest FROM events WHERE run_id = ? AND source_seq >= ? ORDER BY source_seq
"""

SELECT_CALLS: Final = """
SELECT json_extract(body, '$.payload.semantic_tool.callId'), source_seq FROM events
WHERE run_id = ? AND event_type IN ('semantic_tool.input', 'mcp_app.tool_input')
ORDER BY source_seq
"""

_COMMAND_COLUMNS: Final = """
controller_seq, command_id, type, body, fingerprint, issued_at, delivery_count, status, result,
result_digest, result_count, result_received_at_unix_ms
"""

SELECT_COMMANDS: Final = f"""
SELECT {_COMMAND_COLUMNS} FROM commands WHERE run_id = ? ORDER BY controller_seq
"""

SELECT_COMMAND: Final = f"""
SELECT {_COMMAND_COLUMNS} FROM commands WHERE run_id = ? AND controller_seq = ?
"""

SELECT_OPEN: Final = f"""
SELECT {_COMMAND_COLUMNS} FROM commands WHERE run_id = ? AND status IS NULL ORDER BY controller_seq
"""

SELECT_SETTLED: Final = f"""
SELECT * FROM (
    SELECT {_COMMAND_COLUMNS} FROM commands WHERE run_id = ? AND status IS NOT NULL
    ORDER BY controller_seq DESC LIMIT ?
) ORDER BY controller_seq
"""

COUNT_COMMANDS: Final = "SELECT count(*) FROM commands WHERE run_id = ?"

SELECT_CREDENTIALS: Final = """
SELECT credential_id, kind, auth_key, expires_at_unix_ms, revocation_epoch, lease_id,
    lease_version, used, revoked, superseded
FROM credentials WHERE run_id = ?1 AND (
    position >= ?2
    OR position = (SELECT max(position) FROM credentials WHERE run_id = ?1 AND kind = 'lease')
) ORDER BY position
"""

NEWEST_CREDENTIALS: Final = """
SELECT coalesce(min(position), 0) FROM (
    SELECT position FROM credentials WHERE run_id = ? ORDER BY position DESC LIMIT ?
)
"""
