"""How an effect in doubt becomes known: by a recorded decision with evidence, by nothing else.

It decides whether a decision may be made now and what its record says. It refuses to judge
the evidence, and to overrule what the log knows.

| the log knows              | may be decided         |
|----------------------------|------------------------|
| nothing, started, unknown  | committed, or not done |
| committed in an open step  | committed              |
| not started, decided       | nothing                |

A decision lets the run be resumed: what was decided as committed is not done again, and the
plan of the resumed run names it, so that its agent can be told.
"""

import hashlib

import msgspec

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.decisions import (
    DecidedOutcome,
    Decider,
    DecisionPayload,
    Evidence,
    read_decision,
)
from runnerd.runs.effect_facts import Effect, check_decision
from runnerd.runs.receipts import conflict
from runnerd.runs.records import RecordKind, RunRecord, struct_members
from runnerd.runs.resume_table import Finding, Stage, decide
from runnerd.runs.run_facts import RunFacts

_NO_DECISION_UNDER = (
    Finding.NO_RECORDS,
    Finding.FACTS_NOT_UNDERSTOOD,
    Finding.OUT_OF_ORDER,
    Finding.FINISHED,
    Finding.NO_START,
    Finding.MALFORMED_FACT,
    Finding.CONTRADICTORY_EFFECTS,
)


def evidence_of(content: bytes, statement: str | None = None) -> Evidence:
    """Return the trace that an evidence file leaves in the log.

    Raises PrpError ``usage_invalid`` for an empty file: nothing is no evidence.
    """
    if not content:
        raise PrpError(ErrorCode.USAGE_INVALID, "the evidence is empty")
    return Evidence(
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        statement=msgspec.UNSET if statement is None else statement,
    )


def find_effect(facts: RunFacts, name: str) -> Effect:
    """Return the open effect that is meant.

    Args:
        name: an effect id (the idempotency key, or `#` and a record's number), or a call id
            that only one open effect has.

    Raises PrpError ``effect_receipt_conflict`` if there is none or more than one.
    """
    effects = facts.calls.effects
    exact = effects.get(name)
    if exact is not None:
        return exact
    named = [effect for effect in effects.values() if effect.call.call_id == name]
    if len(named) != 1:
        how_many = "several open effects have" if named else "no open effect has"
        raise conflict(f"{how_many} this name")
    return named[0]


def reconcile_effect(
    facts: RunFacts,
    name: str,
    outcome: DecidedOutcome,
    *,
    decided_by: Decider,
    evidence: Evidence,
    decided_at: str,
) -> RunRecord:
    """Return the record of a decision, to be appended as critical under the run's lock.

    Args:
        facts: of the whole log, collected under the same lock.
        name: see `find_effect`.
        decided_at: the instant, also the record's timestamp.

    Returns:
        The next record of the log. Raises PrpError ``unknown_run``,
        ``run_already_finished``, ``run_state_corrupt`` and ``operation_state_corrupt`` for
        a log to which nothing may be added; ``effect_receipt_conflict`` if the effect is
        not open, was decided before, or is known to be otherwise. A decider or statement
        that no reader would take is ``run_state_corrupt`` as well.

    Source: faults I14; the recovery procedure, "Crash decisions".
    """
    standing = {
        finding: facts.findings[finding]
        for finding in _NO_DECISION_UNDER
        if finding in facts.findings
    }
    refusal = decide(standing, Stage.ADMISSION)
    if refusal is not None:
        raise PrpError(refusal.code, refusal.evidence.words)
    effect = find_effect(facts, name)
    check_decision(effect, outcome)
    decision = DecisionPayload(
        type="effect_reconciled",
        control_id=f"reconcile:{effect.effect_id}",
        status="applied",
        effect_id=effect.effect_id,
        tool=effect.tool,
        outcome=outcome,
        previous_status=effect.status or msgspec.UNSET,
        judged_sequence=effect.sequence,
        decided_by=decided_by,
        evidence=evidence,
        decided_at=decided_at,
        call_id=effect.call.call_id or msgspec.UNSET,
        step_id=effect.call.step_id or msgspec.UNSET,
    )
    payload = struct_members(decision)
    # A record that no reader takes as a decision would damage the log.
    read_decision(payload)
    return RunRecord(
        run_id=facts.run_id,
        sequence=facts.record_count + 1,
        timestamp=decided_at,
        kind=RecordKind.CONTROL,
        payload=payload,
    )
