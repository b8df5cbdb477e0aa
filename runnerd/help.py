"""What the program says of itself and, for each way to end, what a person can do next.

It decides words. It refuses to decide anything else.
"""

from typing import Final

import msgspec

from protocol.envelope import PROTOCOL_MAX, PROTOCOL_MIN, PROTOCOL_NAME
from protocol.errors import ErrorCode

VERSION: Final = "0.1.0"

USAGE: Final = """\
usage: runnerd --connect-url URL --state-dir DIR --run-id ID --session-id ID --turn-id ID
               --item-id ID --runner-id ID --environment-lease-id ID --runner-version TEXT
               --runner-digest TEXT [OPTIONS]
       runnerd inspect --state-dir DIR [--json]
       runnerd runs COMMAND [...]             logs of runs; see `runnerd runs --help`
       runnerd sessions COMMAND [...]         conversations; see `runnerd sessions --help`

The daemon of one agent run: it connects to a controller, starts the agent when told to, and
keeps every event and command result on disk until the controller has acknowledged it.

The one-use bootstrap ticket comes in the environment variable
PAPERCLIP_RUNNER_BOOTSTRAP_TICKET, which is overwritten at once, or in a file (see below).
It is never an argument.

`inspect` shows what a state directory holds and what a restart would do. It changes nothing,
works beside a running daemon, and ends with the status with which a start would refuse the state.

required:
  --connect-url URL            ws:// to a loopback address, or wss:// to a verified server
  --state-dir DIR              private directory; created with mode 0700 if it is absent
  --run-id ID, --session-id ID, --turn-id ID, --item-id ID
                               letters, digits and . _ : - ; at most 160 (turn, item: 240)
  --runner-id ID, --environment-lease-id ID
  --runner-version TEXT, --runner-digest TEXT

options (`--name VALUE` or `--name=VALUE`):
  --ticket-file FILE           read the ticket from a private file, then remove the file;
                               without it, $CREDENTIALS_DIRECTORY is looked into when the
                               variable is absent
  --ca-bundle-path FILE        private PEM file trusted beside the system's roots (wss:// only)
  --max-outbox-bytes N         default 16777216
  --p0-reserve-bytes N         default 1048576; less than the outbox
  --max-frame-bytes N          default 1048576
  --reconnect-delay-ms N       default 250; doubles up to 5000 with jitter
  --reconnect-grace-ms N       end after being disconnected for so long; default: never
  --max-runtime-ms N           end after so long; default 0: never
  --bootstrap-deadline-ms N    end if no controller accepts the ticket; default 60000
  --diagnostics-directory DIR  private directory for the message of a fatal error
  --log-level LEVEL            debug, info, warning or error; default $RUNNERD_LOG or info
  --help, --version, --build-metadata

accepted and ignored: --fake-harness --fake-harness-script --lifecycle-mode --idle-timeout-ms
                      --max-lifetime-ms

exit status:
   0  the run was shut down, suspended or revoked, and everything was delivered
  64  usage: a flag or the destination            65  a damaged, foreign or newer state file
  69  no controller was reached in time           70  a fault of the program
  73  unusable or locked state directory          74  the disk failed
  75  stopped or without authority, resumable     76  both histories contradict each other
  77  no ticket
Each end other than 0 writes one line `runnerd: CODE: MESSAGE; REMEDY` to standard error.
"""

_FRESH_TICKET: Final = "start again with a fresh ticket to resume"
_LOOK_AT_FILE: Final = "nothing was changed: look at it, or use another --state-dir for a new run"
_LOOK_AT_HISTORIES: Final = "find out which of both was restored from an older copy"
_LOOK_AT_DISK: Final = "check the disk, then " + _FRESH_TICKET
_LOOK_AT_CONTROLLER: Final = "check the controller, then " + _FRESH_TICKET

ENDS: Final[dict[ErrorCode, tuple[str, str]]] = {
    ErrorCode.USAGE_INVALID: ("the command line is not valid", "see runnerd --help"),
    ErrorCode.TICKET_MISSING: (
        "there is no bootstrap ticket",
        "set PAPERCLIP_RUNNER_BOOTSTRAP_TICKET or pass --ticket-file, with a fresh ticket",
    ),
    ErrorCode.DESTINATION_REFUSED: (
        "the controller may not be reached there",
        "use ws:// with a loopback address, or wss://",
    ),
    ErrorCode.BOOTSTRAP_CONSUMED: (
        "the controller did not welcome the runner after its proof, and the ticket may be spent",
        _FRESH_TICKET,
    ),
    ErrorCode.BOOTSTRAP_DEADLINE_EXCEEDED: (
        "no controller accepted the ticket in time",
        _LOOK_AT_CONTROLLER,
    ),
    ErrorCode.TRANSPORT_RECONNECT_GRACE_EXCEEDED: (
        "the controller was out of reach for longer than --reconnect-grace-ms",
        _LOOK_AT_CONTROLLER,
    ),
    ErrorCode.TRANSPORT_RECONNECT_DEADLINE_EXCEEDED: (
        "the run took longer than --max-runtime-ms",
        _FRESH_TICKET,
    ),
    ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP: ("the lease is over", _FRESH_TICKET),
    ErrorCode.REVOCATION_FLUSH_REQUIRES_BOOTSTRAP: (
        "the run was revoked before every event was delivered",
        "start again with a fresh ticket to deliver",
    ),
    ErrorCode.STOP_REQUESTED: ("stopped by a signal", _FRESH_TICKET),
    ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED: (
        "the controller has not acknowledged the end of the run",
        "start again with a fresh ticket to deliver",
    ),
    ErrorCode.SUPERSEDED: (
        "another process has proven this runner's identity with a fresh ticket",
        "if that was no mistake, never start this copy of the state again",
    ),
    ErrorCode.RUNNER_ROLLBACK_DETECTED: (
        "the controller knows events that this state never produced",
        _LOOK_AT_HISTORIES,
    ),
    ErrorCode.CONTROLLER_ROLLBACK_DETECTED: (
        "the controller has lost events that it had acknowledged",
        _LOOK_AT_HISTORIES,
    ),
    ErrorCode.STATE_LOCKED: ("the state directory is in use", "end the other process first"),
    ErrorCode.STATE_UNSAFE: (
        "the state directory is not private",
        "use an empty --state-dir, or give its files mode 0600 if they are this run's",
    ),
    ErrorCode.STATE_MISSING: ("the state file is missing", _LOOK_AT_FILE),
    ErrorCode.STATE_CORRUPT: ("the state file is damaged", _LOOK_AT_FILE),
    ErrorCode.STATE_FOREIGN: ("the state file belongs to something else", _LOOK_AT_FILE),
    ErrorCode.STATE_VERSION_UNSUPPORTED: (
        "the state file is of a newer version",
        "use the program version that wrote it",
    ),
    ErrorCode.STORAGE_READ_FAILED: ("the state cannot be read", _LOOK_AT_DISK),
    ErrorCode.STORAGE_WRITE_FAILED: ("the state cannot be written", _LOOK_AT_DISK),
    ErrorCode.STORAGE_SYNC_FAILED: ("the disk may not have kept the state", _LOOK_AT_DISK),
    ErrorCode.STORAGE_UNAVAILABLE: ("the state could not be written for too long", _LOOK_AT_DISK),
    ErrorCode.INTERNAL_FAULT: (
        "a fault of this program",
        "report it; the state file is whole, " + _FRESH_TICKET,
    ),
}
"""What each code with which this program ends means, and what a person can do about it."""

_LOOK_AT_RUN: Final = "see `runnerd runs resume --dry-run` and `runnerd runs show`"
_LOOK_AT_LOG: Final = "nothing was changed: look at the log, or at a bundle of it"
_RECONCILE: Final = "find out what happened outside, then `runnerd runs reconcile`"

_LOOK_AT_SESSION: Final = "the public file was left as it is: see `runnerd sessions inspect`"
_MIGRATE_AGAIN: Final = "check the disk, then give the command again"

COMMAND_ENDS: Final[dict[ErrorCode, tuple[str, str]]] = {
    ErrorCode.UNKNOWN_EFFECT: ("nobody knows what became of an effect", _RECONCILE),
    ErrorCode.COMMITTED_EFFECT_PENDING: ("an effect is done and its step is not", _RECONCILE),
    ErrorCode.UNCLASSIFIED_ERROR: ("the run met a fault without a name", _LOOK_AT_RUN),
    ErrorCode.INVALID_RUN_ID: ("no run has such a name", "see `runnerd runs list`"),
    ErrorCode.UNKNOWN_RUN: ("there is no such run", "see `runnerd runs list`"),
    ErrorCode.RESUME_CONFIG_MISMATCH: (
        "the run was begun with another configuration",
        "use that one, or begin a new run",
    ),
    ErrorCode.RESUME_INPUT_MISMATCH: (
        "the run was begun with another prompt",
        "use that one, or begin a new run",
    ),
    ErrorCode.TOOL_CAPABILITY_CONFLICT: ("a tool is not what it was", _LOOK_AT_RUN),
    ErrorCode.RUN_ALREADY_FINISHED: ("the run is over", "begin a new run"),
    ErrorCode.OPERATION_NOT_RESUMABLE: ("the run is over", "begin a new run"),
    ErrorCode.RUN_STATE_CORRUPT: ("the log is damaged", _LOOK_AT_LOG),
    ErrorCode.RUN_STATE_CONFLICT: ("two facts stand for one", _LOOK_AT_LOG),
    ErrorCode.OPERATION_STATE_CORRUPT: ("the run's transitions do not follow", _LOOK_AT_LOG),
    ErrorCode.EFFECT_RECEIPT_CONFLICT: ("the decision cannot be made", _LOOK_AT_RUN),
    ErrorCode.TOOL_LIFECYCLE_INVALID: ("the phases of a call do not follow", _LOOK_AT_LOG),
    ErrorCode.INVALID_RUN_SNAPSHOT: ("the run's end contradicts itself", _LOOK_AT_LOG),
    ErrorCode.RUN_STATE_LOCKED: (
        "another process writes this run",
        "wait for it or end it; no lock is removed while its process lives",
    ),
    ErrorCode.RUN_STATE_FAILED: ("the disk refused", "check the disk and the path"),
    ErrorCode.DURABILITY_BARRIER_FAILED: (
        "the disk may not have kept what was written",
        "check the disk, then look again with `verify`",
    ),
    ErrorCode.INVALID_SESSION_ID: ("no session has such a name", "see `runnerd sessions inspect`"),
    ErrorCode.SESSION_RESTORE_FAILED: ("the session cannot be read", _LOOK_AT_SESSION),
    ErrorCode.SESSION_LAYOUT_CONFLICT: ("two files claim one session", _LOOK_AT_SESSION),
    ErrorCode.SESSION_MIGRATION_INVALID: ("no whole legacy session", _LOOK_AT_SESSION),
    ErrorCode.SESSION_MIGRATION_UNSUPPORTED: (
        "the legacy session holds what this version cannot keep",
        "the public file was left as it is: keep it until a version can",
    ),
    ErrorCode.SESSION_MIGRATION_CONFLICT: ("the backup is of something else", _LOOK_AT_SESSION),
    ErrorCode.SESSION_OPEN_LOCKED: ("another process opens this session", "try again"),
    ErrorCode.SESSION_WRITE_LOCKED: ("another process writes this session", "end it first"),
    ErrorCode.SESSION_LOCK_RECOVERY_REQUIRED: (
        "a lock has no living owner",
        "prove that nobody uses the session, back up both, then remove the lock",
    ),
    ErrorCode.SESSION_MIGRATION_FAILED: ("the disk refused", _MIGRATE_AGAIN),
    ErrorCode.SESSION_ALIAS_FAILED: ("the disk refused", _MIGRATE_AGAIN),
}
"""The same for the codes with which only a command about runs or sessions ends."""


def words_of(code: ErrorCode) -> tuple[str, str]:
    """Return what a code means and what a person can do about it."""
    unnamed = (code.value.replace("_", " "), "report it")
    return ENDS.get(code) or COMMAND_ENDS.get(code, unnamed)


class _Prp(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = PROTOCOL_NAME
    minimum_version: int = PROTOCOL_MIN
    maximum_version: int = PROTOCOL_MAX


class _BuildMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    # Both names are part of the contract: a supervisor that checks them refuses any other.
    schema: str = "paperclip-runner/runnerd-build-metadata/v1"
    binary_name: str = "paperclip-runnerd"
    package_name: str = "@paperclipai/paperclip-runner"
    package_version: str = VERSION
    binary_contract_version: int = 2
    native_execution_version: int = 1
    harness_driver_version: int = 1
    prp: _Prp = _Prp()
    prp_transport_modes: tuple[str, ...] = ("dial_ws_loopback", "dial_wss")
    durable_session_capabilities: tuple[str, ...] = (
        "unlimited_runtime",
        "connection_lease_renewal",
    )


def build_metadata() -> str:
    """Return the one JSON line by which a supervisor checks what it is about to start.

    Source: runner-behaviour 1.
    """
    return msgspec.json.encode(_BuildMetadata()).decode()


def last_line(code: ErrorCode, message: str = "", detail: str = "", remedy: str = "") -> str:
    """Return the line with which the program ends: code, words, what to do; no control character.

    Args:
        message: what happened; the code's own words if empty.
        detail: stands in brackets behind the words.
        remedy: what to do; the code's own words if empty.
    """
    words, usual = words_of(code)
    words = (message or words) + (f" ({detail})" if detail else "")
    line = f"runnerd: {code.value}: {words}; {remedy or usual}"
    return "".join(character if character.isprintable() else "?" for character in line)
