"""The five attributes of each code that a run can end with: one table (durable-runs 1).

It decides what a code means for a run: whether it may go on, who must act, how it is
counted. It refuses to know what a component does at once: that is `protocol.reactions`.
"""

import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.errors import ErrorCode


class Terminality(enum.StrEnum):
    """Whether the run is over."""

    TERMINAL = "terminal"
    PAUSABLE = "pausable"
    TRANSIENT = "transient"


class CancelClass(enum.StrEnum):
    """What kind of end it is."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    HUMAN = "human"
    CORRUPTION = "corruption"
    OTHER = "other"


class RetryClass(enum.StrEnum):
    """Whether and through whom another attempt makes sense."""

    FATAL = "fatal"
    HUMAN = "human"
    TRANSIENT = "transient"


class HumanAction(enum.StrEnum):
    """Whether a person has to act; required exactly when only a person may retry."""

    REQUIRED = "required"
    NONE = "none"


class RunStatus(enum.StrEnum):
    """How a run stands when it has stopped."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PAUSED = "paused"
    ABORTED = "aborted"
    TIMEOUT = "timeout"
    BUDGET_EXCEEDED = "budget_exceeded"


class CodeAttributes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a code means for the run that it ended."""

    terminality: Terminality
    cancel_class: CancelClass
    retry_class: RetryClass
    run_status: RunStatus

    @property
    def human_action(self) -> HumanAction:
        """Whether a person has to act."""
        if self.retry_class is RetryClass.HUMAN:
            return HumanAction.REQUIRED
        return HumanAction.NONE


def _of(
    terminality: Terminality,
    cancel_class: CancelClass,
    retry_class: RetryClass,
    run_status: RunStatus = RunStatus.FAILED,
) -> CodeAttributes:
    return CodeAttributes(
        terminality=terminality,
        cancel_class=cancel_class,
        retry_class=retry_class,
        run_status=run_status,
    )


_AWAITS_PERSON: Final = _of(Terminality.PAUSABLE, CancelClass.HUMAN, RetryClass.HUMAN)
_PAUSED: Final = _of(Terminality.PAUSABLE, CancelClass.HUMAN, RetryClass.HUMAN, RunStatus.PAUSED)
_REFUSED: Final = _of(Terminality.TERMINAL, CancelClass.HUMAN, RetryClass.FATAL)
_CORRUPT: Final = _of(Terminality.TERMINAL, CancelClass.CORRUPTION, RetryClass.FATAL)
_OTHER: Final = _of(Terminality.TERMINAL, CancelClass.OTHER, RetryClass.FATAL)
_STALE: Final = _of(Terminality.TERMINAL, CancelClass.HUMAN, RetryClass.HUMAN)
_ABORTED: Final = _of(Terminality.TERMINAL, CancelClass.CANCEL, RetryClass.FATAL, RunStatus.ABORTED)
_TIMEOUT: Final = _of(
    Terminality.TERMINAL, CancelClass.TIMEOUT, RetryClass.FATAL, RunStatus.TIMEOUT
)
_BUDGET: Final = _of(
    Terminality.TERMINAL, CancelClass.BUDGET, RetryClass.FATAL, RunStatus.BUDGET_EXCEEDED
)

_GROUPS: Final[tuple[tuple[CodeAttributes, tuple[ErrorCode, ...]], ...]] = (
    (
        _AWAITS_PERSON,
        (
            ErrorCode.UNKNOWN_EFFECT,
            ErrorCode.COMMITTED_EFFECT_PENDING,
            ErrorCode.TOOL_APPROVAL_DENIED,
            ErrorCode.APPROVAL_DENIED,
        ),
    ),
    (
        _PAUSED,
        (
            ErrorCode.UNCLASSIFIED_ERROR,
            ErrorCode.LOOP_PAUSED,
            ErrorCode.CONTEXT_BUDGET_EXHAUSTED,
            ErrorCode.CONTEXT_CAPABILITY_CONFLICT,
            ErrorCode.CONTEXT_ARTIFACT_MISSING,
            ErrorCode.WORKSPACE_LEASE_RECOVERY_REQUIRED,
            ErrorCode.CHILD_RUN_ORPHAN_AUDIT_REQUIRED,
            ErrorCode.DELEGATION_DISPOSITION_REQUIRED,
            ErrorCode.DELEGATION_REDELEGATION_UNSAFE,
            ErrorCode.MCP_AUTH_REQUIRED,
            ErrorCode.PROCESS_INTERRUPTED,
            ErrorCode.VERIFICATION_MISSING,
        ),
    ),
    (
        _REFUSED,
        (
            ErrorCode.RESUME_CONFIG_MISMATCH,
            ErrorCode.RESUME_INPUT_MISMATCH,
            ErrorCode.RUN_ALREADY_FINISHED,
            ErrorCode.OPERATION_NOT_RESUMABLE,
            ErrorCode.UNKNOWN_RUN,
        ),
    ),
    (
        _CORRUPT,
        (
            ErrorCode.RUN_STATE_CORRUPT,
            ErrorCode.RUN_STATE_CONFLICT,
            ErrorCode.RUN_STATE_LOCKED,
            ErrorCode.RUN_STATE_FAILED,
            ErrorCode.INVALID_RUN_ID,
            ErrorCode.RUN_ID_CONFLICT,
            ErrorCode.OPERATION_STATE_CORRUPT,
            ErrorCode.INVALID_OPERATION_STATE,
            ErrorCode.INVALID_OPERATION_TRANSITION,
            ErrorCode.EFFECT_RECEIPT_CONFLICT,
            ErrorCode.TOOL_CAPABILITY_CONFLICT,
            ErrorCode.TOOL_LIFECYCLE_INVALID,
            ErrorCode.FACT_LEDGER_POISONED,
            ErrorCode.FACT_LEDGER_TERMINAL,
            ErrorCode.DURABILITY_UNSUPPORTED,
            ErrorCode.DURABILITY_BARRIER_FAILED,
            ErrorCode.INVALID_RUN_SNAPSHOT,
            ErrorCode.LOOP_SNAPSHOT_INVALID,
            ErrorCode.LOOP_SNAPSHOT_MISMATCH,
            ErrorCode.CHECKPOINT_CORRUPT,
            ErrorCode.CHECKPOINT_CONFLICT,
            ErrorCode.CHECKPOINT_FAILED,
            ErrorCode.INVALID_CHECKPOINT_ID,
            ErrorCode.SESSION_MIGRATION_INVALID,
            ErrorCode.SESSION_MIGRATION_CONFLICT,
            ErrorCode.SESSION_MIGRATION_FAILED,
            ErrorCode.SESSION_MIGRATION_UNSUPPORTED,
            ErrorCode.SESSION_LAYOUT_CONFLICT,
            ErrorCode.SESSION_ALIAS_FAILED,
            ErrorCode.SESSION_OPEN_LOCKED,
            ErrorCode.SESSION_WRITE_LEASE_INVALID,
            ErrorCode.SESSION_RESTORE_FAILED,
            ErrorCode.INVALID_SESSION_ID,
        ),
    ),
    (
        _OTHER,
        (
            ErrorCode.CHECKPOINT_NOT_FOUND,
            ErrorCode.CHECKPOINT_TOO_LARGE,
            ErrorCode.CHECKPOINT_NOT_REVERSIBLE,
            ErrorCode.SESSION_WRITE_LOCKED,
            ErrorCode.CHILD_RUN_POLICY_ESCALATION,
        ),
    ),
    (
        _STALE,
        (
            ErrorCode.SESSION_SNAPSHOT_STALE,
            ErrorCode.SESSION_LOCK_RECOVERY_REQUIRED,
            ErrorCode.SESSION_NOT_QUIESCENT,
        ),
    ),
    (_ABORTED, (ErrorCode.ABORTED, ErrorCode.PROCESS_ABORTED)),
    (_TIMEOUT, (ErrorCode.RUN_TIMEOUT, ErrorCode.STEP_TIMEOUT, ErrorCode.PROCESS_TIMEOUT)),
    (_BUDGET, (ErrorCode.BUDGET_EXCEEDED, ErrorCode.RETRY_LIMIT, ErrorCode.STEP_LIMIT)),
)  # fmt: skip


def _rows() -> Iterator[tuple[ErrorCode, CodeAttributes]]:
    for attributes, codes in _GROUPS:
        for code in codes:
            yield code, attributes


CODE_ATTRIBUTES: Final[Mapping[ErrorCode, CodeAttributes]] = MappingProxyType(dict(_rows()))
"""The codes of runs. A code of another part of the system that ends a run makes it fail."""


def attributes_of(code: ErrorCode) -> CodeAttributes:
    """Return the five attributes of a code; of any other part's, those of a plain failure."""
    return CODE_ATTRIBUTES.get(code, _OTHER)
