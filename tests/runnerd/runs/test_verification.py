"""What a run must show before it may say that it succeeded."""

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.codes import RunStatus
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.outcome import outcome_of
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.verification import Completion, check_completion
from tests.runnerd.runs.run_script import AT, UPLOADING, Script, in_step


def checked(script: Script, *, exit_proven: bool = True, result_valid: bool = True) -> Completion:
    return check_completion(
        collect_facts(script.records), exit_proven=exit_proven, result_valid=result_valid
    )


def with_receipts(*statuses: str, step: str = "s1", output: bool = True) -> Script:
    script = Script()
    call = call_identity("main", step, "c1")
    script.call(call)
    for status in statuses:
        script.receipt(call, status)
    if output and step:
        script.output(step)
    return script


@pytest.mark.parametrize("result_valid", [False, True])
@pytest.mark.parametrize("exit_proven", [False, True])
def test_run_without_effects_succeeds_by_exit_and_result(
    exit_proven: bool, result_valid: bool
) -> None:
    completion = checked(Script(), exit_proven=exit_proven, result_valid=result_valid)

    assert (completion.code is None) == (exit_proven and result_valid)
    assert len(completion.doubts) == (not exit_proven) + (not result_valid)


@pytest.mark.parametrize(
    ("statuses", "settled", "safe", "doubt"),
    [
        (("not_started",), True, True, None),
        (("started", "committed"), True, True, None),
        (("started",), False, True, "unknown_effect"),
        (("started", "unknown"), False, True, "unknown_effect"),
        ((), True, False, "unknown_effect"),
    ],
)
def test_effect_in_doubt_keeps_a_run_from_success_even_behind_its_step(
    statuses: tuple[str, ...], settled: bool, safe: bool, doubt: str | None
) -> None:
    completion = checked(with_receipts(*statuses))

    assert completion.payload.receipts_settled is settled
    assert completion.payload.no_unsafe_call is safe
    assert [one.code.value for one in completion.doubts] == ([doubt] if doubt else [])
    assert completion.code is (ErrorCode.VERIFICATION_MISSING if doubt else None)


def test_run_in_doubt_pauses_and_is_not_called_failed() -> None:
    code = checked(with_receipts("started")).code

    assert code is not None
    assert outcome_of(code.value, was_denied=False).status is RunStatus.PAUSED


def test_effect_that_is_done_in_a_step_that_is_not_is_pending() -> None:
    script = with_receipts("started", "committed", output=False)

    completion = checked(script)

    assert [one.code for one in completion.doubts] == [ErrorCode.COMMITTED_EFFECT_PENDING]
    assert not completion.payload.no_unsafe_call


def test_effect_outside_any_step_is_done_with_the_run() -> None:
    assert checked(with_receipts("started", "committed", step="")).code is None
    assert checked(with_receipts("started", step="")).code is not None


def test_call_that_could_be_replayed_is_not_settled_for_that() -> None:
    script = Script()
    script.bound(in_step("c1"), "started", declared=UPLOADING)

    assert not checked(script).payload.receipts_settled


def test_decision_settles_an_effect() -> None:
    script = with_receipts("started", "unknown")
    script.records.append(
        reconcile_effect(
            collect_facts(script.records),
            "c1",
            DecidedOutcome.NOT_DONE,
            decided_by=Decider(kind=DeciderKind.AUTHORITY, name="ledger"),
            evidence=evidence_of(b"no such order"),
            decided_at=AT,
        )
    )

    assert checked(script).code is None


def test_facts_that_contradict_each_other_prove_nothing() -> None:
    completion = checked(with_receipts("started", "not_started"))

    assert not completion.payload.receipts_settled
    assert not completion.payload.no_unsafe_call
    assert completion.doubts[0].code is ErrorCode.EFFECT_RECEIPT_CONFLICT
