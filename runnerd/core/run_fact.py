"""What the run's log must say of a call or a question before anything follows from it.

It decides which values pass between the core and the log. It refuses to know records: the
recorder writes them, and the core derives what is due from its state alone.
"""

from typing import Final, Literal, TypeAlias

import msgspec

EffectWord: TypeAlias = Literal["committed", "not_started", "unknown"]
"""What the controller, as the authority over its tools, says of a call's effect."""
EFFECT_WORDS: Final[tuple[EffectWord, ...]] = ("committed", "not_started", "unknown")


class CallFact(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a controller's tool: made known to it from here on, or answered by it."""

    call_id: str
    operation_id: str
    input_digest: str
    idempotency_key: str | None = None
    effect: EffectWord | None = None
    """None while no result is there."""
    is_error: bool = False
    result_digest: str | None = None
    result_bytes: int = 0


class RequestFact(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the program, and what became of it."""

    request_id: str
    kind: str
    digest: str
    decision: str | None = None
    """None while it is pending; what the answer calls itself, or how it ended without one."""
    answer_digest: str | None = None


class Exceeded(msgspec.Struct, frozen=True, kw_only=True):
    """The limit that a run went beyond, and what it would have come to."""

    dimension: str
    limit: float
    actual: float

    @property
    def message(self) -> str:
        """Words for a person."""
        return f"{self.dimension} would reach {self.actual:g}, the limit is {self.limit:g}"


class UsageFact(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt's program reported of its use; None for what it never reported."""

    generation: int
    tokens: int | None
    cost_usd: float | None
    is_partial: bool
    """One of its reports lacked a number: the sums say too little."""
    exceeded: Exceeded | None = None


RunFact: TypeAlias = CallFact | RequestFact | UsageFact
