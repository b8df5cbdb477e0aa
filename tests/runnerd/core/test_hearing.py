"""What a program says: each message in each phase, and what is refused with a diagnostic."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.limits import HARNESS_READ_LINES_MAX, HARNESS_UNTOLD_BYTES_MAX
from runnerd.core import state_codec
from runnerd.core.actions import ReadHarness
from runnerd.core.harness_messages import (
    Asked,
    Called,
    Concluded,
    Diagnosed,
    HarnessMessage,
    Logged,
    Misspoken,
    Proposed,
    Ready,
    Reported,
)
from runnerd.core.inputs import HarnessMessages
from tests.runnerd.core.talk import FAILURE, RESULT, SUCCESS, Talk, called, talking
from tests.runnerd.core.world import SETTINGS

SMALL = msgspec.structs.replace(SETTINGS, max_outbox_bytes=64 * 1024, p0_reserve_bytes=16 * 1024)
MESSAGES: dict[str, HarnessMessage] = {
    "ready": Ready("1"),
    "event": Reported(event_type="plan.note", payload={}),
    "item": Reported(event_type="item.started", payload={}, item_id="i_1"),
    "usage": Reported(event_type="usage.reported", payload={"n": 1}),
    "own": Reported(event_type="run.terminal", payload=SUCCESS),
    "ask": Asked(request_id="ask_1", kind="permission", question={"tool": "rm"}),
    "call": called(),
    "result": Proposed(RESULT),
    "bad result": Proposed({"schema": "other"}),
    "terminal": Concluded(SUCCESS),
    "log": Logged("a line"),
    "diagnostic": Diagnosed("slow", "it takes long"),
    "misspoken": Misspoken(type="request", reason="no", request_id="r", call_id="c"),
}
PHASES: dict[str, Callable[[], Talk]] = {
    "no turn": lambda: ended(talking()),
    "not ready": lambda: Talk().begin(),
    "ready": talking,
    "with an item": lambda: saying(MESSAGES["item"]),
    "with a result": lambda: saying(MESSAGES["result"]),
    "concluded": lambda: saying(MESSAGES["terminal"]),
    "stopping": lambda: stopping(talking()),
    "lost": lambda: lost(talking()),
}


def saying(message: HarnessMessage) -> Talk:
    world = talking()
    world.say(message)
    return world


def ended(world: Talk) -> Talk:
    world.ends()
    return world


def stopping(world: Talk) -> Talk:
    world.deliver("turn.interrupt")
    return world


def lost(world: Talk) -> Talk:
    world.lost()
    return world


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("phase", PHASES)
def test_any_message_in_any_phase_leaves_a_state_that_loads(phase: str, message: str) -> None:
    world = PHASES[phase]()
    before = world.durable

    world.say(MESSAGES[message])

    state_codec.load(state_codec.encode(world.durable), SETTINGS)
    if phase in ("no turn", "lost"):
        assert world.durable == before
    if phase == "concluded" and message != "log":
        [*_, newest] = world.event_types()
        assert newest == "harness.diagnostic"
        assert (world.durable.tool_calls, world.durable.requests) == ((), ())


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_an_older_generation_changes_nothing(message: str) -> None:
    world = talking()
    world.lost()
    assert world.generation == 2
    before = world.runner

    world.feed(HarnessMessages(type(world.generation)(1), (MESSAGES[message],)))

    assert world.durable == before.durable


def test_events_of_a_program_are_reported_with_their_item_and_priority() -> None:
    world = talking()

    world.say(
        Reported(event_type="item.started", payload={"channel": "progress"}, item_id="i_1"),
        Reported(event_type="item.delta", payload={"text": "one"}, item_id="i_1"),
        Reported(event_type="item.completed", payload={}, item_id="i_1"),
        Reported(event_type="usage.reported", payload={"inputTokens": 5}),
    )

    told = [(e["eventType"], e["priority"], e["payload"]) for e in world.events()[-4:]]
    assert told == [
        ("item.started", 1, {"channel": "progress", "harnessItemId": "i_1"}),
        ("item.delta", 2, {"text": "one", "harnessItemId": "i_1"}),
        ("item.completed", 1, {"harnessItemId": "i_1"}),
        ("usage.reported", 1, {"inputTokens": 5}),
    ]
    assert all(event["itemId"] == "item_1" for event in world.events())


@pytest.mark.parametrize("event_type", ["session.started", "session.resumed", "turn.started"])
def test_what_only_confirms_the_runner_is_no_event_again(event_type: str) -> None:
    world = talking()
    before = world.event_types()

    world.say(Reported(event_type=event_type, payload={}))

    assert world.event_types() == before


@pytest.mark.parametrize(
    "event_type",
    [
        "run.terminal",
        "run.result.proposed",
        "turn.completed",
        "session.closed",
        "runner.stopped",
        "harness.exited",
        "runtime_request.resolved",
        "semantic_tool.input",
        "mcp_app.tool_input",
        "workspace.ready",
        "interaction.request.proposed",
        "issue.status.decision.applied",
    ],
)
def test_facts_that_the_runner_owns_are_refused(event_type: str) -> None:
    world = talking()
    before = world.event_types()

    world.say(Reported(event_type=event_type, payload={}))

    assert world.event_types() == [*before, "harness.diagnostic"]
    assert world.payloads("harness.diagnostic") == [
        {
            "code": "harness_message_refused",
            "generation": 1,
            "reason": "the runner states this itself",
            "refused": event_type,
        }
    ]


def test_credentials_in_events_are_not_passed_on() -> None:
    world = talking()
    secret = "ghp_" + "a" * 36

    world.say(
        Reported(event_type="usage.reported", payload={"apiKey": "k", "note": f"with {secret}"})
    )

    assert world.payloads("usage.reported") == [{"apiKey": "[REDACTED]", "note": "with [REDACTED]"}]


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("no.such.type", {}),
        ("plan.updated", {"schema": "paperclip.plan.updated.v1"}),
        ("session.goal.updated", {}),
        ("usage.reported", {"text": "x" * 600_000}),
    ],
)
def test_an_event_that_no_peer_would_take_is_refused(
    event_type: str, payload: dict[str, JsonValue]
) -> None:
    world = talking()
    first = world.durable.next_source_seq

    world.say(Reported(event_type=event_type, payload=payload))

    assert world.codes() == ["harness_message_refused"]
    assert world.durable.next_source_seq == first + 1


def test_the_first_result_holds() -> None:
    world = talking()
    other = RESULT | {"summary": "Another one."}

    world.say(Proposed(RESULT), Proposed(other))

    assert world.payloads("run.result.proposed") == [RESULT]
    assert world.codes() == ["duplicate_semantic_result_ignored"]


def test_a_malformed_result_does_not_count_and_a_good_one_may_follow() -> None:
    world = talking()

    world.say(Proposed({"schema": "paperclip.run_result.v1"}), Proposed(RESULT))

    assert world.payloads("run.result.proposed") == [RESULT]
    assert world.codes() == ["harness_message_refused"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evidence": None, "artifacts": None}, "no result: it lacks evidence, artifacts"),
        ({"summary": ""}, "no result: the event breaks its schema at /payload/summary"),
    ],
)
def test_refusal_of_a_result_says_what_is_missing_or_where_it_is_wrong(
    changes: dict[str, JsonValue], reason: str
) -> None:
    world = talking()
    result: dict[str, JsonValue] = {**RESULT, **changes}
    result = {name: value for name, value in result.items() if value is not None}

    world.say(Proposed(result))

    assert [payload["reason"] for payload in world.payloads("harness.diagnostic")] == [reason]


def test_messages_after_the_conclusion_are_refused() -> None:
    world = talking()
    world.conclude()
    world.take_told()

    world.say(MESSAGES["ask"], MESSAGES["call"], MESSAGES["usage"], Concluded(FAILURE))

    assert world.codes() == [*["harness_message_refused"] * 3, "duplicate_terminal_ignored"]
    assert (world.durable.tool_calls, world.durable.requests) == ((), ())


def test_ready_twice_is_refused_and_greets_once() -> None:
    world = talking()

    world.say(Ready())

    assert world.codes() == ["harness_message_refused"]
    assert world.take_told() == []


def test_what_waits_for_an_answer_is_told_that_its_message_said_nothing() -> None:
    world = talking()

    world.say(Misspoken(type="request", reason="it needs kind", request_id="r_1"))
    world.say(Misspoken(type="request", reason="it needs input", call_id="c_1"))

    request, call = world.take_told()
    assert request == {
        "type": "request.resolve",
        "requestId": "r_1",
        "outcome": "refused",
        "code": "harness_message_refused",
    }
    assert (call["callId"], call["isError"]) == ("c_1", True)
    assert call["result"]["code"] == "semantic_tool_not_dispatched"


def test_a_diagnostic_is_bounded_and_redacted() -> None:
    world = talking()

    world.say(Diagnosed("slow", "password=hunter2 " + "x" * 10_000))

    [payload] = world.payloads("harness.diagnostic")
    assert payload["code"] == "slow"
    assert "hunter2" not in payload["message"]
    assert len(payload["message"].encode()) <= 4096


def test_every_message_counts_as_a_line() -> None:
    world = talking()
    before = world.durable.lines_accepted

    world.say(Logged("a"), Logged("b"), MESSAGES["own"])

    assert world.durable.lines_accepted == before + 3
    assert world.durable.turn is not None
    assert world.durable.turn.lines == before + 3


def test_more_is_read_only_when_what_was_said_is_durable() -> None:
    world = talking()
    world.driver.feed(HarnessMessages(world.generation, (MESSAGES["usage"],)), world.now)

    assert world.driver.next_action() is None
    actions = world.settle()

    assert isinstance(actions[-1], ReadHarness)


def test_messages_without_room_end_the_turn_and_keep_what_fitted() -> None:
    world = talking(SMALL)
    text: JsonValue = "x" * 2_000
    messages = tuple(
        Reported(event_type="usage.reported", payload={"n": n, "t": text}) for n in range(40)
    )

    world.say(*messages)

    kept = [payload["n"] for payload in world.payloads("usage.reported")]
    assert 0 < len(kept) < 40
    assert kept == list(range(len(kept)))
    assert world.stops() == ["overflow"]
    assert world.runner.live.outbox_bytes <= SMALL.max_outbox_bytes - SMALL.p0_reserve_bytes


def test_a_question_or_call_without_room_is_refused_and_the_turn_goes_on() -> None:
    world = talking(SMALL)

    world.say(
        Called(call_id="c", operation_id="create_task", input={"x": "y" * 60_000}),
        Asked(request_id="r", kind="input", question={"x": "y" * 50_000}),
    )

    assert world.stops() == []
    assert (world.durable.tool_calls, world.durable.requests) == ((), ())
    call, request = world.take_told()
    assert call["result"] == {"code": "semantic_tool_not_dispatched", "reason": "outbox_full"}
    assert request["code"] == "outbox_full"
    world.call()
    assert len(world.durable.tool_calls) == 1


def test_each_of_the_calls_that_came_in_one_read_is_answered_when_all_are_refused() -> None:
    """A program has had no chance to read what it is told of the first ones."""
    world = talking()
    ids = [f"call_{number}" for number in range(HARNESS_READ_LINES_MAX)]

    world.say(*(called(call_id, operation_id="none") for call_id in ids))
    told: list[dict[str, Any]] = []
    while world.unwritten():
        told += world.take_told()

    assert [line["callId"] for line in told] == ids


def test_refusals_of_long_names_cost_a_bounded_memory_when_nobody_reads_them() -> None:
    world = talking()
    name = "x" * (HARNESS_UNTOLD_BYTES_MAX // 4)

    for _ in range(9):
        world.say(called(name))

    dialogue = world.runner.live.dialogue
    assert dialogue is not None
    kept = sum(len(command.line) for command in dialogue.commands)
    assert HARNESS_UNTOLD_BYTES_MAX < kept < 2 * HARNESS_UNTOLD_BYTES_MAX
