"""`runnerd runs reconcile`: a person or an authority says what became of an effect.

It decides who decides and on which file, and asks for the record under the run's lock. It
refuses to judge evidence, and whether the effect is open: `reconcile` of the run's rules does.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.base.ports import Clock
from protocol.base.private_directory import reason_of
from protocol.limits import DECISION_TEXT_MAX, EVIDENCE_BYTES_MAX
from protocol.timestamps import rfc3339_ms
from runnerd.flags import usage
from runnerd.io.user import user_name
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind, Evidence
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.records import Durability, RunRecord, is_blank
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.run_store import RunStore

_OUTCOMES: Final[Mapping[str, DecidedOutcome]] = MappingProxyType(
    {"committed": DecidedOutcome.COMMITTED, "not-done": DecidedOutcome.NOT_DONE}
)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, before the log is looked at."""

    outcome: DecidedOutcome
    decided_by: Decider
    evidence: Evidence


def read_decision(values: Mapping[str, str]) -> Decision:
    """Return the decision that the flags make; raises PrpError ``usage_invalid``."""
    outcome = _OUTCOMES.get(values["--outcome"])
    if outcome is None:
        raise usage(f"--outcome is one of {', '.join(_OUTCOMES)}")
    statement = values.get("--statement")
    if statement is not None and not 1 <= len(statement) <= DECISION_TEXT_MAX:
        raise usage(f"--statement is of 1 to {DECISION_TEXT_MAX} characters")
    evidence = evidence_of(content_of("--evidence", values["--evidence"]), statement)
    return Decision(outcome=outcome, decided_by=_decider(values), evidence=evidence)


def record_decision(
    store: RunStore, run_id: str, name: str, decision: Decision, clock: Clock
) -> RunRecord:
    """Make a decision durable in a run that is there; raises what `reconcile_effect` raises."""
    run = store.open_run(run_id)
    try:
        record = reconcile_effect(
            collect_facts(run.records()),
            name,
            decision.outcome,
            decided_by=decision.decided_by,
            evidence=decision.evidence,
            decided_at=rfc3339_ms(clock.now().unix_ms),
        )
        run.append(record, Durability.CRITICAL)
    finally:
        run.close()
    return record


def content_of(flag: str, path: str) -> bytes:
    """Return what the file holds that a flag names; raises PrpError ``usage_invalid``."""
    try:
        with open(path, "rb") as source:
            content = source.read(EVIDENCE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "no file has such a name"
        raise usage(f"the file of {flag} cannot be read: {reason}") from error
    if len(content) > EVIDENCE_BYTES_MAX:
        raise usage(f"the file of {flag} is larger than {EVIDENCE_BYTES_MAX} bytes")
    return content


def _decider(values: Mapping[str, str]) -> Decider:
    if "--by" in values and "--authority" in values:
        raise usage("one of --by and --authority decides")
    if "--authority" in values:
        return _named(DeciderKind.AUTHORITY, values["--authority"])
    return _named(DeciderKind.PERSON, values.get("--by", user_name()))


def _named(kind: DeciderKind, name: str) -> Decider:
    if is_blank(name) or len(name) > DECISION_TEXT_MAX:
        raise usage("who decides needs a name of reasonable length")
    return Decider(kind=kind, name=name)
