"""The only way from unknown to known: a recorded decision with evidence (I14)."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.capability import resolve_capability
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.effect_facts import Reason, Verdict
from runnerd.runs.reconcile import evidence_of, find_effect, reconcile_effect
from runnerd.runs.records import RecordKind, RunRecord, read_record, record_members
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event
from tests.runnerd.runs.run_script import AT, Script, in_step, refusal_of, resumed

COMMITTED, NOT_DONE = DecidedOutcome.COMMITTED, DecidedOutcome.NOT_DONE
PERSON = Decider(kind=DeciderKind.PERSON, name="R. Example")


def left(*statuses: str) -> Script:
    script = Script()
    script.call(in_step("c1"))
    for status in statuses:
        script.receipt(in_step("c1"), status)
    return script


def decided(script: Script, outcome: DecidedOutcome, name: str = "c1") -> RunRecord:
    return reconcile_effect(
        collect_facts(script.records),
        name,
        outcome,
        decided_by=PERSON,
        evidence=evidence_of(b"order 7 is in the ledger", "looked it up"),
        decided_at=AT,
    )


def refused(script: Script, outcome: DecidedOutcome, name: str = "c1") -> str | None:
    try:
        decided(script, outcome, name)
    except PrpError as error:
        return error.code.value
    return None


@pytest.mark.parametrize("statuses", [(), ("started",), ("started", "unknown")])
@pytest.mark.parametrize(
    ("outcome", "verdict", "reason"),
    [
        (COMMITTED, Verdict.SKIP, Reason.DECIDED_COMMITTED),
        (NOT_DONE, Verdict.RECONSIDER, Reason.DECIDED_NOT_DONE),
    ],
)
def test_decision_unblocks_a_run_and_is_handed_to_its_agent(
    statuses: tuple[str, ...], outcome: DecidedOutcome, verdict: Verdict, reason: Reason
) -> None:
    script = left(*statuses)
    before = refusal_of(resumed(script))
    script.records.append(decided(script, outcome))

    decision = resumed(script)

    [account] = decision.effects
    assert before == "unknown_effect"
    assert decision.plan is not None
    assert [one.outcome for one in decision.plan.decided] == [outcome]
    assert (account.verdict, account.reason) == (verdict, reason)
    assert account.sequence == len(script.records)


@pytest.mark.parametrize(
    ("statuses", "outcome", "code"),
    [
        (("not_started",), COMMITTED, "effect_receipt_conflict"),
        (("not_started",), NOT_DONE, "effect_receipt_conflict"),
        (("started", "committed"), NOT_DONE, "effect_receipt_conflict"),
        (("started", "committed"), COMMITTED, None),
    ],
)
def test_decision_never_overrules_what_the_log_knows(
    statuses: tuple[str, ...], outcome: DecidedOutcome, code: str | None
) -> None:
    assert refused(left(*statuses), outcome) == code


def test_decision_on_a_committed_effect_lets_its_open_step_go_on() -> None:
    script = left("started", "committed")
    before = refusal_of(resumed(script))
    script.records.append(decided(script, COMMITTED))

    assert before == "committed_effect_pending"
    assert refusal_of(resumed(script)) is None


@pytest.mark.parametrize("second", [COMMITTED, NOT_DONE])
def test_effect_is_decided_once(second: DecidedOutcome) -> None:
    script = left("started")
    script.records.append(decided(script, COMMITTED))

    assert refused(script, second) == "effect_receipt_conflict"


@pytest.mark.parametrize("status", ["committed", "unknown"])
def test_receipt_after_the_decision_contradicts_it(status: str) -> None:
    script = left("started")
    script.records.append(decided(script, NOT_DONE))
    script.receipt(in_step("c1"), status)

    assert refusal_of(resumed(script)) == "effect_receipt_conflict"


def test_lifecycle_after_the_decision_may_close_and_not_tell_news() -> None:
    script = Script()
    script.call(in_step("c1"))
    for phase in list(Phase)[:8]:
        started = {"effectState": "started"} if phase is Phase.STARTED_DURABLE else None
        script.told(lifecycle_event(in_step("c1"), "write", phase, result=started))
    script.records.append(decided(script, NOT_DONE))
    told, closed = Script(), Script()
    for copied in (told, closed):
        copied.records = list(script.records)
    news: dict[str, JsonValue] = {"executionOutcome": "returned", "effectState": "committed"}
    told.told(lifecycle_event(in_step("c1"), "write", Phase.OBSERVED, result=news))
    closed.told(lifecycle_event(in_step("c1"), "write", Phase.OBSERVED))

    assert refusal_of(resumed(told)) == "effect_receipt_conflict"
    assert refusal_of(resumed(closed)) is None


def test_decision_that_did_not_know_the_last_fact_counts_for_nothing() -> None:
    script = left("started")
    stale = decided(script, NOT_DONE)
    script.receipt(in_step("c1"), "unknown")
    script.add(RecordKind.CONTROL, stale.payload)

    assert refusal_of(resumed(script)) == "effect_receipt_conflict"


def test_decision_in_a_log_that_overrules_what_is_known_is_refused() -> None:
    """A record that no planner of ours would have written."""
    script = left("started", "committed")
    payload = decided(script, COMMITTED).payload
    assert isinstance(payload, dict)
    script.add(RecordKind.CONTROL, {**payload, "outcome": "not_done"})

    assert refusal_of(resumed(script)) == "effect_receipt_conflict"


@pytest.mark.parametrize(
    "change",
    [
        {"evidence": None},
        {"evidence": {"sha256": "a" * 64, "sizeBytes": 0}},
        {"evidence": {"sha256": "a", "sizeBytes": 1}},
        {"decidedBy": {"kind": "machine", "name": "x"}},
        {"decidedBy": {"kind": "person", "name": " "}},
        {"decidedAt": "yesterday"},
        {"outcome": "unknown"},
        {"status": "accepted"},
    ],
)
def test_decision_without_author_evidence_or_instant_is_damage(change: dict[str, Any]) -> None:
    script = left("started")
    payload = decided(script, NOT_DONE).payload
    assert isinstance(payload, dict)
    script.add(RecordKind.CONTROL, {**payload, **change})

    assert refusal_of(resumed(script)) == "run_state_corrupt"


def test_record_of_a_decision_is_one_that_every_reader_takes() -> None:
    record = decided(left("started"), NOT_DONE)

    members = record_members(record)

    assert read_record(members, record.run_id) == record
    assert members["kind"] == "control"
    assert set(members) == {"version", "runId", "sequence", "timestamp", "kind", "payload"}


def test_unknown_effect_behind_a_finished_step_can_be_decided() -> None:
    script = left("started", "unknown")
    script.output("s1")
    script.records.append(decided(script, NOT_DONE))

    decision = resumed(script)

    assert refusal_of(decision) is None
    assert decision.effects == ()


def test_call_without_an_id_is_named_by_its_record() -> None:
    script = Script()
    number = script.event("tool_call", agent="main", tool="write", args={})
    script.records.append(decided(script, NOT_DONE, f"#{number}"))

    assert refusal_of(resumed(script)) is None


def test_name_must_mean_one_open_effect() -> None:
    script = left("started")
    script.call(in_step("c1", "s2"))
    script.receipt(in_step("c1", "s2"), "started")
    facts = collect_facts(script.records)

    assert refused(script, NOT_DONE, "c1") == "effect_receipt_conflict"
    assert refused(script, NOT_DONE, "c9") == "effect_receipt_conflict"
    assert find_effect(facts, "run-1:s2:c1").call == in_step("c1", "s2")


def test_candidate_for_replay_may_be_decided_instead() -> None:
    script = Script()
    script.bound(in_step("c1"), "started")
    script.records.append(decided(script, COMMITTED))

    plan = resumed(script).plan

    assert plan is not None
    assert plan.replay_candidates == ()


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], "unknown_run"),
        (left("started").records[1:], "run_state_corrupt"),
        (left("started", "not_started").records, "effect_receipt_conflict"),
    ],
)
def test_log_that_is_not_whole_takes_no_decision(records: list[RunRecord], code: str) -> None:
    script = Script(begun=False)
    script.records = records

    assert refused(script, NOT_DONE) == code


def test_finished_run_takes_no_decision() -> None:
    script = left("started")
    script.add(RecordKind.FINISH, {})

    assert refused(script, NOT_DONE) == "run_already_finished"


def test_empty_file_is_no_evidence() -> None:
    with pytest.raises(PrpError) as refusal:
        evidence_of(b"")

    assert refusal.value.code is ErrorCode.USAGE_INVALID


def test_decision_does_not_touch_the_bound_chain() -> None:
    script = Script()
    resolved = resolve_capability("bash")
    script.capability(in_step("c1"), resolved)
    script.call(in_step("c1"), "bash")
    script.receipt(in_step("c1"), "started", "bash", resolved)
    before = collect_facts(script.records).calls.effects["run-1:s1:c1"]
    script.records.append(decided(script, COMMITTED))

    after = collect_facts(script.records).calls.effects["run-1:s1:c1"]

    assert msgspec.structs.replace(after, decision=None, sequence=before.sequence) == before


def test_decision_without_an_author_is_no_record() -> None:
    nobody = Decider(kind=DeciderKind.PERSON, name=" ")

    with pytest.raises(PrpError) as refused:
        reconcile_effect(
            collect_facts(left("started").records),
            "c1",
            COMMITTED,
            decided_by=nobody,
            evidence=evidence_of(b"x"),
            decided_at=AT,
        )

    assert refused.value.code is ErrorCode.RUN_STATE_CORRUPT
