"""Whether a run may say that it succeeded: four questions, all answered from what is durable.

It decides what the verification record says and what is in doubt. It refuses to take the
harness's word: the proof of its exit and the judgement of its result are given as inputs,
effects are looked at one by one.
"""

import msgspec

from protocol.errors import ErrorCode
from runnerd.runs.effect_facts import Effect, Reason, ResumeRules, Verdict, judge
from runnerd.runs.records import VerificationPayload
from runnerd.runs.resume_table import Finding
from runnerd.runs.run_facts import RunFacts

_BROKEN_FACTS = (
    Finding.CONTRADICTORY_EFFECTS,
    Finding.FACTS_NOT_UNDERSTOOD,
    Finding.MALFORMED_FACT,
    Finding.OUT_OF_ORDER,
)


class Doubt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that speaks against success."""

    code: ErrorCode
    sequence: int | None = None
    """The record that says so."""
    effect_id: str | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The answers, as they are recorded, and all doubts."""

    payload: VerificationPayload
    doubts: tuple[Doubt, ...]

    @property
    def code(self) -> ErrorCode | None:
        """The reason to pause with; None if COMPLETE may follow the durable record.

        A run whose effects are in doubt did not fail either (I14), so it pauses.
        """
        return None if self.payload.is_passed else ErrorCode.VERIFICATION_MISSING


def check_completion(facts: RunFacts, *, exit_proven: bool, result_valid: bool) -> Completion:
    """Judge whether the run may become completed.

    Args:
        facts: of every record of the log so far.
        exit_proven: the harness was seen to end, and nobody of it is left.
        result_valid: its result was read whole and has the form that was asked for.

    Returns:
        The payload of the `verification` record, to be durable before COMPLETE. Doubts:
        ``verification_missing`` for the exit and the result, ``unknown_effect`` for an
        effect without a known end or a call without a receipt,
        ``committed_effect_pending`` for one in a step that has no output, and the code of
        facts that contradict each other.

    Source: the recovery procedure, "Run lifecycle" 5.
    """
    unsettled: list[Doubt] = []
    unsafe: list[Doubt] = []
    for effect in facts.calls.in_order_of_judgement():
        doubt = _doubt(facts, effect)
        if doubt is not None:
            (unsafe if effect.status is None else unsettled).append(doubt)
        elif _is_pending(facts, effect):
            unsafe.append(
                Doubt(
                    code=ErrorCode.COMMITTED_EFFECT_PENDING,
                    sequence=effect.status_sequence,
                    effect_id=effect.effect_id,
                )
            )
    broken = [
        Doubt(
            code=facts.findings[finding].code or ErrorCode.RUN_STATE_CORRUPT,
            sequence=facts.findings[finding].sequence,
        )
        for finding in _BROKEN_FACTS
        if finding in facts.findings
    ]
    missing = [Doubt(code=ErrorCode.VERIFICATION_MISSING)] * (
        (not exit_proven) + (not result_valid)
    )
    payload = VerificationPayload(
        exit_proven=exit_proven,
        result_valid=result_valid,
        receipts_settled=not (unsettled or broken),
        no_unsafe_call=not (unsafe or broken),
    )
    return Completion(payload=payload, doubts=(*broken, *unsettled, *unsafe, *missing))


def _doubt(facts: RunFacts, effect: Effect) -> Doubt | None:
    """Return the doubt about what happened, whatever became of the effect's step."""
    if effect.is_settled:
        return None
    judgement = judge(effect, facts.calls.output_sequence(effect), ResumeRules.STRICT)
    return Doubt(
        code=ErrorCode.UNKNOWN_EFFECT,
        sequence=judgement.sequence,
        effect_id=effect.effect_id,
    )


def _is_pending(facts: RunFacts, effect: Effect) -> bool:
    """Tell whether an effect is done in a step that is not. Outside steps the run is the step."""
    judgement = judge(effect, facts.calls.output_sequence(effect), ResumeRules.STRICT)
    is_paused = judgement.verdict is Verdict.PAUSE
    return (
        is_paused
        and judgement.reason is Reason.COMMITTED_IN_OPEN_STEP
        and bool(effect.call.step_id)
    )
