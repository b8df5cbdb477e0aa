"""The budget: counted before work, first violation kept, missing numbers named."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.budget import (
    Allocation,
    Budget,
    Limits,
    check,
    count_retry,
    count_step,
    count_tool_call,
    count_tool_failure,
    end_turn,
    may_request_model,
    release_child,
    replay,
    reserve_child,
    resolve_limits,
    take_request_slot,
)


def with_limits(**limits: JsonValue) -> Budget:
    return Budget(limits=resolve_limits(limits, {}))


def test_exact_use_stands_but_no_new_request_may_begin() -> None:
    used = end_turn(with_limits(maxTokens=10), tokens=10, cost_usd=0.0)

    assert used.violation is None
    assert not may_request_model(used)


def test_slots_are_taken_before_requests_so_parallel_agents_cannot_pass() -> None:
    budget = with_limits(maxTurns=2)

    first = take_request_slot(budget)
    second = take_request_slot(first)
    third = take_request_slot(second)

    assert (first.violation, second.violation) == (None, None)
    assert third.violation is not None
    assert third.turns == 2


def test_only_the_first_violation_is_kept() -> None:
    over = count_tool_call(with_limits(maxToolCalls=0, maxSteps=0))

    again = count_step(over)

    assert again.violation == over.violation
    with pytest.raises(PrpError) as caught:
        check(again)
    assert caught.value.code is ErrorCode.BUDGET_EXCEEDED


@pytest.mark.parametrize(
    ("limit", "count"),
    [("maxToolFailures", count_tool_failure), ("maxRetries", count_retry)],
)
def test_failures_and_retries_are_exceeded_one_past_the_limit(
    limit: str, count: Callable[[Budget], Budget]
) -> None:
    budget = with_limits(**{limit: 1})

    once = count(budget)
    twice = count(once)

    assert once.violation is None
    assert twice.violation is not None


def test_missing_cost_is_named_and_the_limits_it_blinds_are_said() -> None:
    budget = end_turn(with_limits(maxTokens=10), tokens=50, cost_usd=None)

    assert budget.violation is None
    assert budget.missing == ("costUsd",)
    assert budget.blind_limits == ("maxTokens",)


@pytest.mark.parametrize(
    ("tokens", "cost_usd", "missing"),
    [(None, None, ("costUsd", "tokens")), (5, None, ("costUsd",)), (None, 0.5, ("tokens",))],
)
def test_number_that_one_turn_lacked_stays_missing_also_over_a_resumption(
    tokens: int | None, cost_usd: float | None, missing: tuple[str, ...]
) -> None:
    limits = {"maxTokens": 100, "maxCostUsd": 1}
    told: dict[str, JsonValue] = {"type": "turn_end", "tokens": tokens, "costUsd": cost_usd}

    live = end_turn(with_limits(**limits), tokens=tokens, cost_usd=cost_usd)
    resumed = replay(with_limits(**limits), told)

    for budget in (live, resumed, end_turn(live, tokens=1, cost_usd=0.1)):
        assert budget.missing == missing
        assert budget.blind_limits == ("maxTokens", "maxCostUsd")


def test_missing_numbers_blind_no_limit_that_is_not_set() -> None:
    assert end_turn(with_limits(), tokens=None, cost_usd=None).blind_limits == ()


def test_reported_numbers_blind_nothing() -> None:
    budget = end_turn(with_limits(maxTokens=100), tokens=50, cost_usd=0.1)

    assert (budget.missing, budget.blind_limits) == ((), ())


def test_replayed_events_are_counted_in_silence() -> None:
    budget = with_limits(maxToolCalls=1)
    for _ in range(3):
        budget = replay(budget, {"type": "tool_call"})

    assert budget.tool_calls == 3
    assert budget.violation is None


def test_share_of_a_child_is_set_aside_and_given_back_once() -> None:
    share = Allocation(tokens=5, tool_calls=2, cost_usd=0.0, wall_time_ms=0, steps=0)
    budget = with_limits(maxTokens=10, maxToolCalls=2)

    reserved = reserve_child(budget, "child", share, elapsed_ms=0)
    blocked = count_tool_call(reserved)
    released = release_child(release_child(reserved, "child"), "child")

    assert blocked.violation is not None
    assert released == budget


@pytest.mark.parametrize(
    "share",
    [
        Allocation(tokens=11, tool_calls=0, cost_usd=0, wall_time_ms=0, steps=0),
        Allocation(tokens=0, tool_calls=51, cost_usd=0, wall_time_ms=0, steps=0),
        Allocation(tokens=0, tool_calls=0, cost_usd=0, wall_time_ms=900_001, steps=0),
        Allocation(tokens=0, tool_calls=0, cost_usd=0, wall_time_ms=0, steps=101),
    ],
)
def test_share_beyond_what_is_left_is_refused(share: Allocation) -> None:
    with pytest.raises(PrpError) as caught:
        reserve_child(with_limits(maxTokens=10), "child", share, elapsed_ms=0)

    assert caught.value.code is ErrorCode.CHILD_RUN_POLICY_ESCALATION


@pytest.mark.parametrize("value", [-1, "1", True, 1.5])
def test_limit_that_is_no_bound_is_refused(value: JsonValue) -> None:
    with pytest.raises(PrpError) as caught:
        with_limits(maxTurns=value)

    assert caught.value.code is ErrorCode.USAGE_INVALID


def test_undefined_override_does_not_hide_the_configuration() -> None:
    assert resolve_limits({"maxTurns": 5}, {"maxTurns": None}) == Limits(max_turns=5)


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 200))
def test_tokens_are_exceeded_exactly_when_their_sum_passes_the_limit(
    turns: list[int], limit: int
) -> None:
    budget = with_limits(maxTokens=limit)
    for tokens in turns:
        budget = end_turn(budget, tokens=tokens, cost_usd=0.0)

    assert (budget.violation is not None) == (sum(turns) > limit)
