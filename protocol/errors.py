"""The one list of error codes, and the status of a process that ends because of one.

It decides what a fault is called. It refuses to know who noticed it, how it is shown to a
person, and what else follows from it: that is `reactions`.
"""

import enum
from typing import Final


class ExitStatus(enum.IntEnum):
    """Exit statuses of both programs. Source: sysexits(3), where a meaning fits."""

    OK = 0
    RUN_FAILED = 1
    """`controller-mock run`: the run ended as failed."""
    RUN_CANCELLED = 2
    """`controller-mock run`: the run ended as cancelled."""
    RUN_UNKNOWN = 3
    """The outcome of a run, or of an effect in it, is unknown and waits for a decision."""
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
    OWNER_EPOCH_SUPERSEDED = "owner_epoch_superseded"

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
    HARNESS_PROCESS_FAILED = "harness_process_failed"
    SEMANTIC_RESULT_MISSING = "semantic_result_missing"
    HARNESS_NOT_READY = "harness_not_ready"
    HARNESS_MESSAGE_INVALID = "harness_message_invalid"
    HARNESS_MESSAGE_REFUSED = "harness_message_refused"
    DUPLICATE_SEMANTIC_RESULT_IGNORED = "duplicate_semantic_result_ignored"
    DUPLICATE_TERMINAL_IGNORED = "duplicate_terminal_ignored"

    # Requests of a harness to people
    REQUEST_INVALID = "request_invalid"
    REQUEST_UNKNOWN = "request_unknown"
    REQUEST_CONFLICT = "request_conflict"
    REQUEST_RESOLVED = "request_resolved"
    REQUEST_EXPIRED = "request_expired"
    REQUEST_CANCELLED = "request_cancelled"
    REQUESTS_FULL = "requests_full"

    # Calls of the controller's tools
    LIMITS_INVALID = "limits_invalid"
    BUDGET_LIMIT_BLIND = "budget_limit_blind"
    TOOLS_INVALID = "tools_invalid"
    TOOLS_CHANGED = "tools_changed"
    TOOL_NOT_AUTHORIZED = "tool_not_authorized"
    TOOL_INPUT_INVALID = "tool_input_invalid"
    TOOL_INPUT_TOO_LARGE = "tool_input_too_large"
    TOOL_INPUT_HOLDS_CREDENTIAL = "tool_input_holds_credential"
    TOOL_CALL_INVALID = "tool_call_invalid"
    TOOL_CALL_UNKNOWN = "tool_call_unknown"
    TOOL_CALL_CONFLICT = "tool_call_conflict"
    TOOL_CALL_SETTLED = "tool_call_settled"
    TOOL_CALL_ID_POSSIBLY_REUSED = "tool_call_id_possibly_reused"
    TOOL_CALLS_FULL = "tool_calls_full"
    TOOL_CALLS_EXHAUSTED = "tool_calls_exhausted"
    TOOL_CALLS_PENDING = "tool_calls_pending"
    TOOL_RESULT_INVALID = "tool_result_invalid"
    TOOL_RESULT_CONFLICT = "tool_result_conflict"
    SEMANTIC_TOOL_RESULT_DUPLICATE = "semantic_tool_result_duplicate"
    SEMANTIC_TOOL_NOT_DISPATCHED = "semantic_tool_not_dispatched"
    SEMANTIC_TOOL_BRIDGE_FAILED = "semantic_tool_bridge_failed"

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
    SUPERSEDED = "superseded"
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

    # Durable runs: human judgement (durable-runs 1)
    UNKNOWN_EFFECT = "unknown_effect"
    COMMITTED_EFFECT_PENDING = "committed_effect_pending"
    TOOL_APPROVAL_DENIED = "tool_approval_denied"
    APPROVAL_DENIED = "approval_denied"
    UNCLASSIFIED_ERROR = "unclassified_error"
    LOOP_PAUSED = "loop_paused"
    CONTEXT_BUDGET_EXHAUSTED = "context_budget_exhausted"
    CONTEXT_CAPABILITY_CONFLICT = "context_capability_conflict"
    CONTEXT_ARTIFACT_MISSING = "context_artifact_missing"
    WORKSPACE_LEASE_RECOVERY_REQUIRED = "workspace_lease_recovery_required"
    CHILD_RUN_ORPHAN_AUDIT_REQUIRED = "child_run_orphan_audit_required"
    DELEGATION_DISPOSITION_REQUIRED = "delegation_disposition_required"
    DELEGATION_REDELEGATION_UNSAFE = "delegation_redelegation_unsafe"
    MCP_AUTH_REQUIRED = "mcp_auth_required"
    PROCESS_INTERRUPTED = "process_interrupted"
    VERIFICATION_MISSING = "verification_missing"

    # Durable runs: operation, log and resume
    RESUME_CONFIG_MISMATCH = "resume_config_mismatch"
    RESUME_INPUT_MISMATCH = "resume_input_mismatch"
    RUN_ALREADY_FINISHED = "run_already_finished"
    OPERATION_NOT_RESUMABLE = "operation_not_resumable"
    UNKNOWN_RUN = "unknown_run"
    RUN_STATE_CORRUPT = "run_state_corrupt"
    RUN_STATE_CONFLICT = "run_state_conflict"
    RUN_STATE_LOCKED = "run_state_locked"
    RUN_STATE_FAILED = "run_state_failed"
    INVALID_RUN_ID = "invalid_run_id"
    RUN_ID_CONFLICT = "run_id_conflict"
    OPERATION_STATE_CORRUPT = "operation_state_corrupt"
    INVALID_OPERATION_STATE = "invalid_operation_state"
    INVALID_OPERATION_TRANSITION = "invalid_operation_transition"
    EFFECT_RECEIPT_CONFLICT = "effect_receipt_conflict"
    TOOL_CAPABILITY_CONFLICT = "tool_capability_conflict"
    TOOL_LIFECYCLE_INVALID = "tool_lifecycle_invalid"
    FACT_LEDGER_POISONED = "fact_ledger_poisoned"
    FACT_LEDGER_TERMINAL = "fact_ledger_terminal"
    DURABILITY_UNSUPPORTED = "durability_unsupported"
    DURABILITY_BARRIER_FAILED = "durability_barrier_failed"
    INVALID_RUN_SNAPSHOT = "invalid_run_snapshot"
    LOOP_SNAPSHOT_INVALID = "loop_snapshot_invalid"
    LOOP_SNAPSHOT_MISMATCH = "loop_snapshot_mismatch"

    # Durable runs: checkpoints
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    CHECKPOINT_CONFLICT = "checkpoint_conflict"
    CHECKPOINT_FAILED = "checkpoint_failed"
    INVALID_CHECKPOINT_ID = "invalid_checkpoint_id"
    CHECKPOINT_NOT_FOUND = "checkpoint_not_found"
    CHECKPOINT_TOO_LARGE = "checkpoint_too_large"
    CHECKPOINT_NOT_REVERSIBLE = "checkpoint_not_reversible"

    # Durable runs: sessions
    SESSION_MIGRATION_INVALID = "session_migration_invalid"
    SESSION_MIGRATION_CONFLICT = "session_migration_conflict"
    SESSION_MIGRATION_FAILED = "session_migration_failed"
    SESSION_MIGRATION_UNSUPPORTED = "session_migration_unsupported"
    SESSION_LAYOUT_CONFLICT = "session_layout_conflict"
    SESSION_ALIAS_FAILED = "session_alias_failed"
    SESSION_OPEN_LOCKED = "session_open_locked"
    SESSION_WRITE_LEASE_INVALID = "session_write_lease_invalid"
    SESSION_RESTORE_FAILED = "session_restore_failed"
    INVALID_SESSION_ID = "invalid_session_id"
    SESSION_WRITE_LOCKED = "session_write_locked"
    SESSION_SNAPSHOT_STALE = "session_snapshot_stale"
    SESSION_LOCK_RECOVERY_REQUIRED = "session_lock_recovery_required"
    SESSION_NOT_QUIESCENT = "session_not_quiescent"

    # Durable runs: how a run ends that nobody judged
    ABORTED = "aborted"
    PROCESS_ABORTED = "process_aborted"
    RUN_TIMEOUT = "run_timeout"
    STEP_TIMEOUT = "step_timeout"
    PROCESS_TIMEOUT = "process_timeout"
    BUDGET_EXCEEDED = "budget_exceeded"
    RETRY_LIMIT = "retry_limit"
    STEP_LIMIT = "step_limit"
    CHILD_RUN_POLICY_ESCALATION = "child_run_policy_escalation"


EXIT_STATUSES: Final[dict[ErrorCode, ExitStatus]] = {
    ErrorCode.RUNNER_ROLLBACK_DETECTED: ExitStatus.PROTOCOL,
    ErrorCode.CONTROLLER_ROLLBACK_DETECTED: ExitStatus.PROTOCOL,
    ErrorCode.SUPERSEDED: ExitStatus.PROTOCOL,
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

COMMAND_STATUSES: Final[dict[ErrorCode, ExitStatus]] = {
    ErrorCode.UNKNOWN_EFFECT: ExitStatus.RUN_UNKNOWN,
    ErrorCode.COMMITTED_EFFECT_PENDING: ExitStatus.RUN_UNKNOWN,
    ErrorCode.UNCLASSIFIED_ERROR: ExitStatus.RUN_UNKNOWN,
    ErrorCode.INVALID_RUN_ID: ExitStatus.USAGE,
    ErrorCode.RESUME_CONFIG_MISMATCH: ExitStatus.USAGE,
    ErrorCode.RESUME_INPUT_MISMATCH: ExitStatus.USAGE,
    ErrorCode.TOOL_CAPABILITY_CONFLICT: ExitStatus.USAGE,
    ErrorCode.UNKNOWN_RUN: ExitStatus.DATA,
    ErrorCode.RUN_ALREADY_FINISHED: ExitStatus.DATA,
    ErrorCode.OPERATION_NOT_RESUMABLE: ExitStatus.DATA,
    ErrorCode.RUN_STATE_CORRUPT: ExitStatus.DATA,
    ErrorCode.RUN_STATE_CONFLICT: ExitStatus.DATA,
    ErrorCode.OPERATION_STATE_CORRUPT: ExitStatus.DATA,
    ErrorCode.EFFECT_RECEIPT_CONFLICT: ExitStatus.DATA,
    ErrorCode.TOOL_LIFECYCLE_INVALID: ExitStatus.DATA,
    ErrorCode.INVALID_RUN_SNAPSHOT: ExitStatus.DATA,
    ErrorCode.RUN_STATE_LOCKED: ExitStatus.CANNOT_CREATE,
    ErrorCode.RUN_STATE_FAILED: ExitStatus.IO,
    ErrorCode.DURABILITY_BARRIER_FAILED: ExitStatus.IO,
    ErrorCode.INVALID_SESSION_ID: ExitStatus.USAGE,
    ErrorCode.SESSION_RESTORE_FAILED: ExitStatus.DATA,
    ErrorCode.SESSION_LAYOUT_CONFLICT: ExitStatus.DATA,
    ErrorCode.SESSION_MIGRATION_INVALID: ExitStatus.DATA,
    ErrorCode.SESSION_MIGRATION_UNSUPPORTED: ExitStatus.DATA,
    ErrorCode.SESSION_MIGRATION_CONFLICT: ExitStatus.DATA,
    ErrorCode.SESSION_OPEN_LOCKED: ExitStatus.CANNOT_CREATE,
    ErrorCode.SESSION_WRITE_LOCKED: ExitStatus.CANNOT_CREATE,
    ErrorCode.SESSION_LOCK_RECOVERY_REQUIRED: ExitStatus.CANNOT_CREATE,
    ErrorCode.SESSION_MIGRATION_FAILED: ExitStatus.IO,
    ErrorCode.SESSION_ALIAS_FAILED: ExitStatus.IO,
    ErrorCode.STORAGE_WRITE_FAILED: ExitStatus.IO,
}
"""Codes that end no daemon, but a command that a person gives about runs or sessions."""


class PrpError(Exception):
    """A fault that crosses a module boundary: a code from the list and words for a person.

    The message never holds a secret and never decides anything: callers branch on
    ``code`` or on its reaction.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.value}: {message}" if message else code.value)
        self.code = code
        self.message = message


def exit_status(code: ErrorCode) -> ExitStatus:
    """Return the documented status of a process that ends because of ``code``.

    A code that should not end a process is a fault of ours and gives ``INTERNAL``.
    """
    return EXIT_STATUSES.get(code) or COMMAND_STATUSES.get(code, ExitStatus.INTERNAL)
