"""How a run ended or why it stopped: one status, one reason, and the events that follow.

It decides the terminal outcome from what went wrong. It refuses to know how the fault came
about, and never calls a run succeeded that met one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.codes import RunStatus, attributes_of
from runnerd.runs.records import OperationEvent, OperationState

COMPLETED_REASON: Final = "completed"
POLICY_DENIED: Final = "policy_denied"
"""Type of the trace event that tells of a refused tool call."""

_DENIAL_PREVAILS_OVER: Final = (None, ErrorCode.LOOP_PAUSED.value)


class OutcomeAudit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is kept of a fault that has no code of its own."""

    original_code: str


class OutcomeError(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The fault that ended the run."""

    code: ErrorCode
    message: str
    audit: OutcomeAudit | UnsetType = UNSET


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The end of an attempt, as the terminal record and the result have it."""

    status: RunStatus
    finish_reason: str
    error: OutcomeError | UnsetType = UNSET


def has_denial(events: Iterable[Mapping[str, JsonValue]]) -> bool:
    """Tell whether one of an attempt's trace events is a refusal by policy."""
    return any(event.get("type") == POLICY_DENIED for event in events)


def outcome_of(error_code: str | None, *, was_denied: bool, message: str = "") -> Outcome:
    """Return how an attempt ended.

    Args:
        error_code: of the fault, or None; a code that the list does not have becomes
            ``unclassified_error`` and is kept beside it, for a person to judge.
        was_denied: whether this attempt met a `policy_denied`, see `has_denial`.
        message: words for a person.

    Source: durable-runs 1.
    """
    if was_denied and error_code in _DENIAL_PREVAILS_OVER:
        reason = ErrorCode.TOOL_APPROVAL_DENIED.value
        return Outcome(status=RunStatus.PAUSED, finish_reason=reason)
    if error_code is None:
        return Outcome(status=RunStatus.SUCCEEDED, finish_reason=COMPLETED_REASON)
    audit: OutcomeAudit | UnsetType = UNSET
    try:
        code = ErrorCode(error_code)
    except ValueError:
        code = ErrorCode.UNCLASSIFIED_ERROR
        audit = OutcomeAudit(original_code=error_code)
    return Outcome(
        status=attributes_of(code).run_status,
        finish_reason=code.value,
        error=OutcomeError(code=code, message=message, audit=audit),
    )


def ending_events(
    outcome: Outcome, state: OperationState = OperationState.RUNNING
) -> tuple[tuple[OperationEvent, str | None], ...]:
    """Return the operation's events for an outcome, in order, each with its reason.

    COMPLETE may be applied only behind a passed verification; see `journal`.

    Args:
        state: where the operation stands; what is aborting already can only fail.
    """
    reason = outcome.finish_reason
    if state is OperationState.ABORTING:
        is_aborted = outcome.status is not RunStatus.SUCCEEDED
        return ((OperationEvent.FAIL, reason if is_aborted else ErrorCode.ABORTED.value),)
    if outcome.status is RunStatus.SUCCEEDED:
        return ((OperationEvent.COMPLETE, None),)
    if outcome.status is RunStatus.PAUSED:
        return ((OperationEvent.PAUSE, reason),)
    if outcome.status is RunStatus.ABORTED:
        return ((OperationEvent.REQUEST_ABORT, reason), (OperationEvent.FAIL, reason))
    return ((OperationEvent.FAIL, reason),)
