"""What a harness and the controller have open with each other, as values.

It decides what is remembered of a request, of a call and of what is to be told. It refuses to
know when any of it changes: `requests`, `tool_calls` and `dialogue` do.

    request   pending ─answer▶ answered ─told▶ resolved      pending ─▶ expired | cancelled
    call      pending ─result▶ completed ─told▶ settled
"""

from typing import Literal

import msgspec

from protocol.canonical_json import JsonValue
from protocol.ids import Generation, SourceEventId
from runnerd.core.run_fact import EffectWord


class RuntimeRequest(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A question of the harness that a person or the controller answers, once."""

    request_id: str
    kind: str
    digest: str
    """Of the exact question, which the answer may name."""
    generation: Generation
    """The program that waits for the answer, if it still lives."""
    state: Literal["pending", "answered", "resolved", "expired", "cancelled"] = "pending"
    expires_at_unix_ms: int | None = None
    answer: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Kept until a program was told."""
    answer_digest: str | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether a program may still be told an answer."""
        return self.state in ("pending", "answered")


class ToolCall(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A call of a controller's tool. It outlives the turn that made it."""

    call_id: str
    operation_id: str
    input_digest: str
    idempotency_key: str | None
    source_event_id: SourceEventId
    generation: Generation
    """The program that waits for the result, if it still lives."""
    state: Literal["pending", "completed", "settled"] = "pending"
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Kept until a program was told."""
    result_digest: str | None = None
    is_error: bool = False
    effect: EffectWord | None = None
    """What the controller says of its effect; None while no result is there."""


class ToolSet(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The tools that the run may call, as `run.prepare` gave them."""

    catalog_digest: str
    operation_ids: tuple[str, ...]
    operations: msgspec.Raw


class HarnessCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A line to be written to the harness; ``number`` counts them within a generation."""

    number: int
    line: bytes
    settles: tuple[Literal["request", "call"], str] | None = None
    """What is over once this was written."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the harness says that its work ended: a proposal, which facts may contradict."""

    proposal: dict[str, JsonValue]
    turn_state: str | None = None
    run_state: str | None = None
    disposition: str | None = None

    @property
    def is_valid(self) -> bool:
        """Tell whether it names a state of turn and run and a disposition that exist."""
        return None not in (self.turn_state, self.run_state, self.disposition)


class Dialogue(msgspec.Struct, frozen=True, kw_only=True):
    """What was said between this process and one generation of a harness; dies with either."""

    generation: Generation
    is_ready: bool = False
    commands: tuple[HarnessCommand, ...] = ()
    """Those that are not known to be written, in order."""
    next_number: int = 1
    ordered_through: int = 0
    """Newest number that was ordered; set back when an order may be lost."""
    open_items: tuple[str, ...] = ()
    ended_items: tuple[str, ...] = ()
    has_result: bool = False
    disposition: str | None = None
    """What the result reports of the work."""
    conclusion: Conclusion | None = None
