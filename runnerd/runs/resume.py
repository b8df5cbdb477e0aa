"""Whether and how a stopped run goes on: one pass, one table, one plan, one explanation.

It decides what a resumed run skips, reconsiders, replays or pauses for, and names the record
that decides. It refuses to write, to run anything, and to guess: what is unknown stays so
until a recorded decision, see `reconcile`.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.call_facts import CallFacts
from runnerd.runs.capability import ResolvedTool
from runnerd.runs.effect_facts import Effect, Judgement, Reason, ResumeRules, Verdict, judge
from runnerd.runs.fingerprints import input_fingerprint
from runnerd.runs.receipts import ReceiptBinding
from runnerd.runs.records import RunRecord
from runnerd.runs.resume_plan import (
    EffectAccount,
    ReplayCandidate,
    ResumeDecision,
    StepAccount,
    UnsafeCall,
    make_plan,
)
from runnerd.runs.resume_table import Evidence, Finding, Stage, decide
from runnerd.runs.run_facts import RunFacts, collect_facts


def prepare_run_resume(
    records: Iterable[RunRecord],
    *,
    config_fingerprint: str,
    prompt: str | None = None,
    rules: ResumeRules = ResumeRules.STRICT,
    capabilities: Mapping[str, ResolvedTool] | None = None,
    stage: Stage = Stage.ADMISSION,
) -> ResumeDecision:
    """Decide in one pass whether a run may be resumed, and plan it.

    Args:
        records: in persisted order; they are read once and not kept.
        config_fingerprint: of the configuration that would be used now.
        prompt: that would be used now; None takes over the recorded one.
        rules: `original` only for a plain log, which the original wrote.
        capabilities: the classes of tools now, by name; None leaves them unchecked.
        stage: `plan` leaves out what only an admission refuses.

    Returns:
        The decision; a refusal has the code and the record of the first row of the table
        that is met. Raises only what ``records`` raises.

    Source: durable-runs 4.
    """
    return decide_resume(
        collect_facts(records),
        config_fingerprint=config_fingerprint,
        prompt=prompt,
        rules=rules,
        capabilities=capabilities,
        stage=stage,
    )


def decide_resume(
    facts: RunFacts,
    *,
    config_fingerprint: str,
    prompt: str | None = None,
    rules: ResumeRules = ResumeRules.STRICT,
    capabilities: Mapping[str, ResolvedTool] | None = None,
    stage: Stage = Stage.ADMISSION,
) -> ResumeDecision:
    """Decide as `prepare_run_resume` does, from facts that were collected before."""
    judged = tuple(_judged(facts.calls, rules))
    candidates = tuple(_candidates(facts.calls, judged))
    findings = dict(facts.findings)
    for finding, evidence in (
        *_of_configuration(facts, config_fingerprint, prompt),
        *_of_effects(judged),
        *_of_capabilities(candidates, facts.calls, capabilities),
    ):
        findings.setdefault(finding, evidence)
    refusal = decide(findings, stage)
    effects = tuple(_account(effect, judgement) for effect, judgement in judged)
    plan = None if refusal is not None else make_plan(facts, candidates, effects)
    return ResumeDecision(
        refusal=refusal, plan=plan, steps=tuple(_steps(facts.calls)), effects=effects
    )


def first_unsafe_call(
    calls: CallFacts, rules: ResumeRules = ResumeRules.STRICT
) -> UnsafeCall | None:
    """Return the first call for which a resumed run would pause, in the order of judgement."""
    for effect, judgement in _judged(calls, rules):
        if judgement.code is not None:
            return UnsafeCall(
                tool=effect.tool,
                code=judgement.code,
                sequence=judgement.sequence,
                step_id=effect.call.step_id or msgspec.UNSET,
                idempotency_key=effect.effect_id if effect.has_key else msgspec.UNSET,
                receipt_status=effect.status or msgspec.UNSET,
            )
    return None


def has_unsafe_call(
    events: Iterable[Mapping[str, JsonValue]],
    run_id: str,
    rules: ResumeRules = ResumeRules.STRICT,
) -> bool:
    """Tell whether the trace events of a run leave an effect in doubt.

    Facts that contradict each other leave one in doubt too. Source: durable-runs 5.
    """
    calls = CallFacts(run_id)
    for sequence, event in enumerate(events, start=1):
        try:
            calls.apply(sequence, event)
        except PrpError:
            return True
    return first_unsafe_call(calls, rules) is not None


def _judged(calls: CallFacts, rules: ResumeRules) -> Iterator[tuple[Effect, Judgement]]:
    for effect in calls.in_order_of_judgement():
        yield effect, judge(effect, calls.output_sequence(effect), rules)


def _of_configuration(
    facts: RunFacts, config_fingerprint: str, prompt: str | None
) -> Iterator[tuple[Finding, Evidence]]:
    start = facts.start
    if start is None:
        return
    evidence = Evidence(sequence=facts.start_sequence)
    if start.get("configFingerprint") != config_fingerprint:
        yield Finding.OTHER_CONFIGURATION, evidence
    if prompt is None:
        return
    recorded = facts.inputs.content_fingerprint
    is_other = (
        start.get("initialPrompt") != prompt
        if recorded is None
        else recorded != input_fingerprint(prompt)
    )
    if is_other:
        yield Finding.OTHER_PROMPT, evidence


def _of_effects(
    judged: Iterable[tuple[Effect, Judgement]],
) -> Iterator[tuple[Finding, Evidence]]:
    for effect, judgement in judged:
        if judgement.code is None:
            continue
        is_committed = judgement.code is ErrorCode.COMMITTED_EFFECT_PENDING
        finding = Finding.COMMITTED_EFFECT if is_committed else Finding.UNKNOWN_EFFECT
        words = f"{effect.tool}: {judgement.reason.value}"
        yield finding, Evidence(sequence=judgement.sequence, words=words)
        return


def _of_capabilities(
    candidates: Iterable[ReplayCandidate],
    calls: CallFacts,
    capabilities: Mapping[str, ResolvedTool] | None,
) -> Iterator[tuple[Finding, Evidence]]:
    if capabilities is None:
        return
    for candidate in candidates:
        effect = calls.effects[candidate.previous_receipt_id]
        now = capabilities.get(candidate.tool)
        is_same = (
            now is not None
            and now.fingerprint == candidate.capability_fingerprint
            and now.honours_key >= effect.honours_key
        )
        if not is_same:
            evidence = Evidence(sequence=effect.capability_sequence, words=candidate.tool)
            yield Finding.OTHER_CAPABILITY, evidence
            return


def _candidates(
    calls: CallFacts, judged: Iterable[tuple[Effect, Judgement]]
) -> Iterator[ReplayCandidate]:
    for effect, judgement in judged:
        if judgement.verdict is not Verdict.REPLAY:
            continue
        assert effect.receipt is not None, "only a bound receipt makes a candidate"
        binding = effect.receipt.binding
        assert isinstance(binding, ReceiptBinding), "only a bound receipt makes a candidate"
        yield ReplayCandidate(
            previous_receipt_id=effect.effect_id,
            previous_call_id=binding.call_id,
            attempt=effect.attempt + 1,
            agent=binding.agent,
            tool=effect.tool,
            arguments_fingerprint=binding.arguments_fingerprint,
            capability_fingerprint=binding.capability_fingerprint,
            step_id=binding.step_id,
            external_key=_first_key(calls, effect),
        )


def _first_key(calls: CallFacts, effect: Effect) -> str | msgspec.UnsetType:
    """Return the key of the first of several attempts, unset if this is the first."""
    first = effect
    while (before := calls.effects.get(first.previous_id or "")) is not None:
        # Only what was taken up is the same work, and only an earlier attempt.
        if before.retried_sequence is None or before.attempt >= first.attempt:
            break
        first = before
    return msgspec.UNSET if first is effect else first.effect_id


def _account(effect: Effect, judgement: Judgement) -> EffectAccount:
    return EffectAccount(
        effect_id=effect.effect_id,
        call_id=effect.call.call_id,
        step_id=effect.call.step_id,
        tool=effect.tool,
        status=effect.status,
        verdict=judgement.verdict,
        reason=judgement.reason,
        sequence=judgement.sequence,
        code=judgement.code,
        is_settled=effect.is_settled,
    )


def _steps(calls: CallFacts) -> Iterator[StepAccount]:
    for step in calls.completed_steps.values():
        yield StepAccount(
            step_id=step.step_id,
            verdict=Verdict.SKIP,
            reason=Reason.STEP_COMPLETED,
            sequence=step.sequence,
            settled_effects=step.settled_effects,
        )
    for step_id, sequence in calls.open_steps.items():
        yield StepAccount(
            step_id=step_id,
            verdict=Verdict.RECONSIDER,
            reason=Reason.STEP_OPEN,
            sequence=sequence,
        )
