"""What is handed to a resumed run, and the account of each step and effect.

It decides how a plan is put together from the facts. It refuses to decide whether the run may
go on: that is `resume`.
"""

from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.call_facts import CompletedStep
from runnerd.runs.decisions import DecisionPayload
from runnerd.runs.effect_facts import Reason, Verdict
from runnerd.runs.effects import KeyOwners
from runnerd.runs.operation import Operation
from runnerd.runs.receipts import EffectStatus, ReceiptState
from runnerd.runs.records import OperationEvent, OperationState
from runnerd.runs.resume_table import Refusal
from runnerd.runs.run_facts import RunFacts

_INTERRUPTED: Final = ErrorCode.PROCESS_INTERRUPTED.value
_RESUMING: Final[dict[OperationState, tuple[tuple[OperationEvent, str | None], ...]]] = {
    OperationState.ACCEPTED: ((OperationEvent.START, None),),
    OperationState.RUNNING: (
        (OperationEvent.PAUSE, _INTERRUPTED),
        (OperationEvent.RESUME, None),
    ),
    OperationState.PAUSED: ((OperationEvent.RESUME, None),),
}
_BEGINNING: Final = ((OperationEvent.ACCEPT, None), (OperationEvent.START, None))


class StepAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done about a step, and why."""

    step_id: str
    verdict: Verdict
    reason: Reason
    sequence: int
    """The record that decides."""
    settled_effects: int = 0
    """Effects that are skipped with it."""


class EffectAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done about an effect, and why."""

    effect_id: str
    call_id: str
    step_id: str
    tool: str
    status: EffectStatus | None
    """What receipts and lifecycle say; None if they say nothing."""
    verdict: Verdict
    reason: Reason
    sequence: int
    """The record that decides."""
    code: ErrorCode | None
    """The refusal that a pause stands for."""
    is_settled: bool
    """Nobody has to ask what happened. Success needs it of every effect."""


class ReplayCandidate(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A call that may be made again: under a new call id, with `outside_key` shown outside."""

    previous_receipt_id: str
    previous_call_id: str
    attempt: int
    agent: str
    tool: str
    arguments_fingerprint: str
    capability_fingerprint: str
    step_id: str | msgspec.UnsetType = msgspec.UNSET
    external_key: str | msgspec.UnsetType = msgspec.UNSET
    """Of the first attempt, if the previous one was a further one."""

    @property
    def outside_key(self) -> str:
        """The key under which the outside has seen every attempt; another would be news to it."""
        return self.external_key or self.previous_receipt_id


class ResumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a resumed run takes over. The trace stays in the log and is read from there."""

    run_id: str
    initial_prompt: str | None
    next_journal_sequence: int
    """The last number in the log; the journal continues with the one after it."""
    next_trace_sequence: int
    completed_steps: tuple[CompletedStep, ...]
    open_receipts: tuple[ReceiptState, ...]
    """Of effects that are open or unsettled; settled ones are counted in their steps."""
    replay_candidates: tuple[ReplayCandidate, ...]
    decided: tuple[DecisionPayload, ...]
    """Effects that a person or an authority has decided; the agent must be told of them."""
    unsettled: tuple[EffectAccount, ...]
    """Effects in doubt that the rules of the original let pass; success is not claimed."""
    operation: Operation | None
    operation_events: tuple[tuple[OperationEvent, str | None], ...]
    """What to apply after the `resume` record, each with its reason."""
    loop_snapshot: dict[str, JsonValue] | None
    owners: KeyOwners
    """The keys that are taken."""


class ResumeDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run goes on, and what would become of each step and effect."""

    refusal: Refusal | None
    plan: ResumePlan | None
    """None exactly if it is refused."""
    steps: tuple[StepAccount, ...]
    effects: tuple[EffectAccount, ...]


class UnsafeCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The first call for which a resumed run would have to pause."""

    tool: str
    code: ErrorCode
    sequence: int
    step_id: str | msgspec.UnsetType = msgspec.UNSET
    idempotency_key: str | msgspec.UnsetType = msgspec.UNSET
    receipt_status: EffectStatus | msgspec.UnsetType = msgspec.UNSET


def make_plan(
    facts: RunFacts,
    candidates: tuple[ReplayCandidate, ...],
    effects: tuple[EffectAccount, ...],
) -> ResumePlan:
    """Return what a run takes over that nothing stands against."""
    assert facts.start is not None, "a run without a start is refused"
    calls, operation = facts.calls, facts.operation
    prompt = facts.start.get("initialPrompt")
    known = calls.effects.values()
    completed = tuple(calls.completed_steps.values())
    return ResumePlan(
        run_id=facts.run_id,
        initial_prompt=prompt if isinstance(prompt, str) else None,
        next_journal_sequence=facts.record_count,
        next_trace_sequence=facts.trace_sequence,
        completed_steps=completed,
        open_receipts=tuple(effect.receipt for effect in known if effect.receipt is not None),
        replay_candidates=candidates,
        decided=tuple(effect.decision for effect in known if effect.decision is not None),
        unsettled=tuple(
            account
            for account in effects
            if account.verdict is Verdict.SKIP and not account.is_settled
        ),
        operation=operation,
        operation_events=(_BEGINNING if operation is None else _RESUMING.get(operation.state, ())),
        loop_snapshot=facts.loop_snapshot,
        owners=KeyOwners(
            facts.run_id,
            {effect.effect_id: effect.call for effect in known if effect.has_key},
            (step.closed for step in completed),
        ),
    )
