"""The limits of a run: what `run.prepare` allows, what was used, and when that is over.

It decides whether another turn or call is within the limits. It refuses to invent numbers:
what a program did not report counts for nothing and is said to be missing.

    turn.start   refused at a limit of turns, tokens or cost: zero effects
    a call       beyond the limit of calls: not made, the run fails with budget_exceeded
    usage        beyond a limit of tokens or cost: the run fails with budget_exceeded
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import structs

from protocol.canonical_json import JsonValue, parse_strict
from protocol.errors import ErrorCode
from protocol.limits import SAFE_INTEGER_MAX
from runnerd.core.admission import Refused
from runnerd.core.ending import stop_turn
from runnerd.core.outbox import Draft
from runnerd.core.run_fact import Exceeded, UsageFact
from runnerd.core.state import Durable, RunLimits, Runner, Turn, Usage
from runnerd.core.transition import advance

USAGE_EVENT: Final = "usage.reported"
_COST_MAX: Final = 1e12


def read_limits(payload: msgspec.Raw, present: RunLimits | None) -> RunLimits | Refused | None:
    """Read the limits that `run.prepare` names; the newest hold for the whole run.

    Returns:
        The limits, ``present`` if none are named, None if there are none. Or
        ``limits_invalid`` with what is wrong.

    Source: durable-runs 6; `limits` is a member of ours.
    """
    value = parse_strict(bytes(payload))
    named = value.get("limits") if isinstance(value, dict) else None
    if named is None:
        return present
    try:
        limits = msgspec.convert(named, RunLimits)
    except msgspec.ValidationError as error:
        return Refused(ErrorCode.LIMITS_INVALID, f"limits: {error}")
    whole = (limits.max_turns, limits.max_tool_calls, limits.max_tokens)
    if any(bound is not None and bound < 0 for bound in whole):
        return Refused(ErrorCode.LIMITS_INVALID, "limits: a number lies outside its range")
    cost = limits.max_cost_usd
    if cost is not None and not 0 <= cost <= _COST_MAX:
        return Refused(ErrorCode.LIMITS_INVALID, "limits: maxCostUsd lies outside its range")
    return limits


def turn_refusal(durable: Durable) -> Refused | None:
    """Return why no further turn may begin: ``budget_exceeded``; None if it may."""
    limits = durable.limits
    if limits is None:
        return None
    turns = ("turns", limits.max_turns, durable.turns_started)
    for name, bound, value in (turns, *_reported(limits, durable.usage)):
        if bound is not None and value >= bound:
            words = f"{name}: {value:g} of {bound:g} are used"
            return Refused(ErrorCode.BUDGET_EXCEEDED, words)
    return None


def allows_call(durable: Durable) -> bool:
    """Tell whether one more call of a tool is within the limits."""
    limits = durable.limits
    bound = None if limits is None else limits.max_tool_calls
    return bound is None or calls_made(durable) < bound


def calls_made(durable: Durable) -> int:
    """Return how many calls of the run were made known to the controller."""
    return durable.compacted_calls + len(durable.tool_calls)


def stop_over_calls(runner: Runner) -> Runner:
    """End the turn whose program asks for more calls than the run may make."""
    return stop_turn(runner, "budget")


def take_usage(runner: Runner, turn: Turn, payload: dict[str, JsonValue]) -> Runner:
    """Count what a program reports of its use; beyond a limit the turn is ended.

    Tokens are `totalTokens`, else the sum of `inputTokens` and `outputTokens`; cost is
    `costUsd`. A number that is not there, or is none, is missing.
    """
    tokens, cost = _tokens(payload), _cost(payload)
    durable = runner.durable
    counted = advance(
        runner,
        usage=_plus(durable.usage, tokens, cost),
        turn=structs.replace(turn, usage=_plus(turn.usage, tokens, cost)),
    )
    return counted if exceeded(counted.durable) is None else stop_turn(counted, "budget")


def exceeded(durable: Durable) -> Exceeded | None:
    """Return the first limit that reported use is beyond; None if it is within all of them."""
    limits = durable.limits
    if limits is None:
        return None
    for name, bound, value in _reported(limits, durable.usage):
        if bound is not None and value > bound:
            return Exceeded(dimension=name, limit=bound, actual=value)
    return None


def _reported(limits: RunLimits, used: Usage) -> tuple[tuple[str, float | None, float], ...]:
    """Return the dimensions that only a program can know: name, bound and sum."""
    return (
        ("tokens", limits.max_tokens, used.tokens),
        ("costUsd", limits.max_cost_usd, used.cost_usd),
    )


def usage_fact(durable: Durable) -> UsageFact | None:
    """Return what the run's log must say of the live turn's use, None if there is nothing."""
    turn = durable.turn
    if turn is None or (not turn.usage.reports and turn.intent != "budget"):
        return None
    used, over = turn.usage, None
    if turn.intent == "budget":
        over = exceeded(durable)
        bound = None if durable.limits is None else durable.limits.max_tool_calls
        if over is None and bound is not None:
            over = Exceeded(dimension="toolCalls", limit=bound, actual=bound + 1)
    return UsageFact(
        generation=turn.generation,
        tokens=None if used.reports == used.without_tokens else used.tokens,
        cost_usd=None if used.reports == used.without_cost else used.cost_usd,
        is_partial=bool(used.without_tokens or used.without_cost),
        exceeded=over,
    )


def blind(durable: Durable, turn: Turn) -> Iterator[Draft]:
    """Yield the report that a turn ended without numbers that a limit needs."""
    limits, used = durable.limits, turn.usage
    if limits is None:
        return
    none = not used.reports
    missing: list[JsonValue] = [
        name
        for name, bound, is_missing in (
            ("maxTokens", limits.max_tokens, none or used.without_tokens),
            ("maxCostUsd", limits.max_cost_usd, none or used.without_cost),
        )
        if bound is not None and is_missing
    ]
    if missing:
        code = ErrorCode.BUDGET_LIMIT_BLIND.value
        facts: dict[str, JsonValue] = {
            "code": code,
            "limits": missing,
            "turnOrdinal": turn.ordinal,
        }
        yield Draft("runner.diagnostic", 1, facts)


def _plus(usage: Usage, tokens: int | None, cost: float | None) -> Usage:
    return Usage(
        reports=usage.reports + 1,
        tokens=min(usage.tokens + (tokens or 0), SAFE_INTEGER_MAX),
        cost_usd=min(usage.cost_usd + (cost or 0.0), _COST_MAX),
        without_tokens=usage.without_tokens + (tokens is None),
        without_cost=usage.without_cost + (cost is None),
    )


def _tokens(payload: dict[str, JsonValue]) -> int | None:
    total = _count(payload.get("totalTokens"))
    if total is not None:
        return total
    parts = [_count(payload.get(name)) for name in ("inputTokens", "outputTokens")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _count(value: JsonValue) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= SAFE_INTEGER_MAX else None


def _cost(payload: dict[str, JsonValue]) -> float | None:
    value = payload.get("costUsd")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _COST_MAX else None
