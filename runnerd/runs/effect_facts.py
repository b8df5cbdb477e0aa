"""One effect of a run: what its facts say together, and what a resumed run does about it.

It decides skip, reconsider, replay or pause, with the reason and the record that decides.
It refuses to read a log: `call_facts` collects what is judged here.

| what is known                                   | step open         | step completed |
|-------------------------------------------------|-------------------|----------------|
| decided: committed / not done                   | skip / reconsider | skip           |
| taken up by a later attempt                     | skip              | skip           |
| not started                                     | reconsider        | skip           |
| committed                                       | pause             | skip           |
| a capability fact proves it safe to repeat      | reconsider        | skip           |
| begun, bound, idempotent (key honoured outside) | replay            | pause          |
| begun or unknown, or no receipt at all          | pause             | pause          |

The original skips the last two behind a completed step; `ResumeRules.ORIGINAL` does too, for
logs that it wrote, and still counts them as unsettled. It also judges no receipt without a
call, which `STRICT` does.
"""

import enum
from typing import Final

import msgspec

from protocol.errors import ErrorCode
from runnerd.runs.decisions import DecidedOutcome, DecisionPayload
from runnerd.runs.effects import may_be_replayed
from runnerd.runs.fingerprints import CallIdentity
from runnerd.runs.receipts import (
    SETTLED,
    CallProof,
    EffectStatus,
    Provenance,
    ReceiptState,
    conflict,
)
from runnerd.runs.run_log import LogFormat
from runnerd.runs.tool_classes import RecoveryDisposition, ToolCapability, recovery_disposition
from runnerd.runs.tool_lifecycle import LifecycleState


class ResumeRules(enum.StrEnum):
    """Whose rules judge a log: those of the one who wrote it."""

    STRICT = "strict"
    ORIGINAL = "original"


def rules_of(log_format: LogFormat | None) -> ResumeRules:
    """Return the rules for a log: a plain one is the original's, any other is ours."""
    return ResumeRules.ORIGINAL if log_format is LogFormat.PLAIN else ResumeRules.STRICT


class Verdict(enum.StrEnum):
    """What a resumed run does about a step or an effect."""

    SKIP = "skip"
    RECONSIDER = "reconsider"
    REPLAY = "replay"
    PAUSE = "pause"


class Reason(enum.StrEnum):
    """Why, in one word for machines."""

    DECIDED_COMMITTED = "decided_committed"
    DECIDED_NOT_DONE = "decided_not_done"
    RETRIED = "retried"
    STEP_COMPLETED = "step_completed"
    STEP_OPEN = "step_open"
    NOT_STARTED = "not_started"
    REPLAY_SAFE = "replay_safe"
    BOUND_AND_IDEMPOTENT = "bound_and_idempotent"
    COMMITTED_IN_OPEN_STEP = "committed_in_open_step"
    STARTED_WITHOUT_END = "started_without_end"
    ENDED_UNKNOWN = "ended_unknown"
    NO_RECEIPT = "no_receipt"
    NO_CALL = "no_call"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about one call, or about a receipt whose call it does not have."""

    effect_id: str
    """The idempotency key, or `#` and the number of the record for a call without an id."""
    call: CallIdentity
    tool: str = ""
    sequence: int = 0
    """The last record that told of it."""
    status_sequence: int = 0
    """The record since which `status` is what it is."""
    call_sequence: int | None = None
    lifecycle_sequence: int | None = None
    proof: CallProof | None = None
    capability: ToolCapability | None = None
    capability_sequence: int = 0
    honours_key: bool = False
    receipt: ReceiptState | None = None
    lifecycle: LifecycleState | None = None
    attempt: int = 1
    previous_id: str | None = None
    """The effect that this call is a further attempt at."""
    retried_sequence: int | None = None
    """The record by which a later attempt has begun."""
    decision: DecisionPayload | None = None

    @property
    def has_key(self) -> bool:
        """Whether it can have receipts."""
        return not self.effect_id.startswith("#")

    @property
    def is_call(self) -> bool:
        """Whether the log has the call, and not its receipts alone."""
        return self.call_sequence is not None or self.lifecycle is not None

    @property
    def is_mere_word(self) -> bool:
        """Whether only a capability or an attempt was told, of which nothing follows."""
        return not self.is_call and self.receipt is None

    @property
    def status(self) -> EffectStatus | None:
        """What receipts and lifecycle together say; None if neither says anything.

        Where they differ, the one that claims less certainty holds.
        """
        receipt = None if self.receipt is None else self.receipt.status
        if self.lifecycle is None:
            return receipt
        state = self.lifecycle.result.effect_state
        if receipt is None or receipt is EffectStatus.NOT_STARTED:
            return state
        if receipt is EffectStatus.STARTED:
            is_contradiction = state is EffectStatus.NOT_STARTED
            return EffectStatus.UNKNOWN if is_contradiction else state
        return EffectStatus.UNKNOWN if state is EffectStatus.UNKNOWN else receipt

    @property
    def is_replay_safe(self) -> bool:
        """Whether a fact proves that repeating the call does nothing; a name never does."""
        if self.capability is not None:
            disposition = recovery_disposition(self.capability.effect, self.capability.replay)
        elif self.lifecycle is not None:
            disposition = self.lifecycle.result.recovery_disposition
        else:
            return False
        return disposition is RecoveryDisposition.REPLAY_SAFE

    @property
    def is_settled(self) -> bool:
        """Whether nobody has to ask any more what happened."""
        if self.decision is not None or self.retried_sequence is not None:
            return True
        return self.status in SETTLED or self.is_replay_safe

    @property
    def is_done(self) -> bool:
        """Whether nothing is asked and nothing may follow."""
        if self.decision is not None or self.retried_sequence is not None:
            return True
        is_closed = self.lifecycle is None or self.lifecycle.is_terminal
        has_ended = self.receipt is None or self.receipt.is_final
        return self.is_settled and is_closed and has_ended and not self.is_mere_word

    @property
    def is_candidate(self) -> bool:
        """Whether the call may be made again under its key, its step being open."""
        if self.receipt is None or self.capability is None:
            return False
        return (
            self.receipt.provenance is Provenance.BOUND
            and self.status in (EffectStatus.STARTED, EffectStatus.UNKNOWN)
            and may_be_replayed(self.capability, honours_key=self.honours_key)
        )


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a resumed run does about one effect, and why."""

    verdict: Verdict
    reason: Reason
    sequence: int
    """The record that decides."""

    @property
    def code(self) -> ErrorCode | None:
        """The refusal that a pause stands for."""
        if self.verdict is not Verdict.PAUSE:
            return None
        if self.reason is Reason.COMMITTED_IN_OPEN_STEP:
            return ErrorCode.COMMITTED_EFFECT_PENDING
        return ErrorCode.UNKNOWN_EFFECT


_DOUBTS: Final = {
    None: Reason.NO_RECEIPT,
    EffectStatus.STARTED: Reason.STARTED_WITHOUT_END,
    EffectStatus.UNKNOWN: Reason.ENDED_UNKNOWN,
}


def judge(effect: Effect, output_sequence: int | None, rules: ResumeRules) -> Judgement:
    """Return what a resumed run does about an effect.

    Args:
        output_sequence: the record that completed the effect's step, None for an open one.

    Source: durable-runs 4, and the recovery procedure, "Tools and effects" 5.
    """
    if effect.decision is not None:
        return _decided(effect, effect.decision, output_sequence)
    if effect.retried_sequence is not None:
        return _judged(Verdict.SKIP, Reason.RETRIED, effect.retried_sequence)
    if rules is ResumeRules.ORIGINAL and not effect.is_call:
        return _judged(Verdict.SKIP, Reason.NO_CALL, effect.status_sequence)
    if output_sequence is not None and (effect.is_settled or rules is ResumeRules.ORIGINAL):
        return _judged(Verdict.SKIP, Reason.STEP_COMPLETED, output_sequence)
    status = effect.status
    if status is EffectStatus.NOT_STARTED:
        return _judged(Verdict.RECONSIDER, Reason.NOT_STARTED, effect.status_sequence)
    if effect.is_replay_safe:
        sequence = effect.capability_sequence or effect.status_sequence
        return _judged(Verdict.RECONSIDER, Reason.REPLAY_SAFE, sequence)
    if output_sequence is None and effect.is_candidate:
        return _judged(Verdict.REPLAY, Reason.BOUND_AND_IDEMPOTENT, effect.status_sequence)
    if status is EffectStatus.COMMITTED:
        return _judged(Verdict.PAUSE, Reason.COMMITTED_IN_OPEN_STEP, effect.status_sequence)
    return _judged(Verdict.PAUSE, _DOUBTS[status], effect.status_sequence)


def check_decision(effect: Effect, outcome: DecidedOutcome) -> None:
    """Refuse a decision that nothing leaves open: ``effect_receipt_conflict``."""
    if effect.decision is not None:
        raise conflict("the effect was decided before")
    if effect.retried_sequence is not None:
        raise conflict("a later attempt has taken up the effect")
    status = effect.status
    if status is EffectStatus.NOT_STARTED:
        raise conflict("the effect is known not to have started")
    if status is EffectStatus.COMMITTED and outcome is not DecidedOutcome.COMMITTED:
        raise conflict("the effect is known to be committed")


def _decided(effect: Effect, decision: DecisionPayload, output_sequence: int | None) -> Judgement:
    if decision.outcome is DecidedOutcome.COMMITTED:
        return _judged(Verdict.SKIP, Reason.DECIDED_COMMITTED, effect.sequence)
    verdict = Verdict.RECONSIDER if output_sequence is None else Verdict.SKIP
    return _judged(verdict, Reason.DECIDED_NOT_DONE, effect.sequence)


def _judged(verdict: Verdict, reason: Reason, sequence: int) -> Judgement:
    return Judgement(verdict=verdict, reason=reason, sequence=sequence)
