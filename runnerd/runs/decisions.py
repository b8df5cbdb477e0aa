"""The recorded decision about an effect: who says what happened, and on which evidence.

It decides what a decision must name to be one. It refuses to judge whether the effect it
names is open: that is `call_facts`.

A decision stands in the log as a `control` record, which every reader of the original's
format takes: its payload is an object of our own with the members of an applied control.
"""

import enum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.limits import DECISION_TEXT_MAX
from runnerd.runs.receipts import EffectStatus, Fingerprint
from runnerd.runs.records import corrupt, is_blank, is_instant, struct_from

EFFECT_RECONCILED: Final = "effect_reconciled"
APPLIED: Final = "applied"

Words: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=DECISION_TEXT_MAX)]


class DecidedOutcome(enum.StrEnum):
    """What the one who decides says; there is no third word."""

    COMMITTED = "committed"
    NOT_DONE = "not_done"


class DeciderKind(enum.StrEnum):
    """Who may turn unknown into known."""

    PERSON = "person"
    AUTHORITY = "authority"


class Decider(msgspec.Struct, frozen=True):
    """Who decided."""

    kind: DeciderKind
    name: Words


class Evidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was looked at. The file itself is kept by the one who decided."""

    sha256: Fingerprint
    size_bytes: Annotated[int, msgspec.Meta(ge=1)]
    """Nothing is no evidence."""
    statement: Words | UnsetType = UNSET


class DecisionPayload(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The payload of a decision's `control` record."""

    type: Literal["effect_reconciled"]
    control_id: str
    status: Literal["applied"]
    effect_id: str
    """The idempotency key, or `#` and the number of the call's record for one without."""
    tool: str
    outcome: DecidedOutcome
    previous_status: EffectStatus | UnsetType = UNSET
    """What the log knew; absent for a call without receipt."""
    judged_sequence: int
    """The last record about the effect that the decision knew."""
    decided_by: Decider
    evidence: Evidence
    decided_at: str
    call_id: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET


def read_decision(payload: dict[str, JsonValue]) -> DecisionPayload | None:
    """Return the decision that the payload of a `control` record is, None for another control.

    Raises PrpError ``run_state_corrupt`` for a decision without one of its parts.
    """
    if payload.get("type") != EFFECT_RECONCILED:
        return None
    decision = struct_from(payload, DecisionPayload)
    if is_blank(decision.decided_by.name) or not is_instant(decision.decided_at):
        raise corrupt("a decision without its author or instant")
    return decision
