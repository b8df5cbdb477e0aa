"""The terminal envelope: exact, pure, and one statement about one run."""

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import JSON_NODES_MAX
from runnerd.runs.codes import RunStatus
from runnerd.runs.metrics import run_metrics
from runnerd.runs.outcome import Outcome
from runnerd.runs.records import OperationSnapshot, OperationState
from runnerd.runs.snapshot import (
    SNAPSHOT_MEMBERS,
    Evaluation,
    RunSnapshot,
    TraceItem,
    check_result,
    encode_snapshot,
    fresh_readiness,
    read_snapshot,
    take_snapshot,
)

EVALUATION = Evaluation(
    profile="standard", scenario_results=(), quality_scores={}, security_findings=()
)


def operation(state: OperationState, run_id: str = "run-a") -> OperationSnapshot:
    return OperationSnapshot(
        schema_version=1,
        operation_id="op-1",
        run_id=run_id,
        correlation_id="run-a:op-1",
        state=state,
        transition_sequence=3,
        created_at="2026-01-01T00:00:00.000Z",
        updated_at="2026-01-01T00:00:02.000Z",
    )


def snapshot(
    state: OperationState = OperationState.COMPLETED,
    status: RunStatus = RunStatus.SUCCEEDED,
    *,
    run_id: str = "run-a",
    has_unsafe_call: bool = False,
) -> RunSnapshot:
    outcome = Outcome(status=status, finish_reason="completed")
    return take_snapshot(
        run_id=run_id,
        operation=operation(state),
        outcome=outcome,
        metrics=run_metrics([], duration_ms=5, output_chars=0),
        evaluation=EVALUATION,
        release_readiness=fresh_readiness(outcome, EVALUATION),
        trace=(),
        has_unsafe_call=has_unsafe_call,
    )


def members() -> dict[str, JsonValue]:
    value: dict[str, JsonValue] = msgspec.json.decode(encode_snapshot(snapshot()))
    return value


def test_snapshot_has_exactly_its_members_and_survives_its_encoding() -> None:
    value = members()

    assert tuple(sorted(value)) == SNAPSHOT_MEMBERS
    assert read_snapshot(value) == snapshot()


@pytest.mark.parametrize("name", SNAPSHOT_MEMBERS)
def test_snapshot_without_a_member_is_refused(name: str) -> None:
    value = members()
    del value[name]

    with pytest.raises(PrpError) as caught:
        read_snapshot(value)

    assert caught.value.code is ErrorCode.INVALID_RUN_SNAPSHOT


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("schemaVersion", True),
        ("schemaVersion", 2),
        ("resumable", 1),
        ("trace", {}),
        ("outcome", {"status": "done", "finishReason": "x"}),
        ("operation", None),
        ("extra", 1),
    ],
)
def test_snapshot_with_a_wrong_member_is_refused(name: str, wrong: JsonValue) -> None:
    with pytest.raises(PrpError):
        read_snapshot({**members(), name: wrong})


@pytest.mark.parametrize(
    ("state", "status", "has_unsafe_call", "resumable"),
    [
        (OperationState.PAUSED, RunStatus.PAUSED, False, True),
        (OperationState.PAUSED, RunStatus.PAUSED, True, False),
        (OperationState.PAUSED, RunStatus.FAILED, False, False),
        (OperationState.FAILED, RunStatus.PAUSED, False, False),
        (OperationState.FAILED, RunStatus.FAILED, False, False),
    ],
)
def test_run_is_resumable_only_when_paused_in_both_views_with_no_effect_in_doubt(
    state: OperationState, status: RunStatus, has_unsafe_call: bool, resumable: bool
) -> None:
    assert snapshot(state, status, has_unsafe_call=has_unsafe_call).resumable is resumable


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (OperationState.COMPLETED, RunStatus.FAILED),
        (OperationState.COMPLETED, RunStatus.PAUSED),
        (OperationState.FAILED, RunStatus.SUCCEEDED),
        (OperationState.RUNNING, RunStatus.SUCCEEDED),
    ],
)
def test_success_is_claimed_by_operation_and_outcome_or_by_neither(
    state: OperationState, status: RunStatus
) -> None:
    with pytest.raises(PrpError) as caught:
        snapshot(state, status)

    assert caught.value.code is ErrorCode.INVALID_RUN_SNAPSHOT


def test_operation_of_another_run_is_refused() -> None:
    with pytest.raises(PrpError):
        snapshot(run_id="run-b")


@pytest.mark.parametrize("name", ["operation", "outcome", "metrics", "trace", "checkpoints"])
def test_result_that_contradicts_its_snapshot_is_refused(name: str) -> None:
    inner = members()
    result: dict[str, JsonValue] = {**inner, "snapshot": inner}
    assert check_result(result) == snapshot()

    with pytest.raises(PrpError) as caught:
        check_result({**result, name: {"other": 1}})

    assert caught.value.code is ErrorCode.INVALID_RUN_SNAPSHOT


def test_result_with_a_trace_longer_than_any_message_is_compared_as_well() -> None:
    entry: JsonValue = {
        "eventId": "e",
        "runId": "run-a",
        "sequence": 1,
        "timestamp": "now",
        "event": {},
    }
    entries: list[JsonValue] = [entry]
    trace: JsonValue = entries * JSON_NODES_MAX
    inner: dict[str, JsonValue] = {**members(), "trace": trace}
    result: dict[str, JsonValue] = {**inner, "snapshot": inner}

    assert len(check_result(result).trace) == JSON_NODES_MAX
    with pytest.raises(PrpError):
        check_result({**result, "trace": [entry]})


def test_half_a_character_cannot_be_in_a_snapshot() -> None:
    entry = TraceItem(
        event_id="e", run_id="run-a", sequence=1, timestamp="now", event={"x": "\ud800"}
    )
    broken = msgspec.structs.replace(snapshot(), trace=(entry,))

    with pytest.raises(PrpError) as caught:
        encode_snapshot(broken)

    assert caught.value.code is ErrorCode.INVALID_RUN_SNAPSHOT


def test_number_that_is_not_finite_cannot_be_in_a_snapshot() -> None:
    broken = msgspec.structs.replace(
        snapshot(),
        evaluation=msgspec.structs.replace(EVALUATION, quality_scores={"q": float("nan")}),
    )

    with pytest.raises(PrpError):
        encode_snapshot(broken)
