"""The records that stand for a call of a tool and for a question in the log of a run.

It decides what the log lacks of a fact, one record after another, until it lacks nothing. It
refuses to append: the recorder does, and asks again with what the log says then.

A call is a step of its run: the stored result is the step's output, so that a run which goes
on finds a call either done with a result at hand, or in doubt.

    step_start ▶ tool_call ▶ capability ▶ started ▶ tool_result ▶ step_output ▶ committed
                                             └─error▶ tool_result ▶ unknown
    result for a run that is paused: the authority's decision, as a `control` record
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from protocol.canonical_json import JsonValue
from protocol.digest import LABEL_PREFIX
from runnerd.core.run_fact import CallFact, RequestFact, UsageFact
from runnerd.runs.capability import capability_event, unregistered
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind, Evidence
from runnerd.runs.effect_facts import Effect
from runnerd.runs.fingerprints import CallIdentity, call_identity, idempotency_key
from runnerd.runs.receipts import EffectStatus, receipt_event
from runnerd.runs.reconcile import reconcile_effect
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.run_facts import RunFacts

Missing: TypeAlias = tuple[RecordKind, dict[str, JsonValue]]
"""Kind and payload; of an event only the event, its entry is made around it."""

AGENT: Final = "program"
AUTHORITY: Final = Decider(kind=DeciderKind.AUTHORITY, name="controller")
_DECIDED: Final = {
    "committed": DecidedOutcome.COMMITTED,
    "not_started": DecidedOutcome.NOT_DONE,
}


class CallLog:
    """What the log of a run says so far: its facts, and which ends were told in part."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self.facts = RunFacts()
        self.resolved: set[str] = set()
        """Questions that have an end."""
        self.results: set[str] = set()
        """Calls whose result was told and whose receipt does not say so yet."""
        self.used: set[object] = set()
        """Generations whose use was told."""
        for record in records:
            self.apply(record)

    def apply(self, record: RunRecord) -> None:
        """Take the next record."""
        self.facts.apply(record)
        payload = record.payload
        event = payload.get("event") if isinstance(payload, dict) else None
        if record.kind is not RecordKind.EVENT or not isinstance(event, dict):
            return
        if event.get("type") == "approval_resolved":
            self.resolved.add(str(event.get("approvalId")))
        elif event.get("type") == "turn_end":
            self.used.add(event.get("generation"))
        elif event.get("type") == "tool_result":
            self.results.add(str(event.get("callId")))
        elif event.get("type") == "effect_receipt" and event.get("status") != "started":
            self.results.discard(str(event.get("callId")))

    def has_call(self, call_id: str) -> bool:
        """Tell whether the log knows of a call, however it ended."""
        is_done = call_id in self.facts.calls.completed_steps
        return is_done or self.effect(call_identity(AGENT, call_id, call_id)) is not None

    def effect(self, call: CallIdentity) -> Effect | None:
        """Return what is known of a call that is open or in doubt."""
        key = idempotency_key(self.facts.run_id, call.step_id, call.call_id)
        return self.facts.calls.effects.get(key)


def missing_of_call(
    log: CallLog, fact: CallFact, turn_id: str, decided_at: str
) -> tuple[Missing, ...]:
    """Return what a running attempt's log lacks of a call next; nothing if it has all of it."""
    facts, call = log.facts, call_identity(AGENT, fact.call_id, fact.call_id)
    effect = log.effect(call)
    if effect is None:
        if fact.call_id in facts.calls.completed_steps:
            return ()
        return _beginning(call, fact, turn_id)
    if effect.status is None:
        return ((RecordKind.EVENT, _receipt(facts, effect, turn_id, EffectStatus.STARTED)),)
    if fact.effect is None or effect.decision is not None:
        return ()
    if effect.status is not EffectStatus.STARTED:
        return ()
    result: tuple[Missing, ...] = ()
    if fact.call_id not in log.results:
        result = ((RecordKind.EVENT, _result(effect, fact, turn_id)),)
    if fact.effect == "not_started":
        # No receipt says of a call that had begun that it did nothing: a decision does.
        decision = _decision(facts, effect, fact, DecidedOutcome.NOT_DONE, decided_at)
        return (decision, *result)
    if fact.effect == "committed" and fact.call_id not in facts.calls.completed_steps:
        result = (*result, (RecordKind.EVENT, _output(effect, fact)))
    # The last is critical, so that one synchronisation makes all of it durable.
    last = _receipt(facts, effect, turn_id, EffectStatus(fact.effect))
    return (*result, (RecordKind.EVENT, last))


def decision_of_call(log: CallLog, fact: CallFact, decided_at: str) -> Missing | None:
    """Return the decision that a result is for a run that does not go on; None if it is none.

    Source: faults I14: unknown ends by evidence of the authority that is itself recorded.
    """
    effect = log.effect(call_identity(AGENT, fact.call_id, fact.call_id))
    outcome = None if fact.effect is None else _DECIDED.get(fact.effect)
    if effect is None or outcome is None or effect.is_settled:
        return None
    return _decision(log.facts, effect, fact, outcome, decided_at)


def unknown_ends(facts: RunFacts, turn_id: str) -> tuple[Missing, ...]:
    """Return the receipts of calls that a run leaves behind which ends for good."""
    return tuple(
        (RecordKind.EVENT, _receipt(facts, effect, turn_id, EffectStatus.UNKNOWN))
        for effect in facts.calls.effects.values()
        if effect.status is EffectStatus.STARTED
        and effect.decision is None
        and effect.call.agent == AGENT
    )


def missing_of_request(log: CallLog, fact: RequestFact) -> tuple[Missing, ...]:
    """Return what the log lacks of a question next."""
    if fact.request_id in log.resolved:
        return ()
    if fact.request_id not in log.facts.pending_approvals:
        asked: dict[str, JsonValue] = {
            "type": "approval_required",
            "approvalId": fact.request_id,
            "agent": AGENT,
            "requestKind": fact.kind,
            "requestDigest": fact.digest,
        }
        return ((RecordKind.EVENT, asked),)
    if fact.decision is None:
        return ()
    return ((RecordKind.EVENT, approval_resolved(fact.request_id, fact.decision, fact)),)


def missing_of_usage(log: CallLog, fact: UsageFact) -> tuple[Missing, ...]:
    """Return what the log lacks of an attempt's use: its numbers, and the limit it passed."""
    if fact.generation in log.used:
        return ()
    told: list[Missing] = []
    if fact.exceeded is not None:
        over: dict[str, JsonValue] = {
            "type": "budget_exceeded",
            "dimension": fact.exceeded.dimension,
            "limit": fact.exceeded.limit,
            "actual": fact.exceeded.actual,
            "message": fact.exceeded.message,
        }
        told.append((RecordKind.EVENT, over))
    used: dict[str, JsonValue] = {
        "type": "turn_end",
        "agent": AGENT,
        "generation": fact.generation,
        "isPartial": fact.is_partial,
    }
    if fact.tokens is not None:
        used["tokens"] = fact.tokens
    if fact.cost_usd is not None:
        used["costUsd"] = fact.cost_usd
    return (*told, (RecordKind.EVENT, used))


def approval_resolved(
    request_id: str, decision: str, fact: RequestFact | None = None
) -> dict[str, JsonValue]:
    """Return the end of a question as an event."""
    event: dict[str, JsonValue] = {
        "type": "approval_resolved",
        "approvalId": request_id,
        "decision": decision,
    }
    if fact is not None and fact.answer_digest is not None:
        event["answerDigest"] = fact.answer_digest
    return event


def _beginning(call: CallIdentity, fact: CallFact, turn_id: str) -> tuple[Missing, ...]:
    told: dict[str, JsonValue] = {
        "type": "tool_call",
        "agent": call.agent,
        "stepId": call.step_id,
        "turnId": turn_id,
        "callId": call.call_id,
        "tool": fact.operation_id,
        "argumentsFingerprint": fact.input_digest.removeprefix(LABEL_PREFIX),
    }
    if fact.idempotency_key is not None:
        told["programKey"] = fact.idempotency_key
    return (
        (RecordKind.EVENT, {"type": "step_start", "stepId": call.step_id}),
        (RecordKind.EVENT, told),
        (RecordKind.EVENT, capability_event(call, unregistered(fact.operation_id))),
    )


def _result(effect: Effect, fact: CallFact, turn_id: str) -> dict[str, JsonValue]:
    call = effect.call
    return {
        "type": "tool_result",
        "agent": call.agent,
        "stepId": call.step_id,
        "turnId": turn_id,
        "callId": call.call_id,
        "tool": effect.tool,
        "isError": fact.is_error,
        "resultDigest": fact.result_digest,
    }


def _output(effect: Effect, fact: CallFact) -> dict[str, JsonValue]:
    return {
        "type": "step_output",
        "stepId": effect.call.step_id,
        "agent": effect.call.agent,
        "text": fact.result_digest or "",
    }


def _decision(
    facts: RunFacts,
    effect: Effect,
    fact: CallFact,
    outcome: DecidedOutcome,
    decided_at: str,
) -> Missing:
    evidence = Evidence(
        sha256=(fact.result_digest or "").removeprefix(LABEL_PREFIX),
        size_bytes=max(1, fact.result_bytes),
        statement="the result that the controller delivered",
    )
    record = reconcile_effect(
        facts,
        effect.effect_id,
        outcome,
        decided_by=AUTHORITY,
        evidence=evidence,
        decided_at=decided_at,
    )
    assert isinstance(record.payload, dict), "a decision has members"
    return record.kind, record.payload


def _receipt(
    facts: RunFacts, effect: Effect, turn_id: str, status: EffectStatus
) -> dict[str, JsonValue]:
    return receipt_event(facts.run_id, effect.call, effect.tool, turn_id, status, effect.proof)
