"""How an attempt ended: statuses, reasons and the operation's events."""

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.codes import RunStatus
from runnerd.runs.operation import accept_operation, transition
from runnerd.runs.outcome import ending_events, has_denial, outcome_of
from runnerd.runs.records import OperationEvent, OperationState, struct_members


@pytest.mark.parametrize("code", list(ErrorCode))
def test_no_fault_is_called_a_success(code: ErrorCode) -> None:
    for was_denied in (False, True):
        outcome = outcome_of(code.value, was_denied=was_denied)

        assert outcome.status is not RunStatus.SUCCEEDED
        assert OperationEvent.COMPLETE not in [event for event, _ in ending_events(outcome)]


def test_code_that_the_list_lacks_waits_for_a_person_and_is_kept() -> None:
    outcome = outcome_of("quota_of_the_moon", was_denied=False, message="words")

    assert struct_members(outcome) == {
        "status": "paused",
        "finishReason": "unclassified_error",
        "error": {
            "code": "unclassified_error",
            "message": "words",
            "audit": {"originalCode": "quota_of_the_moon"},
        },
    }


def test_denial_pauses_an_attempt_that_met_no_other_fault() -> None:
    events = [{"type": "tool_call"}, {"type": "policy_denied"}]

    outcome = outcome_of(None, was_denied=has_denial(events))

    assert struct_members(outcome) == {
        "status": "paused",
        "finishReason": "tool_approval_denied",
    }
    assert not has_denial(events[:1])


@pytest.mark.parametrize(
    ("code", "events"),
    [
        (None, [("COMPLETE", None)]),
        ("loop_paused", [("PAUSE", "loop_paused")]),
        ("aborted", [("REQUEST_ABORT", "aborted"), ("FAIL", "aborted")]),
        ("run_timeout", [("FAIL", "run_timeout")]),
        ("retry_limit", [("FAIL", "retry_limit")]),
        ("unknown_effect", [("FAIL", "unknown_effect")]),
    ],
)
def test_outcome_moves_a_running_operation(
    code: str | None, events: list[tuple[str, str | None]]
) -> None:
    found = ending_events(outcome_of(code, was_denied=False))

    assert [(event.value, reason) for event, reason in found] == events


@pytest.mark.parametrize("code", [None, "aborted", "run_timeout", "loop_paused"])
def test_what_is_aborting_can_only_fail(code: str | None) -> None:
    operation = accept_operation(run_id="r", operation_id="o", event_id="e", timestamp="2026-01-01")
    operation = transition(
        operation, OperationEvent.REQUEST_ABORT, event_id="a", timestamp="2026-01-01"
    ).operation

    for event, reason in ending_events(outcome_of(code, was_denied=False), operation.state):
        assert reason != "completed"
        operation = transition(
            operation, event, event_id="f", timestamp="2026-01-01", reason=reason
        ).operation

    assert operation.state is OperationState.FAILED
