"""The limits of a run: no turn and no call beyond them, and no number that nobody reported."""

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from runnerd.core import state_codec
from runnerd.core.budget import usage_fact
from runnerd.core.harness_messages import Ready, Reported
from runnerd.core.inputs import StopRequested
from runnerd.core.run_fact import Exceeded
from tests.runnerd.core.talk import SPEAKING, Talk, after_restart, said
from tests.runnerd.core.world import exited


def limited(**limits: JsonValue) -> Talk:
    world = Talk()
    world.begin({**SPEAKING, "limits": limits})
    world.say(Ready())
    world.take_told()
    return world


def used(**numbers: JsonValue) -> Reported:
    return Reported(event_type="usage.reported", payload=dict(numbers))


def diagnostics(world: Talk) -> list[dict[str, JsonValue]]:
    found = [p for p in world.payloads("runner.diagnostic") if p["code"] == "budget_limit_blind"]
    return [{**payload} for payload in found]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (3, "Expected `object`"),
        ({"maxTurns": -1}, "outside its range"),
        ({"maxTurns": 1.5}, "Expected `int"),
        ({"maxTokens": -1}, "outside its range"),
        ({"maxToolCalls": True}, "Expected `int"),
        ({"maxCostUsd": -0.01}, "outside its range"),
        ({"maxTurn": 1}, "unknown field"),
    ],
)
def test_limits_that_are_none_are_refused_and_nothing_is_prepared(
    limits: JsonValue, words: str
) -> None:
    world = Talk()
    world.connect()

    result = world.deliver("run.prepare", {**SPEAKING, "limits": limits})

    assert result.status == "rejected"
    members = msgspec.json.decode(result.result)
    assert members["code"] == "limits_invalid"
    assert words in members["message"]
    assert world.durable.provider is None


def test_a_later_prepare_without_limits_keeps_them_and_one_with_limits_replaces_them() -> None:
    world = Talk()
    world.connect()
    world.deliver("run.prepare", {**SPEAKING, "limits": {"maxTurns": 1}})

    world.deliver("run.prepare", SPEAKING)
    assert world.durable.limits is not None
    assert world.durable.limits.max_turns == 1
    world.deliver("run.prepare", {**SPEAKING, "limits": {"maxTurns": 2}})

    assert world.durable.limits.max_turns == 2


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"maxTurns": 1}, "turns: 1 of 1 are used"),
        ({"maxTokens": 10}, "tokens: 10 of 10 are used"),
        ({"maxCostUsd": 0.5}, "costUsd: 0.5 of 0.5 are used"),
    ],
)
def test_no_turn_begins_at_a_limit_also_after_a_restart(
    limits: dict[str, JsonValue], words: str
) -> None:
    world = limited(**limits)
    world.say(used(inputTokens=7, outputTokens=3, costUsd=0.5))
    assert world.stops() == []
    world.feed(StopRequested(15), exited(world.generation, 143))

    again = after_restart(world)

    status, members = said(again.deliver("turn.start"))
    assert status == "rejected"
    assert members["code"] == "budget_exceeded"
    assert words in str(members["message"])
    assert again.durable.turns_started == 1


def test_a_call_beyond_the_limit_is_not_made_and_the_run_fails_by_name() -> None:
    world = limited(maxToolCalls=1)
    world.call("call_1")
    world.answer("call_1")
    world.take_told()

    world.call("call_2")

    assert [call.call_id for call in world.durable.tool_calls] == ["call_1"]
    assert world.stops() == ["budget"]
    fact = usage_fact(world.durable)
    assert fact is not None
    assert fact.exceeded == Exceeded(dimension="toolCalls", limit=1, actual=2)
    payload = world.ends(143)
    assert payload["runTerminalState"] == "failed"
    assert payload["reconciliation"]["reason"] == "budget_exceeded"


def test_a_call_that_is_made_again_counts_once() -> None:
    world = limited(maxToolCalls=1)
    world.call("call_1")

    world.call("call_1")

    assert world.stops() == []


@pytest.mark.parametrize(
    ("limits", "over"),
    [
        ({"maxTokens": 9}, Exceeded(dimension="tokens", limit=9, actual=10)),
        ({"maxCostUsd": 0.25}, Exceeded(dimension="costUsd", limit=0.25, actual=0.5)),
    ],
)
def test_use_beyond_a_limit_ends_the_turn(limits: dict[str, JsonValue], over: Exceeded) -> None:
    world = limited(**limits)

    world.say(used(totalTokens=10, costUsd=0.5))

    assert world.stops() == ["budget"]
    fact = usage_fact(world.durable)
    assert fact is not None
    assert fact.exceeded == over
    assert world.ends(143)["reconciliation"]["reason"] == "budget_exceeded"


@pytest.mark.parametrize(
    ("reports", "tokens", "cost", "is_partial"),
    [
        ([{"totalTokens": 5}, {"totalTokens": 6, "costUsd": 1}], 11, 1.0, True),
        ([{"inputTokens": 5}], None, None, True),
        ([{"inputTokens": 5, "outputTokens": 1, "costUsd": 0}], 6, 0.0, False),
        ([{"totalTokens": -5, "costUsd": True}], None, None, True),
        ([{"totalTokens": "5", "costUsd": "1"}], None, None, True),
    ],
)
def test_what_was_not_reported_stays_missing(
    reports: list[dict[str, JsonValue]], tokens: int | None, cost: float | None, is_partial: bool
) -> None:
    world = limited()

    world.say(*(used(**report) for report in reports))

    fact = usage_fact(world.durable)
    assert fact is not None
    assert (fact.tokens, fact.cost_usd, fact.is_partial) == (tokens, cost, is_partial)
    assert len(world.payloads("usage.reported")) == len(reports)


@pytest.mark.parametrize(
    ("limits", "reports", "named"),
    [
        ({"maxTokens": 5, "maxCostUsd": 1}, [], ["maxTokens", "maxCostUsd"]),
        ({"maxTokens": 5, "maxCostUsd": 1}, [{"totalTokens": 1}], ["maxCostUsd"]),
        ({"maxTokens": 5}, [{"totalTokens": 1}, {"costUsd": 1}], ["maxTokens"]),
        ({"maxTokens": 5}, [{"totalTokens": 1}], None),
        ({"maxTurns": 5}, [], None),
    ],
)
def test_a_limit_that_could_not_be_judged_is_named_at_the_end(
    limits: dict[str, JsonValue], reports: list[dict[str, JsonValue]], named: list[str] | None
) -> None:
    world = limited(**limits)
    world.say(*(used(**report) for report in reports))

    world.conclude()
    world.ends()

    found = [payload["limits"] for payload in diagnostics(world)]
    assert found == ([] if named is None else [named])


def test_use_of_a_lost_program_counts_for_the_run_and_not_for_its_successor() -> None:
    world = limited(maxTokens=100)
    world.say(used(totalTokens=60))
    world.lost()

    assert world.durable.turn is not None
    assert world.durable.turn.usage.tokens == 0
    assert world.durable.usage.tokens == 60


def test_limits_and_use_survive_in_the_state() -> None:
    world = limited(maxTokens=100, maxCostUsd=2.5)
    world.say(used(totalTokens=60, costUsd=0.125))
    assert world.stored is not None

    found = state_codec.load(world.stored, world.settings)

    assert (found.limits, found.usage) == (world.durable.limits, world.durable.usage)
