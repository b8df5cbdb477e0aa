"""Calls of tools: refused before anything is known of them, or kept until they are answered."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.envelope import Deliver
from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import (
    SEMANTIC_INPUT_BYTES_MAX,
    TOOL_CALLS_COMPACTED_MAX,
    TOOL_CALLS_SETTLED_MAX,
    TOOL_RESULT_BUDGET_BYTES,
    TOOL_RESULT_BYTES_MAX,
)
from protocol.semantic_tools import read_semantic_input
from runnerd.core import state_codec
from runnerd.core.harness_messages import Ready
from runnerd.core.inputs import HarnessSpawned
from runnerd.core.tool_calls import reserved_bytes
from tests.runnerd.core.talk import (
    INPUT,
    SPEAKING,
    Talk,
    after_restart,
    called,
    loaded,
    next_turn,
    results,
    said,
    talking,
)
from tests.runnerd.core.world import BIRTH, IDENTITY, SETTINGS, members

WHOLE_TEXT: JsonValue = 'é\u2028\U0001f600\\ " \r\n\t \u0001' + "long " * 5_000 + "tail"


def nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    return value


NESTED = nested(61)
INPUTS: list[JsonValue] = [
    WHOLE_TEXT,
    None,
    0,
    -0.0,
    1e21,
    [],
    {},
    [[[]]],
    {"\U0001f600": 1, "\uffff": 2},
]


def calling() -> Talk:
    world = talking()
    world.call()
    return world


def refusals(world: Talk) -> list[Any]:
    return [p["reason"] for p in world.payloads("harness.diagnostic")]


def test_a_call_is_one_event_that_a_controller_takes_with_the_exact_input() -> None:
    world = calling()

    [event] = [e for e in world.events() if e["eventType"] == "semantic_tool.input"]
    assert event["priority"] == 0
    read = read_semantic_input(event["payload"], IDENTITY)
    assert read.input == INPUT
    assert (read.call_id, read.operation_id, read.idempotency_key) == (
        "call_1",
        "create_task",
        None,
    )
    [call] = world.durable.tool_calls
    assert (call.state, call.input_digest) == ("pending", read.input_digest)
    assert call.source_event_id == event["sourceEventId"]


@pytest.mark.parametrize("value", INPUTS)
def test_an_input_reaches_the_wire_bit_for_bit(value: JsonValue) -> None:
    world = talking()

    world.say(called(input=value))

    [payload] = world.payloads("semantic_tool.input")
    assert payload["semantic_tool"]["input"] == value
    digest = payload["semantic_tool"]["content"]["digest"]
    assert digest == sha256_label(canonical_bytes(value))


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\u0001"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_the_limit_of_an_input_counts_the_bytes_of_its_json(character: str, excess: int) -> None:
    size = len(canonical_bytes(character)) - 2
    count = (SEMANTIC_INPUT_BYTES_MAX - 2) // size
    filler = "x" * (SEMANTIC_INPUT_BYTES_MAX - 2 - count * size)
    text = character * (count + excess) + filler
    world = talking()

    world.say(called(input=text))

    fits = len(canonical_bytes(text)) <= SEMANTIC_INPUT_BYTES_MAX
    assert fits == (excess <= 0)
    assert len(world.payloads("semantic_tool.input")) == fits
    assert refusals(world) == ([] if fits else ["tool_input_too_large"])
    if fits:
        [payload] = world.payloads("semantic_tool.input")
        assert payload["semantic_tool"]["input"] == text


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "no id": ({"call_id": ""}, "tool_call_invalid"),
    "an id that is none": ({"call_id": "a b"}, "tool_call_invalid"),
    "an id that is too long": ({"call_id": "a" * 241}, "tool_call_invalid"),
    "an empty key": ({"idempotency_key": ""}, "tool_call_invalid"),
    "a key that is too long": ({"idempotency_key": "k" * 241}, "tool_call_invalid"),
    "another tool": ({"operation_id": "delete_all"}, "tool_not_authorized"),
    "a lone surrogate": ({"input": "\ud800"}, "tool_input_invalid"),
    "deeper than an event may be": ({"input": NESTED}, "tool_input_too_large"),
    "a fault of the driver": ({"fault": ErrorCode.TOOL_INPUT_INVALID}, "tool_input_invalid"),
    "a credential by its name": ({"input": {"password": "hunter2"}}, "tool_input_holds_credential"),
    "a credential by its shape": (
        {"input": ["ghp_" + "a" * 36]},
        "tool_input_holds_credential",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_refused_is_known_to_nobody(name: str) -> None:
    changes, code = REFUSED[name]
    world = talking()
    before = world.durable.next_source_seq

    world.say(called(**changes))

    assert world.durable.tool_calls == ()
    assert world.payloads("semantic_tool.input") == []
    assert world.durable.next_source_seq == before + 1
    assert refusals(world) == [code]
    assert world.codes() == ["semantic_tool_not_dispatched"]
    [told] = world.take_told()
    assert told["isError"] is True
    assert told["result"] == {"code": "semantic_tool_not_dispatched", "reason": code}
    assert world.stored is not None
    assert b"hunter2" not in world.stored


def test_an_input_that_departs_from_its_schema_is_refused_with_its_place() -> None:
    world = talking()

    world.call("call_1", operation_id="paperclip_finish", input=["hunter2"])

    assert world.durable.tool_calls == ()
    [diagnostic] = world.payloads("harness.diagnostic")
    assert diagnostic["reason"] == "tool_input_invalid"
    assert diagnostic["misfit"] == "/: type"
    assert "hunter2" not in str(diagnostic)
    [line] = world.take_told()
    assert line["result"]["reason"] == "tool_input_invalid"


def test_an_input_of_too_many_values_is_refused() -> None:
    world = talking()

    world.say(called(input=[0] * 9_990))
    world.say(called(input=[0] * 10_001))

    assert refusals(world) == ["tool_input_too_large", "tool_input_invalid"]
    assert world.durable.tool_calls == ()


def test_no_tool_may_be_called_without_a_set() -> None:
    provider = SPEAKING["provider"]
    world = Talk().begin({"provider": provider})
    world.say(Ready())
    world.take_told()

    world.call()

    assert refusals(world) == ["tool_not_authorized"]


def test_calling_twice_changes_nothing() -> None:
    world = calling()
    before, events = world.durable.tool_calls, world.event_types()

    world.call()

    assert world.durable.tool_calls == before
    assert world.event_types() == events
    assert world.take_told() == []


@pytest.mark.parametrize(
    "changes",
    [{"input": {"other": 1}}, {"operation_id": "paperclip_finish"}, {"idempotency_key": "k"}],
)
def test_another_call_under_a_known_id_names_both_digests(changes: dict[str, JsonValue]) -> None:
    world = calling()

    world.say(called(**changes))

    [payload] = world.payloads("harness.diagnostic")
    assert payload["reason"] == "tool_call_conflict"
    assert (payload["callId"], payload["storedInputDigest"]) == (
        "call_1",
        sha256_label(canonical_bytes(INPUT)),
    )
    assert payload["inputDigest"] == sha256_label(canonical_bytes(changes.get("input", INPUT)))
    assert len(world.payloads("semantic_tool.input")) == 1


def test_an_admitted_call_has_room_for_its_largest_result() -> None:
    world = talking()
    count = TOOL_RESULT_BUDGET_BYTES // TOOL_RESULT_BYTES_MAX
    for number in range(count):
        world.call(f"call_{number}")
        world.ack()

    world.call("one_more")

    assert refusals(world) == ["tool_calls_full"]
    assert reserved_bytes(world.durable.tool_calls) == count * TOOL_RESULT_BYTES_MAX
    large: JsonValue = "x" * 450_000
    world = after_restart(world)
    for number in range(count):
        assert world.answer(f"call_{number}", result=large).status == "completed"
        world.ack()
    assert world.stored is not None
    state_codec.load(world.stored, SETTINGS)


def test_room_comes_back_when_results_were_taken() -> None:
    world = talking()
    for number in range(3 * TOOL_RESULT_BUDGET_BYTES // TOOL_RESULT_BYTES_MAX):
        world.call(f"call_{number}")
        world.answer(f"call_{number}")
        world.take_told()
        world.ack()

    assert refusals(world) == []
    assert reserved_bytes(world.durable.tool_calls) == 0


def test_forgotten_calls_are_never_made_again() -> None:
    world = settled(TOOL_CALLS_SETTLED_MAX + 1)
    assert world.durable.compacted_calls == 1

    world.call("call_0")
    world.call("call_1")

    assert refusals(world) == ["tool_call_id_possibly_reused", "tool_call_settled"]
    assert said(world.answer("call_0"))[1]["code"] == "tool_call_unknown"
    state_codec.load(state_codec.encode(world.durable), SETTINGS)


def settled(count: int) -> Talk:
    world = talking()
    for number in range(count):
        world.call(f"call_{number}")
        world.answer(f"call_{number}")
        world.take_told()
        world.ack()
    return world


def test_a_session_with_too_many_forgotten_calls_must_rotate() -> None:
    world = settled(TOOL_CALLS_SETTLED_MAX + 1)
    full = msgspec.structs.replace(world.durable, compacted_calls=TOOL_CALLS_COMPACTED_MAX)
    world = loaded(full)
    next_turn(world)

    world.call("another")

    assert refusals(world) == ["tool_calls_exhausted"]


# --- beyond the turn ----------------------------------------------------------------------------


def test_a_call_outlives_its_program_and_no_new_turn_begins_before_its_result() -> None:
    world = after_restart(calling())

    actions = world.control(Deliver(world.command("turn.start")))

    assert [members(result)["code"] for result in results(actions)] == ["tool_calls_pending"]
    assert said(world.answer())[1] == {"callId": "call_1", "status": "stored"}
    next_turn(world)
    assert world.durable.turn is not None


def test_a_late_result_is_told_to_no_obsolete_turn_but_to_whoever_makes_the_call_again() -> None:
    world = after_restart(calling())
    world.answer()
    next_turn(world)
    assert world.take_told() == []

    world.call()

    [told] = world.take_told()
    assert told["result"] == {"taskId": "t_1"}
    assert len(world.payloads("semantic_tool.input")) == 1
    assert world.durable.tool_calls[0].state == "settled"


def test_the_next_program_of_a_turn_waits_for_the_same_result() -> None:
    world = calling()
    world.lost()
    world.feed(HarnessSpawned(Generation(2), BIRTH))
    world.say(Ready())
    world.take_told()
    world.call()

    assert said(world.answer())[1]["status"] == "delivered"

    assert [told["callId"] for told in world.take_told()] == ["call_1"]
    assert len(world.payloads("semantic_tool.input")) == 1


def test_a_result_that_the_pipe_of_a_lost_program_did_not_take_goes_to_the_next() -> None:
    world = calling()
    world.answer()
    world.lost()
    assert world.durable.tool_calls[0].state == "completed"
    world.feed(HarnessSpawned(Generation(2), BIRTH))
    world.say(Ready())
    world.take_told()

    world.call()

    assert [told["result"] for told in world.take_told()] == [{"taskId": "t_1"}]


def test_a_settled_call_is_not_answered_again() -> None:
    world = calling()
    world.answer()
    world.take_told()
    world.lost()
    world.feed(HarnessSpawned(Generation(2), BIRTH))
    world.say(Ready())
    world.take_told()

    world.call()

    [told] = world.take_told()
    assert told["result"]["reason"] == "tool_call_settled"


def test_the_end_of_the_run_leaves_a_pending_call_pending_and_takes_its_result() -> None:
    world = calling()
    world.call("call_2")
    world.answer("call_2")
    world.ends()
    assert [call.state for call in world.durable.tool_calls] == ["pending", "settled"]

    assert said(world.answer())[1]["status"] == "stored"

    [first, _] = world.durable.tool_calls
    assert (first.state, first.result) == ("settled", msgspec.UNSET)
    assert said(world.answer())[1]["status"] == "duplicate"
