"""Whether a stopped run goes on: rows of the table, the plan, and weak point 8."""

import itertools
from collections.abc import Callable

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.effect_facts import Reason, ResumeRules, Verdict, rules_of
from runnerd.runs.fingerprints import input_fingerprint
from runnerd.runs.records import OperationEvent, RecordKind
from runnerd.runs.resume import has_unsafe_call
from runnerd.runs.run_log import LogFormat
from tests.runnerd.runs.run_script import (
    PROMPT,
    Script,
    in_step,
    refusal_of,
    resumed,
)

ORIGINAL, STRICT = ResumeRules.ORIGINAL, ResumeRules.STRICT


def with_receipts(*statuses: str, output: bool = False) -> Script:
    script = Script()
    script.call(in_step("c1"))
    for status in statuses:
        script.receipt(in_step("c1"), status)
    if output:
        script.output("s1")
    return script


# Order and origin of records (B24: nobody sorts)


def test_shuffled_records_are_refused_in_every_order_but_the_persisted_one() -> None:
    records = Script().records

    verdicts = {
        order: refusal_of(resumed([records[place] for place in order]))
        for order in itertools.permutations(range(len(records)))
    }

    assert verdicts.pop((0, 1, 2)) is None
    assert set(verdicts.values()) == {"run_state_corrupt"}


@pytest.mark.parametrize("lost", range(4))
def test_lost_or_repeated_record_is_refused_even_when_it_is_harmless(lost: int) -> None:
    script = Script()
    script.event("text_delta", delta="x")
    script.event("text_delta", delta="y")
    records = script.records

    without = records[:lost] + records[lost + 1 :]
    twice = [*records[: lost + 1], *records[lost:]]

    assert refusal_of(resumed(without)) == refusal_of(resumed(twice)) == "run_state_corrupt"


def test_record_of_another_run_is_refused() -> None:
    records = Script().records
    foreign = msgspec.structs.replace(records[-1], run_id="run-2")

    assert refusal_of(resumed([*records[:-1], foreign])) == "run_state_corrupt"


# What is the same run


def test_run_goes_on_under_the_same_configuration_alone() -> None:
    assert refusal_of(resumed(Script())) is None
    assert refusal_of(resumed(Script(), config_fingerprint="other")) == "resume_config_mismatch"


def test_prompt_is_compared_with_the_accepted_input_before_the_stored_text() -> None:
    script = Script()
    fingerprint = input_fingerprint("another")
    script.event("input_receipt", inputId="i1", status="pending", contentFingerprint=fingerprint)

    assert refusal_of(resumed(script, prompt=PROMPT)) == "resume_input_mismatch"
    assert refusal_of(resumed(script, prompt="another")) is None
    assert refusal_of(resumed(script)) is None


def test_finished_run_never_goes_on_whatever_follows() -> None:
    script = Script()
    script.add(RecordKind.FINISH, {})
    script.add(RecordKind.RESUME, {})

    assert refusal_of(resumed(script)) == "run_already_finished"


@pytest.mark.parametrize("event", [OperationEvent.REQUEST_ABORT, OperationEvent.FAIL])
def test_ended_operation_does_not_go_on(event: OperationEvent) -> None:
    script = Script()
    script.operate(event, "aborted")

    assert refusal_of(resumed(script)) == "operation_not_resumable"


def test_outcome_that_nobody_judged_waits_for_a_person_until_a_later_attempt() -> None:
    script = Script()
    script.operate(OperationEvent.PAUSE, "unclassified_error")
    error: JsonValue = {"code": "unclassified_error", "message": "m"}
    outcome: JsonValue = {"status": "paused", "finishReason": "unclassified_error", "error": error}
    script.add(RecordKind.PAUSE, {"outcome": outcome})
    waiting = refusal_of(resumed(script))
    script.add(RecordKind.RESUME, {})

    assert waiting == "unclassified_error"
    assert refusal_of(resumed(script)) is None


def test_later_fault_outranks_an_earlier_one_of_lower_rank() -> None:
    script = with_receipts("started")
    script.event("effect_receipt", idempotencyKey="k", tool="t", status="committed")
    script.event("mystery")

    refusal = resumed(script).refusal

    assert refusal is not None
    assert (refusal.code, refusal.evidence.sequence) == (ErrorCode.RUN_STATE_CORRUPT, 7)


def test_first_fault_of_a_kind_is_the_one_that_is_named() -> None:
    script = Script()
    first = script.event("mystery")
    script.event("mystery")

    refusal = resumed(script).refusal

    assert refusal is not None
    assert refusal.evidence.sequence == first


# Effects


@pytest.mark.parametrize(
    ("statuses", "output", "code", "verdict", "reason", "decider"),
    [
        ((), False, "unknown_effect", "pause", "no_receipt", 4),
        (("not_started",), False, None, "reconsider", "not_started", 5),
        (("started",), False, "unknown_effect", "pause", "started_without_end", 5),
        (("started", "unknown"), False, "unknown_effect", "pause", "ended_unknown", 6),
        (
            ("started", "committed"),
            False,
            "committed_effect_pending",
            "pause",
            "committed_in_open_step",
            6,
        ),
        (("started",), True, "unknown_effect", "pause", "started_without_end", 5),
        (("started", "unknown"), True, "unknown_effect", "pause", "ended_unknown", 6),
    ],
)
def test_each_state_of_an_effect_has_one_verdict_and_names_its_record(
    statuses: tuple[str, ...],
    output: bool,
    code: str | None,
    verdict: str,
    reason: str,
    decider: int,
) -> None:
    decision = resumed(with_receipts(*statuses, output=output))

    [account] = decision.effects
    assert refusal_of(decision) == code
    assert (account.verdict, account.reason, account.sequence) == (verdict, reason, decider)


@pytest.mark.parametrize("statuses", [("not_started",), ("started", "committed")])
def test_settled_effect_is_skipped_with_its_completed_step(statuses: tuple[str, ...]) -> None:
    decision = resumed(with_receipts(*statuses, output=True))

    [step] = decision.steps
    assert refusal_of(decision) is None
    assert decision.effects == ()
    assert (step.verdict, step.reason) == (Verdict.SKIP, Reason.STEP_COMPLETED)
    assert (step.sequence, step.settled_effects) == (5 + len(statuses), 1)


def test_end_of_a_step_is_no_output() -> None:
    script = with_receipts("started", "committed")
    script.event("step_end", stepId="s1", ok=True)

    assert refusal_of(resumed(script)) == "committed_effect_pending"


def test_step_without_output_is_reconsidered() -> None:
    script = Script()
    begun = script.told({"type": "step_start", "stepId": "s1", "kind": "prompt"})

    [step] = resumed(script).steps

    assert (step.verdict, step.reason, step.sequence) == (
        Verdict.RECONSIDER,
        Reason.STEP_OPEN,
        begun,
    )


# Weak point 8: each breach must be seen


def test_only_a_plain_log_is_judged_by_the_rules_of_the_original() -> None:
    rules = [rules_of(log_format) for log_format in (LogFormat.PLAIN, LogFormat.CHAINED, None)]

    assert rules == [ORIGINAL, STRICT, STRICT]


def test_receipt_never_goes_back_even_if_unbound() -> None:
    refusal = resumed(with_receipts("started", "not_started")).refusal

    assert refusal is not None
    assert (refusal.code, refusal.evidence.sequence) == (ErrorCode.EFFECT_RECEIPT_CONFLICT, 6)


@pytest.mark.parametrize("statuses", [("started",), ("started", "unknown")])
def test_unknown_effect_does_not_vanish_behind_a_finished_step(statuses: tuple[str, ...]) -> None:
    script = with_receipts(*statuses, output=True)

    ours, original = resumed(script), resumed(script, rules=ORIGINAL)

    assert refusal_of(ours) == "unknown_effect"
    assert refusal_of(original) is None
    assert original.plan is not None
    assert [account.effect_id for account in original.plan.unsettled] == ["run-1:s1:c1"]


def test_call_without_a_receipt_does_not_vanish_behind_a_finished_step() -> None:
    assert refusal_of(resumed(with_receipts(output=True))) == "unknown_effect"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("started",), "unknown_effect"),
        (("started", "committed"), "committed_effect_pending"),
        (("not_started",), None),
    ],
)
def test_receipt_without_its_call_is_judged_as_well(
    statuses: tuple[str, ...], code: str | None
) -> None:
    script = Script()
    for status in statuses:
        script.receipt(in_step("c1"), status)

    assert refusal_of(resumed(script)) == code


@pytest.mark.parametrize("rules", [ORIGINAL, STRICT])
def test_two_calls_under_one_key_are_refused(rules: ResumeRules) -> None:
    """Weak point 7, found in a log."""
    script = Script()
    script.call(in_step("c", "a:b"))
    script.call(in_step("b:c", "a"))

    assert refusal_of(resumed(script, rules=rules)) == "effect_receipt_conflict"


def test_key_that_is_not_the_calls_own_is_refused() -> None:
    script = Script()
    script.call(in_step("c1"), idempotencyKey="run-1:s1:c2")

    assert refusal_of(resumed(script)) == "effect_receipt_conflict"


# The plan


FOLLOWING: tuple[tuple[Callable[[Script], object], list[str]], ...] = (
    (lambda script: None, ["PAUSE", "RESUME"]),
    (lambda script: script.operate(OperationEvent.PAUSE, "loop_paused"), ["RESUME"]),
)


@pytest.mark.parametrize(("prepare", "events"), FOLLOWING)
def test_plan_says_which_events_of_the_operation_follow(
    prepare: Callable[[Script], object], events: list[str]
) -> None:
    script = Script()
    prepare(script)

    plan = resumed(script).plan

    assert plan is not None
    assert [event.value for event, _ in plan.operation_events] == events
    assert plan.next_journal_sequence == len(script.records)


def test_plan_knows_the_keys_that_are_taken() -> None:
    script = Script()
    script.call(in_step("c1"))
    script.receipt(in_step("c1"), "not_started")
    script.call(in_step("c2", "s2"))
    script.receipt(in_step("c2", "s2"), "started")
    script.receipt(in_step("c2", "s2"), "committed")
    script.output("s2")

    plan = resumed(script).plan

    assert plan is not None
    for taken in (in_step("c1"), in_step("c2", "s2")):
        with pytest.raises(Exception, match="effect_receipt_conflict"):
            plan.owners.claim(taken)
    assert plan.owners.claim(in_step("c3")) == "run-1:s1:c3"


def test_events_of_a_trace_show_whether_a_call_is_in_doubt() -> None:
    def of(script: Script) -> bool:
        events = [
            record.payload["event"]
            for record in script.records
            if record.kind is RecordKind.EVENT and isinstance(record.payload, dict)
        ]
        return has_unsafe_call([one for one in events if isinstance(one, dict)], "run-1")

    assert of(with_receipts("started"))
    assert of(with_receipts("started", "not_started"))
    assert not of(with_receipts("started", "committed", output=True))
