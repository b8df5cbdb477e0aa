"""The one table of error codes: each code has exactly one reaction.

It decides what a fault is called and what follows from it. It refuses to know who
noticed the fault or how it is shown to a person.
"""

import enum
from typing import Final


class Reaction(enum.Enum):
    """What a component does when it meets a code."""

    REJECT = "reject"
    """Zero effects; the sender gets an answer; state is untouched."""
    CLOSE = "close"
    """This connection ends; durable state is untouched."""
    PAUSE = "pause"
    """Work stops until a person or an authority decides."""
    FENCE = "fence"
    """No authority is exercised until the durable state has been loaded again."""
    EXIT = "exit"
    """The process ends with the documented status; its state can be resumed or names why not."""


class ExitStatus(enum.IntEnum):
    """Exit statuses of both programs. Source: sysexits(3), where a meaning fits."""

    OK = 0
    RUN_FAILED = 1
    """`controller-mock run`: the run ended as failed."""
    RUN_CANCELLED = 2
    """`controller-mock run`: the run ended as cancelled."""
    RUN_UNKNOWN = 3
    """`controller-mock run`: the outcome is unknown, e.g. interrupted work was not restarted."""
    USAGE = 64
    DATA = 65
    """A durable file is damaged, foreign or of another version; nothing was changed."""
    UNAVAILABLE = 69
    """The controller was not reached in the allowed time; start again with a fresh ticket."""
    INTERNAL = 70
    """A fault of ours. The state file is whole."""
    CANNOT_CREATE = 73
    """The state directory is not usable: wrong mode, owner or kind, or another process has it."""
    IO = 74
    """The disk refused a read or a write; the state on disk is whole."""
    RESUMABLE = 75
    """Stopped on request or out of authority; start again with a fresh ticket to resume."""
    PROTOCOL = 76
    """The two durable histories contradict each other; a person must look before a restart."""
    TICKET = 77
    """No usable bootstrap ticket."""


class ErrorCode(enum.StrEnum):
    """Stable names of faults. A code is never renamed and never reused."""

    # Carrier and frames (both ends)
    TLS_REFUSED = "tls_refused"
    UPGRADE_REFUSED = "upgrade_refused"
    FRAME_TOO_LARGE = "frame_too_large"
    FRAME_MALFORMED = "frame_malformed"
    MESSAGE_NOT_JSON = "message_not_json"
    MESSAGE_INVALID = "message_invalid"
    MESSAGE_TOO_LARGE = "message_too_large"
    MESSAGE_UNKNOWN_KIND = "message_unknown_kind"
    MESSAGE_UNEXPECTED = "message_unexpected"
    PROTOCOL_VERSION_MISMATCH = "protocol_version_mismatch"
    CONNECTION_LOST = "connection_lost"
    PEER_TIMEOUT = "peer_timeout"

    # Authentication and secure channel
    CREDENTIAL_UNKNOWN = "credential_unknown"
    CREDENTIAL_USED = "credential_used"
    CREDENTIAL_EXPIRED = "credential_expired"
    CREDENTIAL_REVOKED = "credential_revoked"
    IDENTITY_MISMATCH = "identity_mismatch"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    VERSION_RANGE_EMPTY = "version_range_empty"
    CHALLENGE_STALE = "challenge_stale"
    CHALLENGE_ALTERED = "challenge_altered"
    PROOF_INVALID = "proof_invalid"
    FRAME_COUNTER_MISMATCH = "frame_counter_mismatch"
    FRAME_NOT_AUTHENTIC = "frame_not_authentic"
    FRAMES_EXHAUSTED = "frames_exhausted"
    CONNECTION_SUPERSEDED = "connection_superseded"

    # Events and cursors
    ACK_REGRESSED = "ack_regressed"
    ACK_BEYOND_PRODUCED = "ack_beyond_produced"
    EVENT_GAP = "event_gap"
    EVENT_IDENTITY_CONFLICT = "event_identity_conflict"
    EVENT_WINDOW_EXCEEDED = "event_window_exceeded"
    EVENT_INVALID = "event_invalid"
    EVENT_TOO_LARGE = "event_too_large"
    SEMANTIC_DIGEST_MISMATCH = "semantic_digest_mismatch"
    INTEGRITY_LATCHED = "integrity_latched"
    OUTBOX_FULL = "outbox_full"
    P0_STORAGE_EXHAUSTED = "p0_storage_exhausted"
    RUNNER_ROLLBACK_DETECTED = "runner_rollback_detected"
    CONTROLLER_ROLLBACK_DETECTED = "controller_rollback_detected"

    # Commands
    COMMAND_INVALID = "command_invalid"
    COMMAND_TOO_LARGE = "command_too_large"
    COMMAND_GAP = "command_gap"
    COMMAND_CONFLICT = "command_conflict"
    COMMAND_HISTORY_COMPACTED = "command_history_compacted"
    COMMAND_ID_POSSIBLY_REUSED = "command_id_possibly_reused"
    COMMAND_HISTORY_FULL = "command_history_full"
    COMMAND_DEADLINE_PASSED = "command_deadline_passed"
    COMMAND_PRECONDITION_FAILED = "command_precondition_failed"
    COMMAND_UNSUPPORTED = "command_unsupported"
    COMMAND_EXECUTION_FAILED = "command_execution_failed"
    COMMAND_RESULT_UNKNOWN = "command_result_unknown"
    COMMAND_RESULT_CONFLICT = "command_result_conflict"
    COMMAND_QUEUE_FULL = "command_queue_full"
    EXECUTION_INDETERMINATE = "execution_indeterminate"
    RESULT_TOO_LARGE = "result_too_large"
    AUTHORITY_CHANGE_UNSUPPORTED = "authority_change_unsupported"
    PROVIDER_UNSUPPORTED = "provider_unsupported"
    PROVIDER_INVALID = "provider_invalid"
    PROVIDER_NOT_PREPARED = "provider_not_prepared"
    SESSION_NOT_OPEN = "session_not_open"
    TURN_INVALID = "turn_invalid"
    TURN_ACTIVE = "turn_active"
    TURN_NOT_ACTIVE = "turn_not_active"
    RUN_TERMINAL = "run_terminal"
    RUNNER_DRAINING = "runner_draining"
    RUNNER_REVOKED = "runner_revoked"
    RUNNER_BACKPRESSURE = "runner_backpressure"
    RUNNER_UNRECOVERABLE = "runner_unrecoverable"

    # Harness
    HARNESS_START_FAILED = "harness_start_failed"
    HARNESS_LINE_TOO_LONG = "harness_line_too_long"
    HARNESS_SURVIVED = "harness_survived"

    # Leases and revocation
    LEASE_RENEWAL_REFUSED = "lease_renewal_refused"
    LEASE_RENEWAL_UNSOLICITED = "lease_renewal_unsolicited"
    LEASE_EXPIRED_REQUIRES_BOOTSTRAP = "lease_expired_requires_bootstrap"
    REVOCATION_EPOCH_REGRESSED = "revocation_epoch_regressed"
    REVOCATION_FLUSH_REQUIRES_BOOTSTRAP = "revocation_flush_requires_bootstrap"

    # Start-up and life of the daemon
    USAGE_INVALID = "usage_invalid"
    TICKET_MISSING = "ticket_missing"
    DESTINATION_REFUSED = "destination_refused"
    BOOTSTRAP_CONSUMED = "bootstrap_consumed"
    BOOTSTRAP_DEADLINE_EXCEEDED = "bootstrap_deadline_exceeded"
    TRANSPORT_RECONNECT_GRACE_EXCEEDED = "transport_reconnect_grace_exceeded"
    TRANSPORT_RECONNECT_DEADLINE_EXCEEDED = "transport_reconnect_deadline_exceeded"
    STOP_REQUESTED = "stop_requested"
    TERMINAL_RESULT_UNACKNOWLEDGED = "terminal_result_unacknowledged"
    LISTEN_FAILED = "listen_failed"
    RUNNER_START_FAILED = "runner_start_failed"
    RUNNER_RESTARTS_EXHAUSTED = "runner_restarts_exhausted"
    INTERNAL_FAULT = "internal_fault"

    # Durable files and stores
    STATE_LOCKED = "state_locked"
    STATE_UNSAFE = "state_unsafe"
    STATE_MISSING = "state_missing"
    STATE_CORRUPT = "state_corrupt"
    STATE_FOREIGN = "state_foreign"
    STATE_VERSION_UNSUPPORTED = "state_version_unsupported"
    STORAGE_READ_FAILED = "storage_read_failed"
    STORAGE_WRITE_FAILED = "storage_write_failed"
    STORAGE_SYNC_FAILED = "storage_sync_failed"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    RUN_UNKNOWN = "run_unknown"
    RUN_EXISTS = "run_exists"


REACTIONS: Final[dict[ErrorCode, Reaction]] = {
    **dict.fromkeys(
        (
            ErrorCode.TLS_REFUSED,
            ErrorCode.UPGRADE_REFUSED,
            ErrorCode.FRAME_TOO_LARGE,
            ErrorCode.FRAME_MALFORMED,
            ErrorCode.MESSAGE_NOT_JSON,
            ErrorCode.MESSAGE_INVALID,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.MESSAGE_UNKNOWN_KIND,
            ErrorCode.MESSAGE_UNEXPECTED,
            ErrorCode.PROTOCOL_VERSION_MISMATCH,
            ErrorCode.CONNECTION_LOST,
            ErrorCode.PEER_TIMEOUT,
            ErrorCode.CREDENTIAL_UNKNOWN,
            ErrorCode.CREDENTIAL_USED,
            ErrorCode.CREDENTIAL_EXPIRED,
            ErrorCode.CREDENTIAL_REVOKED,
            ErrorCode.IDENTITY_MISMATCH,
            ErrorCode.ARTIFACT_MISMATCH,
            ErrorCode.VERSION_RANGE_EMPTY,
            ErrorCode.CHALLENGE_STALE,
            ErrorCode.CHALLENGE_ALTERED,
            ErrorCode.PROOF_INVALID,
            ErrorCode.FRAME_COUNTER_MISMATCH,
            ErrorCode.FRAME_NOT_AUTHENTIC,
            ErrorCode.FRAMES_EXHAUSTED,
            ErrorCode.CONNECTION_SUPERSEDED,
            ErrorCode.ACK_REGRESSED,
            ErrorCode.ACK_BEYOND_PRODUCED,
            ErrorCode.EVENT_GAP,
            ErrorCode.EVENT_WINDOW_EXCEEDED,
            ErrorCode.EVENT_INVALID,
            ErrorCode.COMMAND_INVALID,
            ErrorCode.COMMAND_GAP,
            ErrorCode.COMMAND_CONFLICT,
            ErrorCode.COMMAND_RESULT_UNKNOWN,
            ErrorCode.COMMAND_RESULT_CONFLICT,
            ErrorCode.LEASE_RENEWAL_REFUSED,
            ErrorCode.LEASE_RENEWAL_UNSOLICITED,
            ErrorCode.REVOCATION_EPOCH_REGRESSED,
        ),
        Reaction.CLOSE,
    ),
    **dict.fromkeys(
        (
            ErrorCode.EVENT_TOO_LARGE,
            ErrorCode.OUTBOX_FULL,
            ErrorCode.COMMAND_TOO_LARGE,
            ErrorCode.COMMAND_HISTORY_COMPACTED,
            ErrorCode.COMMAND_ID_POSSIBLY_REUSED,
            ErrorCode.COMMAND_HISTORY_FULL,
            ErrorCode.COMMAND_DEADLINE_PASSED,
            ErrorCode.COMMAND_PRECONDITION_FAILED,
            ErrorCode.COMMAND_UNSUPPORTED,
            ErrorCode.COMMAND_EXECUTION_FAILED,
            ErrorCode.COMMAND_QUEUE_FULL,
            ErrorCode.RESULT_TOO_LARGE,
            ErrorCode.AUTHORITY_CHANGE_UNSUPPORTED,
            ErrorCode.PROVIDER_UNSUPPORTED,
            ErrorCode.PROVIDER_INVALID,
            ErrorCode.PROVIDER_NOT_PREPARED,
            ErrorCode.SESSION_NOT_OPEN,
            ErrorCode.TURN_INVALID,
            ErrorCode.TURN_ACTIVE,
            ErrorCode.TURN_NOT_ACTIVE,
            ErrorCode.RUN_TERMINAL,
            ErrorCode.RUNNER_DRAINING,
            ErrorCode.RUNNER_REVOKED,
            ErrorCode.RUNNER_BACKPRESSURE,
            ErrorCode.RUNNER_UNRECOVERABLE,
            ErrorCode.HARNESS_START_FAILED,
            ErrorCode.HARNESS_LINE_TOO_LONG,
            ErrorCode.RUN_UNKNOWN,
            ErrorCode.RUN_EXISTS,
        ),
        Reaction.REJECT,
    ),
    **dict.fromkeys(
        (
            ErrorCode.EXECUTION_INDETERMINATE,
            ErrorCode.P0_STORAGE_EXHAUSTED,
            ErrorCode.HARNESS_SURVIVED,
        ),
        Reaction.PAUSE,
    ),
    **dict.fromkeys(
        (
            ErrorCode.EVENT_IDENTITY_CONFLICT,
            ErrorCode.SEMANTIC_DIGEST_MISMATCH,
            ErrorCode.INTEGRITY_LATCHED,
            ErrorCode.STORAGE_WRITE_FAILED,
        ),
        Reaction.FENCE,
    ),
    **dict.fromkeys(
        (
            ErrorCode.RUNNER_ROLLBACK_DETECTED,
            ErrorCode.CONTROLLER_ROLLBACK_DETECTED,
            ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP,
            ErrorCode.REVOCATION_FLUSH_REQUIRES_BOOTSTRAP,
            ErrorCode.USAGE_INVALID,
            ErrorCode.TICKET_MISSING,
            ErrorCode.DESTINATION_REFUSED,
            ErrorCode.BOOTSTRAP_CONSUMED,
            ErrorCode.BOOTSTRAP_DEADLINE_EXCEEDED,
            ErrorCode.TRANSPORT_RECONNECT_GRACE_EXCEEDED,
            ErrorCode.TRANSPORT_RECONNECT_DEADLINE_EXCEEDED,
            ErrorCode.STOP_REQUESTED,
            ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED,
            ErrorCode.LISTEN_FAILED,
            ErrorCode.RUNNER_START_FAILED,
            ErrorCode.RUNNER_RESTARTS_EXHAUSTED,
            ErrorCode.INTERNAL_FAULT,
            ErrorCode.STATE_LOCKED,
            ErrorCode.STATE_UNSAFE,
            ErrorCode.STATE_MISSING,
            ErrorCode.STATE_CORRUPT,
            ErrorCode.STATE_FOREIGN,
            ErrorCode.STATE_VERSION_UNSUPPORTED,
            ErrorCode.STORAGE_READ_FAILED,
            ErrorCode.STORAGE_SYNC_FAILED,
            ErrorCode.STORAGE_UNAVAILABLE,
        ),
        Reaction.EXIT,
    ),
}

EXIT_STATUSES: Final[dict[ErrorCode, ExitStatus]] = {
    ErrorCode.RUNNER_ROLLBACK_DETECTED: ExitStatus.PROTOCOL,
    ErrorCode.CONTROLLER_ROLLBACK_DETECTED: ExitStatus.PROTOCOL,
    ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP: ExitStatus.RESUMABLE,
    ErrorCode.REVOCATION_FLUSH_REQUIRES_BOOTSTRAP: ExitStatus.RESUMABLE,
    ErrorCode.USAGE_INVALID: ExitStatus.USAGE,
    ErrorCode.TICKET_MISSING: ExitStatus.TICKET,
    ErrorCode.DESTINATION_REFUSED: ExitStatus.USAGE,
    ErrorCode.BOOTSTRAP_CONSUMED: ExitStatus.RESUMABLE,
    ErrorCode.BOOTSTRAP_DEADLINE_EXCEEDED: ExitStatus.UNAVAILABLE,
    ErrorCode.TRANSPORT_RECONNECT_GRACE_EXCEEDED: ExitStatus.UNAVAILABLE,
    ErrorCode.TRANSPORT_RECONNECT_DEADLINE_EXCEEDED: ExitStatus.UNAVAILABLE,
    ErrorCode.STOP_REQUESTED: ExitStatus.RESUMABLE,
    ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED: ExitStatus.RESUMABLE,
    ErrorCode.LISTEN_FAILED: ExitStatus.UNAVAILABLE,
    ErrorCode.RUNNER_START_FAILED: ExitStatus.UNAVAILABLE,
    ErrorCode.RUNNER_RESTARTS_EXHAUSTED: ExitStatus.UNAVAILABLE,
    ErrorCode.INTERNAL_FAULT: ExitStatus.INTERNAL,
    ErrorCode.STATE_LOCKED: ExitStatus.CANNOT_CREATE,
    ErrorCode.STATE_UNSAFE: ExitStatus.CANNOT_CREATE,
    ErrorCode.STATE_MISSING: ExitStatus.DATA,
    ErrorCode.STATE_CORRUPT: ExitStatus.DATA,
    ErrorCode.STATE_FOREIGN: ExitStatus.DATA,
    ErrorCode.STATE_VERSION_UNSUPPORTED: ExitStatus.DATA,
    ErrorCode.STORAGE_READ_FAILED: ExitStatus.IO,
    ErrorCode.STORAGE_SYNC_FAILED: ExitStatus.IO,
    ErrorCode.STORAGE_UNAVAILABLE: ExitStatus.IO,
}


class PrpError(Exception):
    """A fault that crosses a module boundary: a code from the table and words for a person.

    The message never holds a secret and never decides anything: callers branch on
    ``code`` or on its reaction.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.value}: {message}" if message else code.value)
        self.code = code
        self.message = message

    @property
    def reaction(self) -> Reaction:
        """The one reaction of this code."""
        return REACTIONS[self.code]


def exit_status(code: ErrorCode) -> ExitStatus:
    """Return the documented status of a process that ends because of ``code``.

    A code that should not end a process is a fault of ours and gives ``INTERNAL``.
    """
    return EXIT_STATUSES.get(code, ExitStatus.INTERNAL)
