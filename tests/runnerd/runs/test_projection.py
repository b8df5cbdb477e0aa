"""The state of a run from its facts alone; a log that is not understood has none."""

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.event_types import KNOWN_EVENTS
from runnerd.runs.projection import ProjectionStatus, RunProjection, project_run
from runnerd.runs.records import OperationEvent, RecordKind, struct_members
from runnerd.runs.trace_rules import EVENT_RULES
from tests.runnerd.runs.run_script import Script, in_step

METRICS: dict[str, JsonValue] = {
    "durationMs": 5, "turns": 1, "steps": {"total": 0, "succeeded": 0, "failed": 0},
    "toolCalls": 0, "toolFailures": 0, "retries": 0, "outputChars": 0,
}  # fmt: skip
EVALUATION: dict[str, JsonValue] = {
    "profile": "standard", "scenarioResults": [], "qualityScores": {}, "securityFindings": [],
}  # fmt: skip


def terminal(script: Script, status: str, reason: str) -> dict[str, JsonValue]:
    assert script.operation is not None
    return {
        "operation": struct_members(script.operation.snapshot),
        "outcome": {"status": status, "finishReason": reason},
        "metrics": METRICS,
        "evaluation": EVALUATION,
        "releaseReadiness": {"ready": False, "blockers": [], "warnings": []},
        "artifacts": [],
        "extensions": [],
    }


def paused(reason: str = "tool_approval_denied") -> Script:
    script = Script()
    script.operate(OperationEvent.PAUSE, reason)
    script.add(RecordKind.PAUSE, terminal(script, "paused", reason))
    return script


def failed() -> Script:
    script = Script()
    script.operate(OperationEvent.FAIL, "run_timeout")
    script.add(RecordKind.FINISH, terminal(script, "timeout", "run_timeout"))
    return script


def code_of(script: Script) -> str | None:
    try:
        project_run(script.records)
    except PrpError as error:
        return error.code.value
    return None


def view(script: Script) -> RunProjection:
    return project_run(script.records)


def test_last_terminal_record_of_the_attempt_decides_the_status() -> None:
    going, resumed_again = Script(), paused()
    resumed_again.add(RecordKind.RESUME, {})

    assert view(going).status is ProjectionStatus.INTERRUPTED
    assert view(paused()).status is ProjectionStatus.PAUSED
    assert view(failed()).status is ProjectionStatus.FINISHED
    assert view(resumed_again).status is ProjectionStatus.INTERRUPTED
    assert [one.has_snapshot for one in (view(paused()), view(resumed_again))] == [True, False]


def test_view_says_whether_the_run_may_go_on_and_who_must_act() -> None:
    in_doubt = Script()
    in_doubt.call(in_step("c1"))
    in_doubt.receipt(in_step("c1"), "started")
    views = [view(script) for script in (Script(), paused(), failed(), in_doubt)]

    assert [one.resumable for one in views] == [True, True, False, False]
    assert [one.requires_human for one in views] == [False, False, False, True]
    assert views[-1].unsafe_call is not None


def test_effect_in_doubt_needs_a_person_even_after_the_end() -> None:
    script = Script()
    script.call(in_step("c1"))
    script.receipt(in_step("c1"), "started")
    script.add(RecordKind.FINISH, terminal(script, "timeout", "run_timeout"))

    assert view(script).requires_human


def test_finished_run_never_goes_on_even_if_its_operation_still_runs() -> None:
    script = Script()
    script.add(RecordKind.FINISH, {})

    assert not view(script).resumable


def test_pending_approvals_and_controls_are_listed_until_they_are_settled() -> None:
    script = Script()
    for approval in ("a1", "a2"):
        script.event("approval_required", approvalId=approval, agent="main", tool="write")
    script.event("approval_resolved", approvalId="a1", decision="deny")
    script.add(RecordKind.CONTROL, {"controlId": "k1", "status": "accepted"})
    script.add(RecordKind.CONTROL, {"controlId": "k2", "status": "accepted"})
    script.add(RecordKind.CONTROL, {"controlId": "k1", "status": "applied"})

    assert view(script).pending_approvals == ("a2",)
    assert view(script).pending_controls == 1


def test_every_event_whose_shape_is_known_is_known() -> None:
    assert set(EVENT_RULES) <= KNOWN_EVENTS


@pytest.mark.parametrize("kind", sorted(KNOWN_EVENTS - set(EVENT_RULES)))
def test_known_event_without_a_shape_of_its_own_passes(kind: str) -> None:
    script = Script()
    script.event(kind)

    assert code_of(script) is None


def test_event_of_an_unknown_type_is_not_acted_on() -> None:
    script = Script()
    script.event("mystery_event")

    assert code_of(script) == "run_state_corrupt"


def test_shuffled_records_have_no_state() -> None:
    """The original sorts them (weak point 8)."""
    script = Script()
    script.records[0], script.records[1] = script.records[1], script.records[0]

    assert code_of(script) == "run_state_corrupt"


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("outcome", {"status": "odd", "finishReason": "x"}),
        ("outcome", {"status": "paused"}),
        ("outcome", "paused"),
        ("operation", {"state": "paused"}),
        ("metrics", {}),
        ("metrics", {**METRICS, "turns": "1"}),
        ("metrics", {**METRICS, "turns": True}),
        ("metrics", {**METRICS, "turns": float("inf")}),
        ("metrics", {**METRICS, "steps": {"total": 0}}),
        ("evaluation", {**EVALUATION, "profile": "lax"}),
        ("evaluation", {**EVALUATION, "qualityScores": {"a": "b"}}),
        ("evaluation", {**EVALUATION, "securityFindings": {}}),
        ("releaseReadiness", {"ready": 1, "blockers": [], "warnings": []}),
        ("artifacts", {}),
        ("artifacts", [{"artifactId": "a"}]),
        ("extensions", [{"status": "succeeded"}]),
    ],
)
def test_malformed_part_of_a_terminal_record_is_never_ignored(
    member: str, value: JsonValue
) -> None:
    script = Script()
    script.operate(OperationEvent.PAUSE)
    script.add(RecordKind.PAUSE, {**terminal(script, "paused", "loop_paused"), member: value})

    assert code_of(script) == "run_state_corrupt"


CHECKPOINT: dict[str, JsonValue] = {
    "version": 1, "checkpointId": "k1", "runId": "run-1", "timestamp": "2026-01-01T00:00:00Z",
    "tool": "write", "reversible": True, "snapshotFile": "k1.json",
}  # fmt: skip
AFTER: dict[str, JsonValue] = {"afterExisted": True, "afterSha256": "b" * 64}


@pytest.mark.parametrize(
    ("records", "is_whole"),
    [
        ([CHECKPOINT], True),
        ([CHECKPOINT, CHECKPOINT], True),
        ([CHECKPOINT, {**CHECKPOINT, **AFTER}], True),
        ([CHECKPOINT, {**CHECKPOINT, **AFTER}, {**CHECKPOINT, **AFTER}], True),
        ([CHECKPOINT, {**CHECKPOINT, "tool": "edit"}], False),
        ([{**CHECKPOINT, **AFTER}, CHECKPOINT], False),
        ([{**CHECKPOINT, **AFTER}, {**CHECKPOINT, "afterExisted": False}], False),
        ([{**CHECKPOINT, "version": True}], False),
    ],
)
def test_checkpoint_may_only_gain_its_after_state(records: list[JsonValue], is_whole: bool) -> None:
    script = Script()
    for payload in records:
        script.add(RecordKind.CHECKPOINT, payload)

    assert (code_of(script) is None) == is_whole


@pytest.mark.parametrize(
    ("events", "code"),
    [
        (["input_receipt", "input_claimed"], None),
        (["input_receipt", "input_claimed", "input_completed"], None),
        (["input_claimed"], "run_state_corrupt"),
        (["input_receipt", "input_completed"], "run_state_corrupt"),
        (["input_receipt", "input_receipt"], "run_state_corrupt"),
        (["input_receipt", "input_discarded", "input_claimed"], "run_state_corrupt"),
    ],
)
def test_inputs_follow_their_order(events: list[str], code: str | None) -> None:
    script = Script()
    for kind in events:
        script.event(kind, inputId="i1")

    assert code_of(script) == code


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (RecordKind.START, "x"),
        (RecordKind.PAUSE, "x"),
        (RecordKind.CONTROL, None),
        (RecordKind.RESUME, []),
        (RecordKind.VERIFICATION, 1),
        (RecordKind.CHECKPOINT, {}),
        (RecordKind.LOOP, {}),
        (RecordKind.EVENT, {"note": 1}),
    ],
)
def test_malformed_payload_of_a_known_kind_is_refused(kind: RecordKind, payload: JsonValue) -> None:
    script = Script(begun=kind is not RecordKind.START)
    script.add(kind, payload)

    assert code_of(script) == "run_state_corrupt"


def test_broken_chain_of_the_operation_has_its_own_code() -> None:
    script = Script()
    script.records = [script.records[0], *script.records[2:]]
    script.records = [
        type(record)(
            run_id=record.run_id,
            sequence=number,
            timestamp=record.timestamp,
            kind=record.kind,
            payload=record.payload,
        )
        for number, record in enumerate(script.records, start=1)
    ]

    assert code_of(script) == "operation_state_corrupt"
