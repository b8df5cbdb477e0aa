"""The budget of a run: what has been used, what is reserved, and the first limit it passed.

It decides whether more work may begin. It refuses to invent numbers: what a provider did
not report stays missing, is named, and never counts as zero in silence.

    counted before the work (tool calls, request slots) ─▶ passed the limit ─▶ first violation
    reported after it (tokens, cost)                   ─┘    (kept, later ones change nothing)
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import structs

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import UNFIT

Dimension = Literal["turns", "steps", "toolCalls", "toolFailures", "retries", "tokens", "costUsd"]


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Bounds of one run; None is unlimited. Source: durable-runs 6."""

    max_turns: int = 20
    max_steps: int = 100
    step_timeout_ms: int = 300_000
    run_timeout_ms: int = 900_000
    max_tool_calls: int = 50
    max_tool_failures: int = 3
    max_retries: int = 3
    max_tokens: int | None = None
    max_cost_usd: float | None = None


class Allocation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a child run takes out of its parent's rest."""

    tokens: int
    tool_calls: int
    cost_usd: float
    wall_time_ms: int
    steps: int


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """The first limit that was passed; ``actual`` is the value that would have been reached."""

    dimension: Dimension
    limit: float
    actual: float

    @property
    def message(self) -> str:
        """Words for a person."""
        return f"{self.dimension} would reach {self.actual:g}, the limit is {self.limit:g}"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Use so far. ``turns`` counts request slots, taken before the request is made."""

    limits: Limits = Limits()
    turns: int = 0
    steps: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    retries: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    missing: tuple[str, ...] = ()
    """Numbers that some turn did not report, sorted: limits on them cannot be judged."""
    children: tuple[tuple[str, Allocation], ...] = ()
    violation: Violation | None = None

    @property
    def blind_limits(self) -> tuple[str, ...]:
        """Limits that are set but cannot be judged, because their numbers are missing.

        Both numbers of a turn are counted together or not at all, as the original does, so
        either one missing blinds both.
        """
        if not self.missing:
            return ()
        bounds = {"maxTokens": self.limits.max_tokens, "maxCostUsd": self.limits.max_cost_usd}
        return tuple(name for name, bound in bounds.items() if bound is not None)


_NO_CHILD: Final = Allocation(tokens=0, tool_calls=0, cost_usd=0.0, wall_time_ms=0, steps=0)


def resolve_limits(config: Mapping[str, JsonValue], overrides: Mapping[str, JsonValue]) -> Limits:
    """Return the limits of a run: defaults, then the configuration, then defined overrides.

    Raises:
        PrpError: ``budget_exceeded`` is never raised here; a value of a wrong type or below
            zero is ``usage_invalid``.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        limits = msgspec.convert({**config, **given}, Limits)
    except UNFIT as error:
        raise PrpError(ErrorCode.USAGE_INVALID, f"limits: {error}") from None
    for name in limits.__struct_fields__:
        value = getattr(limits, name)
        if value is not None and value < 0:
            raise PrpError(ErrorCode.USAGE_INVALID, f"limits: {name} lies below zero")
    return limits


# --- before work ---------------------------------------------------------------------------


def may_request_model(budget: Budget) -> bool:
    """Tell whether another model request may be made."""
    return budget.violation is None and _request_violation(budget) is None


def take_request_slot(budget: Budget) -> Budget:
    """Take a turn before its request is made, so that parallel agents cannot pass the limit.

    Raises:
        PrpError: through `check`, ``budget_exceeded``.
    """
    violation = _request_violation(budget)
    if violation is not None:
        return _violated(budget, violation)
    return structs.replace(budget, turns=budget.turns + 1)


def count_tool_call(budget: Budget) -> Budget:
    """Count a tool call before it runs; it may run if there is no violation afterwards."""
    counted = structs.replace(budget, tool_calls=budget.tool_calls + 1)
    used = counted.tool_calls + _reserved(budget).tool_calls
    return _bounded(counted, "toolCalls", used, budget.limits.max_tool_calls)


def count_step(budget: Budget) -> Budget:
    """Count a step when it starts."""
    counted = structs.replace(budget, steps=budget.steps + 1)
    used = counted.steps + _reserved(budget).steps
    return _bounded(counted, "steps", used, budget.limits.max_steps)


def check(budget: Budget) -> None:
    """Raise ``budget_exceeded`` if a limit was passed."""
    if budget.violation is not None:
        raise PrpError(ErrorCode.BUDGET_EXCEEDED, budget.violation.message)


# --- after work ----------------------------------------------------------------------------


def count_tool_failure(budget: Budget) -> Budget:
    """Count a tool that failed."""
    counted = structs.replace(budget, tool_failures=budget.tool_failures + 1)
    limit = budget.limits.max_tool_failures
    return _bounded(counted, "toolFailures", counted.tool_failures, limit)


def count_retry(budget: Budget) -> Budget:
    """Count a retry."""
    counted = structs.replace(budget, retries=budget.retries + 1)
    return _bounded(counted, "retries", counted.retries, budget.limits.max_retries)


def end_turn(
    budget: Budget,
    *,
    tokens: int | None,
    cost_usd: float | None,
    wants_another_turn: bool = False,
) -> Budget:
    """Count what a provider reported for a turn; a number that it did not give is None."""
    counted = _usage(budget, tokens, cost_usd)
    limits, reserved = budget.limits, _reserved(budget)
    if limits.max_tokens is not None:
        used = counted.tokens + reserved.tokens
        counted = _bounded(counted, "tokens", used, limits.max_tokens)
    if limits.max_cost_usd is not None:
        spent = counted.cost_usd + reserved.cost_usd
        counted = _bounded(counted, "costUsd", spent, limits.max_cost_usd)
    if wants_another_turn:
        counted = _bounded(counted, "turns", counted.turns + 1, limits.max_turns)
    return counted


def replay(budget: Budget, event: Mapping[str, JsonValue]) -> Budget:
    """Count an event of an earlier attempt: silently, a resumed run announces nothing twice."""
    match event.get("type"):
        case "tool_call":
            return structs.replace(budget, tool_calls=budget.tool_calls + 1)
        case "tool_result" if event.get("isError") is True:
            return structs.replace(budget, tool_failures=budget.tool_failures + 1)
        case "step_start":
            return structs.replace(budget, steps=budget.steps + 1)
        case "retry":
            return structs.replace(budget, retries=budget.retries + 1)
        case "turn_end":
            taken = structs.replace(budget, turns=budget.turns + 1)
            return _usage(taken, whole(event.get("tokens")), number(event.get("costUsd")))
        case _:
            return budget


# --- child runs ----------------------------------------------------------------------------


def reserve_child(budget: Budget, child: str, allocation: Allocation, *, elapsed_ms: int) -> Budget:
    """Set a child run's share aside.

    Args:
        elapsed_ms: wall time of the parent so far.

    Raises:
        PrpError: ``child_run_policy_escalation`` if the share exceeds what is left, or if
            the parent has no finite token limit to take it from.
    """
    limits, reserved = budget.limits, _reserved(budget)
    if limits.max_tokens is None:
        raise PrpError(ErrorCode.CHILD_RUN_POLICY_ESCALATION, "the parent has no token limit")
    left: dict[str, tuple[float, float | None]] = {
        "tokens": (allocation.tokens + reserved.tokens + budget.tokens, limits.max_tokens),
        "toolCalls": (
            allocation.tool_calls + reserved.tool_calls + budget.tool_calls,
            limits.max_tool_calls,
        ),
        "costUsd": (
            allocation.cost_usd + reserved.cost_usd + budget.cost_usd,
            limits.max_cost_usd,
        ),
        "wallTimeMs": (
            allocation.wall_time_ms + reserved.wall_time_ms + elapsed_ms,
            limits.run_timeout_ms,
        ),
        "steps": (allocation.steps + reserved.steps + budget.steps, limits.max_steps),
    }
    for name, (wanted, limit) in left.items():
        if limit is not None and wanted > limit:
            raise PrpError(ErrorCode.CHILD_RUN_POLICY_ESCALATION, f"{name}: more than is left")
    return structs.replace(budget, children=(*budget.children, (child, allocation)))


def release_child(budget: Budget, child: str) -> Budget:
    """Give a child's share back, once; a second release changes nothing."""
    kept = tuple(entry for entry in budget.children if entry[0] != child)
    return structs.replace(budget, children=kept)


def whole(value: JsonValue) -> int | None:
    """Return a JSON value that is a whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: JsonValue) -> float | None:
    """Return a JSON value that is a number, or None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _usage(budget: Budget, tokens: int | None, cost_usd: float | None) -> Budget:
    if tokens is not None and cost_usd is not None:
        return structs.replace(
            budget, tokens=budget.tokens + tokens, cost_usd=budget.cost_usd + cost_usd
        )
    given = {"costUsd": cost_usd, "tokens": tokens}
    missing = tuple(
        name for name, value in given.items() if value is None or name in budget.missing
    )
    return structs.replace(budget, missing=missing)


def _request_violation(budget: Budget) -> Violation | None:
    limits, reserved = budget.limits, _reserved(budget)
    if budget.turns + 1 > limits.max_turns:
        return Violation(dimension="turns", limit=limits.max_turns, actual=budget.turns + 1)
    tokens, cost = budget.tokens + reserved.tokens, budget.cost_usd + reserved.cost_usd
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return Violation(dimension="tokens", limit=limits.max_tokens, actual=tokens)
    if limits.max_cost_usd is not None and cost >= limits.max_cost_usd:
        return Violation(dimension="costUsd", limit=limits.max_cost_usd, actual=cost)
    return None


def _reserved(budget: Budget) -> Allocation:
    shares = [allocation for _, allocation in budget.children]
    if not shares:
        return _NO_CHILD
    return Allocation(
        tokens=sum(share.tokens for share in shares),
        tool_calls=sum(share.tool_calls for share in shares),
        cost_usd=sum(share.cost_usd for share in shares),
        wall_time_ms=sum(share.wall_time_ms for share in shares),
        steps=sum(share.steps for share in shares),
    )


def _bounded(budget: Budget, dimension: Dimension, actual: float, limit: float) -> Budget:
    if actual <= limit:
        return budget
    return _violated(budget, Violation(dimension=dimension, limit=limit, actual=actual))


def _violated(budget: Budget, violation: Violation) -> Budget:
    """Keep the first violation only: it is what ended the run."""
    if budget.violation is not None:
        return budget
    return structs.replace(budget, violation=violation)
