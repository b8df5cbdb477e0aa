"""The operation's machine: every pair, every order of checks, restoring without sorting."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.operation import (
    Operation,
    accept_operation,
    legal_target,
    restore_operation,
    transition,
)
from runnerd.runs.records import OperationEvent, OperationState, struct_members

NOW = "2026-01-01T00:00:00.000Z"
TABLE = {
    "accepted": {
        "START": "running",
        "RESUME": "running",
        "REQUEST_ABORT": "aborting",
        "FAIL": "failed",
    },
    "running": {
        "PAUSE": "paused",
        "REQUEST_ABORT": "aborting",
        "COMPLETE": "completed",
        "FAIL": "failed",
    },
    "paused": {
        "START": "running",
        "RESUME": "running",
        "REQUEST_ABORT": "aborting",
        "FAIL": "failed",
    },
    "aborting": {"FAIL": "failed"},
    "completed": {},
    "failed": {},
}
"""Copied from durable-runs 1."""
WAYS = {
    "accepted": (),
    "running": ("START",),
    "paused": ("START", "PAUSE"),
    "aborting": ("REQUEST_ABORT",),
    "completed": ("START", "COMPLETE"),
    "failed": ("FAIL",),
}
pairs = pytest.mark.parametrize(
    ("state", "event"),
    [*itertools.product(TABLE, [event.value for event in OperationEvent])],
)


def accepted() -> Operation:
    return accept_operation(run_id="r", operation_id="o", event_id="e0", timestamp=NOW)


def reached(*events: str) -> Operation:
    operation = accepted()
    for place, event in enumerate(events, start=1):
        operation = transition(
            operation, OperationEvent(event), event_id=f"e{place}", timestamp=NOW
        ).operation
    return operation


def members(operation: Operation) -> list[dict[str, JsonValue]]:
    return [struct_members(record) for record in operation.records]


def restore_refusal(payloads: list[dict[str, JsonValue]]) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        restore_operation(payloads)
    return caught.value.code


@pairs
def test_event_leads_where_the_table_says_and_nowhere_else(state: str, event: str) -> None:
    before = reached(*WAYS[state])
    assert before.state.value == state
    target = TABLE[state].get(event)

    found = legal_target(before.state, OperationEvent(event))

    assert (None if found is None else found.value) == target
    if target is None:
        with pytest.raises(PrpError) as caught:
            transition(before, OperationEvent(event), event_id="new", timestamp=NOW)
        assert caught.value.code is ErrorCode.INVALID_OPERATION_TRANSITION
    else:
        change = transition(before, OperationEvent(event), event_id="new", timestamp=NOW)
        assert change.operation.state.value == target
        assert change.operation.records[:-1] == before.records


@given(st.lists(st.tuples(st.sampled_from(OperationEvent), st.integers(0, 5))))
def test_no_history_leaves_the_table(events: list[tuple[OperationEvent, int]]) -> None:
    operation = accepted()
    for event, number in events:
        before = operation
        try:
            change = transition(operation, event, event_id=f"n{number}", timestamp=NOW)
        except PrpError:
            continue
        operation = change.operation
        if change.record is None:
            assert operation == before
        else:
            assert TABLE[before.state.value][event.value] == operation.state.value
    assert restore_operation(members(operation)) == operation


def test_known_event_id_changes_nothing_even_in_a_terminal_state() -> None:
    operation = reached("START", "COMPLETE")

    change = transition(operation, OperationEvent.FAIL, event_id="e0", timestamp="no instant")

    assert change.operation == operation
    assert change.record is None


@pytest.mark.parametrize("event_id", ["", " ", "\t\n", "\ufeff"])
def test_blank_event_id_is_refused_before_anything_else(event_id: str) -> None:
    with pytest.raises(PrpError) as caught:
        transition(reached("FAIL"), OperationEvent.START, event_id=event_id, timestamp="no instant")

    assert caught.value.code is ErrorCode.INVALID_OPERATION_STATE


def test_illegal_event_is_refused_as_such_when_its_instant_is_wrong_too() -> None:
    with pytest.raises(PrpError) as caught:
        transition(reached("FAIL"), OperationEvent.START, event_id="x", timestamp="no instant")

    assert caught.value.code is ErrorCode.INVALID_OPERATION_TRANSITION


@pytest.mark.parametrize("missing", ["run_id", "operation_id", "event_id", "correlation_id"])
def test_operation_with_a_blank_id_is_not_accepted(missing: str) -> None:
    ids = {"run_id": "r", "operation_id": "o", "event_id": "e", "correlation_id": "c"}

    with pytest.raises(PrpError) as caught:
        accept_operation(**{**ids, missing: " "}, timestamp=NOW)

    assert caught.value.code is ErrorCode.INVALID_OPERATION_STATE


def test_reason_is_kept_in_the_record_even_when_empty_and_shown_only_when_not() -> None:
    running = reached("START")

    empty = transition(running, OperationEvent.PAUSE, event_id="p", timestamp=NOW, reason="")
    named = transition(running, OperationEvent.FAIL, event_id="f", timestamp=NOW, reason="why")

    assert struct_members(empty.operation.records[-1])["reason"] == ""
    assert "pauseReason" not in struct_members(empty.operation.snapshot)
    assert struct_members(named.operation.snapshot)["failureReason"] == "why"
    assert "reason" not in struct_members(running.records[-1])


def test_records_in_another_order_are_refused_and_never_sorted() -> None:
    records = members(reached("START", "PAUSE", "RESUME", "COMPLETE"))

    for order in itertools.permutations(range(len(records))):
        if order != tuple(range(len(records))):
            shuffled = [records[place] for place in order]
            assert restore_refusal(shuffled) is ErrorCode.OPERATION_STATE_CORRUPT


@pytest.mark.parametrize(
    "change",
    [
        {"event": "FAIL"},
        {"event": "ACCEPT"},
        {"event": "JUMP"},
        {"eventId": " "},
        {"eventId": "e0"},
        {"to": "failed"},
        {"from": None},
        {"from": "running"},
        {"schemaVersion": 2},
        {"schemaVersion": True},
        {"sequence": "2"},
        {"sequence": 3},
        {"timestamp": "soon"},
        {"timestamp": 5},
        {"runId": "other"},
        {"correlationId": "other"},
        {"operationId": 7},
        {"reason": None},
    ],
    ids=str,
)
def test_restored_record_must_follow_in_every_member(change: dict[str, JsonValue]) -> None:
    first, second = members(reached("START"))

    refused = restore_refusal([first, {**second, **change}])

    assert refused is ErrorCode.OPERATION_STATE_CORRUPT


def test_resume_and_start_are_interchangeable_when_they_lead_to_the_same_state() -> None:
    first, second = members(reached("START"))

    operation = restore_operation([first, {**second, "event": "RESUME"}])

    assert operation.state is OperationState.RUNNING


def test_numbers_with_a_fraction_of_zero_are_whole() -> None:
    first, second = members(reached("START"))

    operation = restore_operation([first, {**second, "sequence": 2.0, "schemaVersion": 1.0}])

    assert operation == reached("START")


@pytest.mark.parametrize("payload", [None, [], "x", 5, {}])
def test_payload_that_is_no_transition_is_corrupt(payload: JsonValue) -> None:
    with pytest.raises(PrpError) as caught:
        restore_operation([payload])

    assert caught.value.code is ErrorCode.OPERATION_STATE_CORRUPT
