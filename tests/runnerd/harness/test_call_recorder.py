"""Calls and questions in the log of a run: each once, and success only when all are settled."""

from pathlib import Path

import msgspec
import pytest

from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation
from runnerd.core.inputs import HarnessExited
from runnerd.core.run_fact import CallFact, EffectWord, Exceeded, RequestFact, UsageFact
from runnerd.core.verdict import Recorded, Verdict
from runnerd.harness.recorder import RunRecorder
from runnerd.runs.effect_facts import Reason
from runnerd.runs.projection import project_run
from runnerd.runs.records import RecordKind
from runnerd.runs.resume import prepare_run_resume
from tests.runnerd.harness.test_recorder import (
    BEGUN,
    DONE,
    PROVEN,
    STOPPED,
    Syncs,
    exited,
    failed,
    left_by_a_dead_process,
    order,
    recorder,
    records,
    status,
    told,
)

BEGUN_CALL = ["step_start", "tool_call", "capability_resolved", "started"]
DONE_CALL = ["tool_result", "step_output", "committed"]
CALL = CallFact(call_id="call_1", operation_id="create_task", input_digest=sha256_label(b"{}"))
ASKED = RequestFact(request_id="ask_1", kind="permission", digest=sha256_label(b"{}"))


def answered(effect: EffectWord = "committed", *, is_error: bool | None = None) -> CallFact:
    return msgspec.structs.replace(
        CALL,
        effect=effect,
        is_error=effect != "committed" if is_error is None else is_error,
        result_digest=sha256_label(b"result"),
        result_bytes=6,
    )


def begun(folder: Path, fs: Syncs | None = None) -> RunRecorder:
    one = recorder(folder, fs)
    one.begin(order())
    return one


def end(one: RunRecorder, verdict: Verdict = DONE, seen: HarnessExited | None = None) -> Recorded:
    return one.end(exited() if seen is None else seen, verdict, (), output_chars=0)


def events(folder: Path) -> list[str]:
    """Return what the log says of calls and questions, in short."""
    found: list[str] = []
    for record in records(folder):
        if record.kind is RecordKind.CONTROL and isinstance(record.payload, dict):
            found.append(f"decided {record.payload['outcome']}")
        event = record.payload.get("event") if isinstance(record.payload, dict) else None
        if record.kind is RecordKind.EVENT and isinstance(event, dict):
            found.append(str(event.get("status") or event["type"]))
    return found


def test_a_call_that_was_answered_is_a_step_with_its_receipts(tmp_path: Path) -> None:
    one = begun(tmp_path)

    one.note((CALL,))
    assert events(tmp_path) == BEGUN_CALL
    one.note((answered(),))
    recorded = end(one)

    assert events(tmp_path) == BEGUN_CALL + DONE_CALL
    assert recorded.verdict == DONE
    assert [kind for kind in told(tmp_path) if kind != "event"] == [*BEGUN, *PROVEN]
    assert recorded.snapshot is not None
    metrics = recorded.snapshot["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["toolCalls"] == 1


def test_what_the_log_says_is_not_said_again(tmp_path: Path) -> None:
    one = begun(tmp_path)

    for fact in (CALL, CALL, answered(), answered(), CALL):
        one.note((fact, ASKED))

    assert events(tmp_path) == [*BEGUN_CALL, "approval_required", *DONE_CALL]


def test_a_call_and_its_result_take_one_sync_each(tmp_path: Path) -> None:
    fs = Syncs()
    one = begun(tmp_path, fs)
    before = fs.count

    one.note((CALL,))
    called = fs.count - before
    one.note((answered(),))

    assert (called, fs.count - before) == (1, 2)


@pytest.mark.parametrize("fact", [CALL, answered("unknown")])
def test_success_with_a_call_in_doubt_pauses_instead(fact: CallFact, tmp_path: Path) -> None:
    one = begun(tmp_path)
    one.note((CALL,))

    recorded = one.end(exited(), DONE, (fact,), output_chars=0)

    assert recorded.verdict == Verdict(reason="verification_missing")
    assert status(tmp_path) == ("paused", "verification_missing")


def test_success_behind_a_call_that_did_nothing_is_proven(tmp_path: Path) -> None:
    one = begun(tmp_path)
    one.note((CALL,))

    one.note((answered("not_started"),))

    assert events(tmp_path) == [*BEGUN_CALL, "decided not_done", "tool_result"]
    assert end(one).verdict == DONE


def test_an_error_after_an_effect_that_is_known_leaves_no_doubt(tmp_path: Path) -> None:
    one = begun(tmp_path)

    one.note((answered("committed", is_error=True),))

    assert events(tmp_path) == BEGUN_CALL + DONE_CALL
    assert end(one).verdict == DONE


def test_what_the_state_knows_at_the_end_is_recorded_before_the_end(tmp_path: Path) -> None:
    one = begun(tmp_path)

    recorded = one.end(exited(), DONE, (answered(),), output_chars=0)

    assert recorded.verdict == DONE
    assert told(tmp_path)[-3:] == PROVEN


@pytest.mark.parametrize("verdict", [failed("run_cancelled", "cancelled"), failed("turn_timeout")])
def test_a_run_that_ends_without_success_leaves_its_open_calls_as_unknown(
    verdict: Verdict, tmp_path: Path
) -> None:
    one = begun(tmp_path)
    one.note((CALL, ASKED))

    end(one, verdict)

    assert events(tmp_path) == [*BEGUN_CALL, "approval_required", "unknown", "approval_resolved"]
    seen = project_run(records(tmp_path))
    assert (seen.pending_approvals, seen.requires_human) == ((), True)


def test_a_question_stays_pending_until_it_has_its_answer(tmp_path: Path) -> None:
    one = begun(tmp_path)
    one.note((ASKED,))
    end(one, STOPPED, exited(code=None))
    assert project_run(records(tmp_path)).pending_approvals == ("ask_1",)
    # Nothing is said of it between two attempts.
    one.note((msgspec.structs.replace(ASKED, decision="denied"),))
    assert project_run(records(tmp_path)).pending_approvals == ("ask_1",)

    one.begin(order(2))
    one.note((msgspec.structs.replace(ASKED, decision="denied", answer_digest="sha256:0"),))

    assert project_run(records(tmp_path)).pending_approvals == ()
    [entry] = [
        record.payload["event"]
        for record in records(tmp_path)
        if record.kind is RecordKind.EVENT and isinstance(record.payload, dict)
    ][-1:]
    assert entry == {
        "type": "approval_resolved",
        "approvalId": "ask_1",
        "decision": "denied",
        "answerDigest": "sha256:0",
    }


def test_a_call_that_a_dead_process_left_is_in_doubt_and_stops_the_next_attempt(
    tmp_path: Path,
) -> None:
    left_by_a_dead_process(tmp_path)

    recorder(tmp_path).settle(Generation(1), (CALL,))

    assert events(tmp_path) == BEGUN_CALL
    assert status(tmp_path) == ("paused", "process_interrupted")
    with pytest.raises(PrpError) as caught:
        recorder(tmp_path).begin(order(2))
    assert caught.value.code is ErrorCode.UNKNOWN_EFFECT


@pytest.mark.parametrize(
    ("effect", "decided"), [("committed", "committed"), ("not_started", "not_done")]
)
def test_a_result_between_two_attempts_is_the_decision_of_the_authority(
    effect: EffectWord, decided: str, tmp_path: Path
) -> None:
    left_by_a_dead_process(tmp_path)
    one = recorder(tmp_path)
    one.settle(Generation(1), (CALL,))

    one.note((answered(effect),))
    one.note((answered(effect),))

    assert events(tmp_path) == [*BEGUN_CALL, f"decided {decided}"]
    again = recorder(tmp_path)
    again.begin(order(2))
    assert end(again, seen=exited(2)).verdict == DONE


def test_an_error_between_two_attempts_decides_nothing(tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path)
    one = recorder(tmp_path)
    one.settle(Generation(1), (CALL,))

    one.note((answered("unknown"),))

    assert events(tmp_path) == BEGUN_CALL
    plan = prepare_run_resume(records(tmp_path), config_fingerprint="")
    assert [account.reason for account in plan.effects] == [Reason.STARTED_WITHOUT_END]


def test_a_finished_run_takes_nothing_more(tmp_path: Path) -> None:
    one = begun(tmp_path)
    one.note((CALL,))
    end(one, failed("run_cancelled", "cancelled"))
    before = records(tmp_path)

    one.note((answered(), ASKED))

    assert records(tmp_path) == before


def test_a_run_without_a_log_gets_none_for_a_late_result(tmp_path: Path) -> None:
    recorder(tmp_path).note((answered(),))

    assert list(tmp_path.iterdir()) == []


def test_a_fact_that_the_disk_refused_is_recorded_at_the_next_try(tmp_path: Path) -> None:
    counted = Syncs()
    begun(tmp_path / "counted", counted)
    fs = Syncs(refused={counted.count + 1})
    one = begun(tmp_path / "run", fs)

    with pytest.raises(PrpError) as caught:
        one.note((CALL,))
    one.note((CALL,))
    one.note((answered(),))

    assert caught.value.code is ErrorCode.DURABILITY_BARRIER_FAILED
    assert end(one).verdict == DONE
    assert events(tmp_path / "run").count("started") == 1
    assert events(tmp_path / "run")[-3:] == DONE_CALL


def test_fact_that_the_disk_refuses_at_the_end_leaves_a_failed_run_and_no_open_one(
    tmp_path: Path,
) -> None:
    counted = Syncs()
    begun(tmp_path / "counted", counted)
    one = begun(tmp_path / "run", Syncs(refused={counted.count + 1}))

    recorded = one.end(exited(), DONE, (CALL,), output_chars=0)

    assert recorded.verdict.outcome is not None
    assert recorded.verdict.outcome.reason == "durability_barrier_failed"
    assert status(tmp_path / "run") == ("finished", "durability_barrier_failed")


def test_use_is_in_the_log_once_and_its_numbers_in_the_snapshot(tmp_path: Path) -> None:
    one = begun(tmp_path)
    used = UsageFact(generation=1, tokens=12, cost_usd=0.5, is_partial=False)

    one.note((used,))
    recorded = one.end(exited(), DONE, (used,), output_chars=0)

    assert events(tmp_path) == ["turn_end"]
    assert recorded.snapshot is not None
    metrics = recorded.snapshot["metrics"]
    assert isinstance(metrics, dict)
    assert (metrics["turns"], metrics["tokens"], metrics["costUsd"]) == (1, 12, 0.5)


def test_numbers_that_nobody_reported_are_missing_in_the_snapshot(tmp_path: Path) -> None:
    used = UsageFact(generation=1, tokens=12, cost_usd=None, is_partial=True)

    recorded = begun(tmp_path).end(exited(), DONE, (used,), output_chars=0)

    assert recorded.snapshot is not None
    metrics = recorded.snapshot["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["tokens"] == 12
    assert "costUsd" not in metrics


def test_run_beyond_a_limit_fails_in_its_log_with_the_limit(tmp_path: Path) -> None:
    over = Exceeded(dimension="tokens", limit=10, actual=12)
    used = UsageFact(generation=1, tokens=12, cost_usd=None, is_partial=True, exceeded=over)

    begun(tmp_path).end(exited(code=143), failed("budget_exceeded"), (used,), output_chars=0)

    assert events(tmp_path) == ["budget_exceeded", "turn_end"]
    assert status(tmp_path) == ("finished", "budget_exceeded")
