"""Every bound of the system with its unit and source, and the relations between them.

It decides how much is too much. It refuses to know what happens then: that is the code's
reaction in `reactions`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Carrier (prp-wire 1)
FRAME_BYTES_MAX: Final = MIB
"""A WebSocket text payload; exactly this size is accepted."""
FRAME_BYTES_FLOOR: Final = KIB
FRAME_BYTES_CEILING: Final = 16 * MIB
"""Range of --max-frame-bytes (runner-behaviour 1)."""
UPGRADE_HEADER_BYTES_MAX: Final = 16 * KIB
CONNECT_URL_BYTES_MAX: Final = 512
CA_BUNDLE_BYTES_MAX: Final = 4 * MIB

# Canonical JSON (prp-wire 2.1)
JSON_DEPTH_MAX: Final = 64
JSON_NODES_MAX: Final = 10_000
SAFE_INTEGER_MAX: Final = 2**53 - 1

# Secure frames (prp-wire 4)
TAG_BYTES: Final = 16
SEALED_WRAPPER_BYTES_MAX: Final = 128
"""Longest text around the hex ciphertext of a secure frame."""
SEALED_PLAINTEXT_BYTES_MAX: Final = (FRAME_BYTES_MAX - SEALED_WRAPPER_BYTES_MAX) // 2 - TAG_BYTES
"""Largest plaintext that fits one sealed frame; sizes are judged against it at admission (R18)."""
ENVELOPE_BYTES_MAX: Final = 8 * KIB
"""Longest text around a body: ids of at most 240 ASCII characters, fixed names, a welcome."""
BODY_BYTES_MAX: Final = SEALED_PLAINTEXT_BYTES_MAX - ENVELOPE_BYTES_MAX
"""Largest event, command or result that surely fits one sealed frame (R18)."""
FRAMES_PER_KEY_MAX: Final = 2**24
"""Reconnect for fresh keys before this many frames in one direction (R21)."""
KEY_LIFETIME_MS_MAX: Final = 24 * 3600 * 1000

# Identities (runner-behaviour 1, prp-wire 7.2)
RUN_ID_LENGTH_MAX: Final = 160
TURN_ID_LENGTH_MAX: Final = 240
WIRE_IDENTITY_LENGTH_MAX: Final = 240
ARTIFACT_TEXT_BYTES_MAX: Final = 512
COMMAND_ID_LENGTH_MAX: Final = 160
EVENT_ID_LENGTH_MAX: Final = 160
ISSUED_AT_BYTES_MAX: Final = 64

# Handshake and connection (prp-wire 3, runner-behaviour 10)
CHALLENGE_TTL_MS: Final = 5_000
HANDSHAKE_FRAME_BYTES_MAX: Final = 64 * KIB
"""A frame of a stranger; upstream's hello and challenge are about 1 KiB."""
NONCE_LENGTH_MAX: Final = 256
"""A peer's nonce is repeated in the challenge; upstream sends 64 and 36 characters."""
OWNER_ID_LENGTH_MAX: Final = 64
"""Of a controller's start; ours draw 32 hex digits."""
HANDSHAKE_STEP_TIMEOUT_MS: Final = 2_000
TCP_CONNECT_TIMEOUT_MS: Final = 3_000
CONNECTION_ATTEMPT_TIMEOUT_MS: Final = 30_000
TICKET_TTL_MS: Final = 5_000
TICKET_TTL_MS_CEILING: Final = 60_000
LEASE_TTL_MS: Final = 30_000
LEASE_TTL_MS_CEILING: Final = 24 * 3600 * 1000
RENEWAL_RETRY_MS_MAX: Final = 5_000
RECONNECT_DELAY_MS: Final = 250
RECONNECT_DELAY_MS_CEILING: Final = 60_000
RECONNECT_BACKOFF_MS_MAX: Final = 5_000
RECONNECT_BACKOFF_DOUBLINGS_MAX: Final = 5
RECONNECT_JITTER_PERCENT: Final = 25
BOOTSTRAP_DEADLINE_MS: Final = 60_000
"""A bootstrap that is never accepted ends after this long."""
BOOTSTRAP_DEADLINE_MS_CEILING: Final = 24 * 3600 * 1000
RESOLVE_TIMEOUT_MS: Final = 10_000
"""Longest wait for a name server; the addresses are then kept for the life of the process."""
PEER_SILENCE_MS: Final = 15_000
"""A runner that has received nothing for this long asks its peer for a sign of life."""
PEER_ANSWER_TIMEOUT_MS: Final = 10_000
"""A peer that gives none for this long is taken for lost."""
TERMINAL_ACK_TIMEOUT_MS: Final = 2_000
REVOKE_FLUSH_TIMEOUT_MS: Final = 2_000
SHUTDOWN_TIMEOUT_MS: Final = 10_000
"""Longest wait for the outbox and the result's acknowledgement after a terminal command."""
STOP_TIMEOUT_MS: Final = 5_000
"""Longest graceful stop after SIGTERM."""
HARNESS_GRACE_MS: Final = 2_000
"""Between TERM and KILL of a harness group."""
HARNESS_PAUSE_MS: Final = 600_000
"""Longest that a program waits for room for its output before its turn fails (R17)."""
CONNECTIONS_UNAUTHENTICATED_MAX: Final = 256
WRITE_BUFFER_HIGH_BYTES: Final = 256 * KIB
"""Above this many unsent bytes a controller stops reading the connection (architecture 8.1)."""
WRITE_BUFFER_BYTES_MAX: Final = 4 * MIB
"""Above this many unsent bytes a controller drops the connection; a welcome and a command fit."""
WRITE_STALL_TIMEOUT_MS: Final = 30_000
"""A peer that reads nothing for this long is dropped."""
READ_AHEAD_BYTES_MAX: Final = MIB
"""Read from all connections during one commit; then reading waits (architecture 8.2)."""
SOCKET_READ_BYTES: Final = 64 * KIB
"""One read of a socket, into memory that is kept. The event loop's own 256 KiB are mapped and
unmapped for every read, which costs more than to open a frame."""
STORE_RETRY_MS: Final = 100
STORE_RETRY_MS_MAX: Final = 5_000
"""Between attempts to load a fenced run again; doubles from the first to the second."""

# Outbox (runner-behaviour 1 and 6)
OUTBOX_BYTES_MAX: Final = 16 * MIB
OUTBOX_BYTES_CEILING: Final = 512 * MIB
P0_RESERVE_BYTES: Final = MIB
OUTBOX_PAUSE_BYTES: Final = 384 * KIB
"""Producers are paused above this many unacknowledged bytes, so a replacement stays cheap (D7).

A third of it cost a quarter of the throughput: reading waited for every acknowledgement."""

# Commands (runner-behaviour 7, prp-wire 8)
COMMAND_RECORDS_MAX: Final = 128
COMMANDS_PER_RUN_MAX: Final = 500
"""Open commands of one run in a controller's queue."""
SETTLED_RESULTS_MAX: Final = 256
"""Settled commands that a controller remembers to judge a result that comes again."""
CREDENTIALS_MAX: Final = 64
"""Tickets and ended leases of one run that a controller remembers to name why one is refused."""
RESULT_BYTES_MAX: Final = 64 * KIB
COMMAND_JOURNAL_BYTES_MAX: Final = 2 * MIB
REPLAY_FILTER_BYTES: Final = 4 * KIB
REPLAY_FILTER_WARN_IDS: Final = 2_000
"""From this many compacted ids a P0 event warns of false refusals (R14)."""
REPLAY_FILTER_IDS_MAX: Final = 4_000
"""From this many compacted ids new turns are refused and the session must rotate (R14)."""

# Events at the controller
DIGEST_WINDOW_EVENTS: Final = 65_536
"""Committed events whose digest is held to compare redeliveries."""
SEMANTIC_INPUT_BYTES_MAX: Final = 480 * KIB

# A runner's shell
TICKET_BYTES_MAX: Final = 4 * KIB
"""A ticket in a file."""
SHELL_SLEEP_MS_MAX: Final = 1_000
"""How late a deadline may be noticed after the machine was suspended: timers do not count that."""
STANDING_DEADLINE_MS: Final = 50
"""Between two tellings of one deadline that stands because something else than time is missing."""
LOG_LINE_BYTES_MAX: Final = 4 * KIB
"""A pipe takes a line of this size whole or not at all. Source: pipe(7), PIPE_BUF."""

# Diagnostics (runner-behaviour 14)
DIAGNOSTICS_FILE_BYTES_MAX: Final = 64 * KIB
DIAGNOSTICS_MAX: Final = 32
DIAGNOSTIC_BYTES_MAX: Final = 4 * KIB

# State file
STATE_BYTES_OVERHEAD_MAX: Final = 16 * MIB
"""A state file may exceed --max-outbox-bytes by this much (runner-behaviour 3)."""
ROOM_RETRY_MS: Final = 2_000
"""Between two looks for room on a disk that was full."""
RESERVE_STEP_BYTES: Final = 256 * KIB
"""The physical reserve beside a state file grows by this much at a time (faults R15)."""
LEFTOVER_NAMES_MAX: Final = 10_000
"""Names of a state directory that are looked at for leftover siblings at start (faults S20)."""
LOCK_POLL_MS: Final = 5
"""Between two tries for a lock that another process has (durable-runs 2)."""

# Run logs (durable-runs 2)
RUN_LOCK_TIMEOUT_MS: Final = 10_000
"""Longest wait for another writer of one run."""
RUN_RECORD_BYTES_MAX: Final = 16 * MIB
"""A line of a run log; what could not be read again is not written."""
RUN_READ_BYTES: Final = MIB
"""One read of a run log; a reader holds this much and one line."""
RUN_LOG_ID_LENGTH_MAX: Final = 200
"""So that its log, locks and unfinished siblings have names that a file can have."""
RUN_LOG_RESERVE_BYTES: Final = 256 * KIB
"""Room beyond the end of a log in which a run can still end on a full disk (faults R15)."""
RUNS_LISTED_MAX: Final = 100_000
"""Names of a run folder that one listing looks at."""
RUN_BUNDLE_BYTES_MAX: Final = 1024 * MIB
"""A bundle that is read for its proof; a run's log and what follows from it, twice over."""
EVIDENCE_BYTES_MAX: Final = 64 * MIB
"""A file that is given as evidence for a decision about an effect."""
DECISION_TEXT_MAX: Final = 4 * KIB
"""Characters of the name and of the statement in a decision about an effect."""

# Checkpoints (durable-runs 8)
CHECKPOINT_BYTES_MAX: Final = 10 * MIB
"""Largest file that is saved before a change; a larger one blocks the change."""
CHECKPOINT_PATHS_MAX: Final = 64
"""Distinct paths that one call may change."""
CHECKPOINT_ID_LENGTH_MAX: Final = 160
SYMLINKS_FOLLOWED_MAX: Final = 40
"""Links that one path may lead over. Source: path_resolution(7)."""

# Sessions (durable-runs 7)
SESSION_ID_LENGTH_MAX: Final = 160
"""So that the names of its files, locks and unfinished siblings are ones a file can have."""
SESSION_BYTES_MAX: Final = 256 * MIB
"""A session is held in memory while it is open."""
SESSION_OPEN_TIMEOUT_MS: Final = 2_000
"""Longest wait for another process that opens the same session."""
SESSIONS_LISTED_MAX: Final = 100_000
"""Names of one folder that a listing looks at."""

TURN_TIMEOUT_MS_CEILING: Final = 366 * 24 * 3600 * 1000
"""Longest explicit turn timeout; 0 means none."""
STORAGE_RETRY_MS: Final = 500
STORAGE_RETRY_DEADLINE_MS: Final = 30_000
"""A runner that cannot write its state for this long ends."""

# Harness (runner-behaviour 12)
COALESCED_TEXT_BYTES_MAX: Final = 16 * KIB
"""Longest text of an event that stands for several updates; bounds what one merge costs."""
SNAPSHOT_EVENT_BYTES_MAX: Final = 128 * KIB
"""A run's terminal envelope that travels in `run.terminal`; of a larger one only the digest."""
TURN_END_ROOM_BYTES: Final = 8 * KIB
"""Room below the soft limit that a live turn keeps for the events of its end."""
HARNESS_READ_LINES_MAX: Final = 256
"""Lines that one read of the harness hands to the core."""
HARNESS_LINE_BYTES_MAX: Final = 64 * KIB
HARNESS_PIPE_READ_BYTES: Final = 64 * KIB
"""One read of a harness's output: what a pipe holds by default (pipe(7))."""
HARNESS_POLL_MS: Final = 5
"""Between two looks at a process tree that is being ended (runner-behaviour 12)."""
HARNESS_KILL_MS_MAX: Final = 3_000
"""Killing goes on for this long; who is left then is reported as surviving."""
HARNESS_LOOKS_MAX: Final = 64
"""Repetitions of one look at our children while they end during it."""
STDERR_PAUSE_MS: Final = 1
"""Between two full reads of standard error, so that a flood leaves the loop time to wait."""
STDERR_TAIL_LINES_MAX: Final = 32
STDERR_TAIL_BYTES_MAX: Final = 16 * KIB
PROVIDER_ARGUMENTS_MAX: Final = 256
PROVIDER_ARGUMENT_BYTES_MAX: Final = 32 * KIB
PROVIDER_ENV_NAMES_MAX: Final = 256
HARNESS_READY_MS: Final = 2_000
"""A program that speaks messages says that it is ready within this time."""
HARNESS_READY_MS_CEILING: Final = 600_000
HARNESS_RESTARTS_MAX: Final = 16
"""Most times that one turn may start its program again after it was lost."""
HARNESS_MESSAGE_BYTES_MAX: Final = 3 * MIB
"""One line of a program that speaks messages: the largest semantic input, also one with escapes."""
HARNESS_UNWRITTEN_BYTES_MAX: Final = 256 * KIB
"""Handed to a program and not read by it; above this the next command waits, alone it may pass."""
HARNESS_UNTOLD_MAX: Final = 1_024
"""Lines that wait for a program, four reads of it; above this only answers and results follow."""
HARNESS_UNTOLD_BYTES_MAX: Final = 2 * MIB
"""Of such lines but answers and results: what a program is greeted with, and some refusals."""
HARNESS_ITEMS_OPEN_MAX: Final = 256
HARNESS_ITEMS_ENDED_MAX: Final = 1_024
"""Ended items of a turn that are remembered, so that none begins twice."""
HARNESS_SCRIPT_BYTES_MAX: Final = MIB

# Requests of a harness to people
REQUESTS_PENDING_MAX: Final = 64
REQUESTS_SETTLED_MAX: Final = 128
"""Settled requests that are remembered, so that a late answer has a stated fate."""
REQUEST_BYTES_MAX: Final = 64 * KIB
REQUEST_ANSWER_BYTES_MAX: Final = 32 * KIB
REQUEST_EXPIRY_MS_CEILING: Final = 366 * 24 * 3600 * 1000

OPEN_END_BYTES: Final = 2 * KIB
"""Longest event that ends a request or a call; one for each open fits half of the reserve."""

# Calls of the controller's tools (runner-behaviour 15)
TOOLS_MAX: Final = 256
TOOL_DESCRIPTION_BYTES_MAX: Final = 16 * KIB
TOOL_SCHEMA_BYTES_MAX: Final = MIB
TOOL_RESULT_BYTES_MAX: Final = BODY_BYTES_MAX
"""No command carries a larger result, so this is what an admitted call reserves."""
TOOL_RESULT_BUDGET_BYTES: Final = 8 * MIB
"""Room for the results of all calls that have none yet or whose result was not handed over."""
TOOL_CALLS_SETTLED_MAX: Final = 256
"""Settled calls that are known exactly; older ids are in a replay filter."""
TOOL_CALLS_COMPACTED_MAX: Final = REPLAY_FILTER_IDS_MAX
"""From this many forgotten calls no new one is admitted: the session must rotate (R14)."""
TOOL_CALLS_PER_RUN_MAX: Final = 65_536
"""Calls of one run that a controller takes."""
TOOL_HANDLERS_MAX: Final = 64
"""Handlers of one controller that run at once."""
TOOL_HANDLERS_WAITING_MAX: Final = 1_024
"""Calls of one controller that wait for their handler or run; one more stays unsettled."""

assert 2 * (SEALED_PLAINTEXT_BYTES_MAX + TAG_BYTES) + SEALED_WRAPPER_BYTES_MAX <= FRAME_BYTES_MAX
assert HARNESS_LINE_BYTES_MAX * 6 + 4 * KIB <= SEALED_PLAINTEXT_BYTES_MAX
assert RESULT_BYTES_MAX < SEALED_PLAINTEXT_BYTES_MAX
assert P0_RESERVE_BYTES < OUTBOX_BYTES_MAX
assert SETTLED_RESULTS_MAX > COMMAND_RECORDS_MAX
assert WRITE_BUFFER_HIGH_BYTES + 2 * FRAME_BYTES_MAX <= WRITE_BUFFER_BYTES_MAX
assert SEMANTIC_INPUT_BYTES_MAX < SEALED_PLAINTEXT_BYTES_MAX
assert 2 * SEMANTIC_INPUT_BYTES_MAX <= HARNESS_MESSAGE_BYTES_MAX
assert TOOL_RESULT_BYTES_MAX <= TOOL_RESULT_BUDGET_BYTES
assert (
    TOOL_RESULT_BUDGET_BYTES
    + COMMAND_JOURNAL_BYTES_MAX
    + BODY_BYTES_MAX
    + REQUESTS_PENDING_MAX * REQUEST_ANSWER_BYTES_MAX
    < STATE_BYTES_OVERHEAD_MAX
)
assert TICKET_TTL_MS <= CHALLENGE_TTL_MS <= TICKET_TTL_MS_CEILING
