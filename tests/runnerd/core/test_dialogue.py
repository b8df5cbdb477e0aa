"""What a program is told: in order, once, when it is durable, and no more than it may leave."""

from typing import Any

import pytest

from protocol.canonical_json import JsonValue
from protocol.limits import HARNESS_GRACE_MS, HARNESS_UNTOLD_MAX, HARNESS_UNWRITTEN_BYTES_MAX
from runnerd.core.actions import ReadHarness, SendEvent, TellHarness
from runnerd.core.harness_messages import Asked, Concluded, Ready
from runnerd.core.inputs import HarnessMessages, HarnessTold, TimePassed
from tests.runnerd.core.talk import SUCCESS, TOOLS, Talk, called, talking
from tests.runnerd.core.world import IDENTITY


def test_a_ready_program_is_told_its_session_and_the_exact_turn() -> None:
    world = Talk().begin(input={"text": "Grüße\r\n"}, turnTimeoutMs=0)
    assert world.unwritten() == []

    world.say(Ready())

    session, turn = world.take_told()
    assert session == {
        "type": "session.open",
        "runId": IDENTITY.run_id,
        "normalizedSessionId": IDENTITY.normalized_session_id,
        "turnId": IDENTITY.turn_id,
        "itemId": IDENTITY.item_id,
        "generation": 1,
        "turnOrdinal": 1,
        "linesAccepted": 1,
        "resumed": False,
        "tools": TOOLS["operations"],
    }
    assert turn == {"type": "turn.start", "input": {"text": "Grüße\r\n"}, "turnTimeoutMs": 0}
    assert world.event_types()[-2:] == ["harness.ready", "turn.started"]
    assert world.unwritten() == []


def test_what_a_turn_was_told_is_in_no_state() -> None:
    world = Talk().begin(input="a prompt of the user")

    world.say(Ready())

    assert world.stored is not None
    assert b"a prompt of the user" not in world.stored


def test_nothing_is_told_before_it_is_durable() -> None:
    world = Talk().begin()
    world.driver.feed(HarnessMessages(world.generation, (Ready(),)), world.now)

    assert world.driver.next_action() is None
    assert world.driver.next_write() is not None
    world.driver.wrote()

    kinds: list[type[object]] = []
    while (action := world.driver.next_action()) is not None:
        kinds.append(type(action))
    assert kinds == [SendEvent, SendEvent, TellHarness, TellHarness, ReadHarness]


def test_lines_are_ordered_again_when_a_failed_write_dropped_them() -> None:
    world = Talk().begin()
    world.driver.feed(HarnessMessages(world.generation, (Ready(),)), world.now)
    world.write_fails()
    assert world.unwritten() == []

    world.later(1_000, TimePassed())

    assert [order.number for order in world.unwritten()] == [1, 2]


def test_a_line_that_was_taken_is_not_ordered_again_after_a_failed_write() -> None:
    world = Talk().begin()
    world.say(Ready())
    world.feed(HarnessTold(world.generation, 1))
    before = len(world.left)
    world.driver.feed(HarnessMessages(world.generation, (ask(),)), world.now)
    world.write_fails()

    world.later(1_000, TimePassed())

    again = [action for action in world.left[before:] if isinstance(action, TellHarness)]
    assert [order.number for order in again] == [2]


def ask(number: int = 1) -> Asked:
    return Asked(request_id=f"ask_{number}", kind="input", question={"n": number})


def test_a_program_that_reads_nothing_holds_a_bounded_number_of_bytes() -> None:
    world = talking()
    size = 30_000
    count = 2 * HARNESS_UNWRITTEN_BYTES_MAX // size
    for number in range(count):
        world.say(ask(number))
        assert world.resolve(f"ask_{number}", resolution={"x": "y" * size}).status == "completed"
        world.ack()

    held = world.unwritten()

    assert sum(len(order.line) for order in held) <= HARNESS_UNWRITTEN_BYTES_MAX
    taken = 0
    while world.unwritten():
        taken += len(world.take_told())
    assert taken == count


def test_a_line_above_the_bound_is_told_alone() -> None:
    world = talking()
    world.call()
    world.call("call_2")
    large: JsonValue = {"x": "y" * (HARNESS_UNWRITTEN_BYTES_MAX + 1)}

    world.answer()
    world.answer("call_2", result=large)

    [first] = world.take_told()
    [second] = world.take_told()
    assert first["callId"] == "call_1"
    assert second["result"] == large


def test_a_program_that_never_reads_and_errs_for_ever_costs_a_bounded_memory() -> None:
    world = talking()
    world.call()

    for _ in range(3 * HARNESS_UNTOLD_MAX):
        world.say(called("call_x", operation_id="none"))
        world.ack()
    world.answer()

    dialogue = world.runner.live.dialogue
    assert dialogue is not None
    assert len(dialogue.commands) == HARNESS_UNTOLD_MAX + 1
    assert dialogue.commands[-1].settles == ("call", "call_1")
    told: list[dict[str, Any]] = []
    while world.unwritten():
        told += world.take_told()
    assert told[-1]["result"] == {"taskId": "t_1"}


@pytest.mark.parametrize("generation", [0, 7])
def test_what_another_program_took_changes_nothing(generation: int) -> None:
    world = talking()
    world.call()
    world.answer()
    before = world.runner

    world.feed(HarnessTold(type(world.generation)(generation), 99))

    assert world.runner == before
    assert world.durable.tool_calls[0].state == "completed"


def test_a_program_that_concluded_is_told_to_close_and_has_a_grace() -> None:
    world = talking()

    world.conclude()

    assert world.take_told() == [{"type": "session.close"}]
    assert world.stops() == []
    world.later(HARNESS_GRACE_MS - 1, TimePassed())
    assert world.stops() == []
    world.later(1, TimePassed())
    assert world.stops() == ["finished"]


def test_a_program_that_exits_within_its_grace_is_not_stopped() -> None:
    world = talking()
    world.conclude()

    terminal = world.ends()

    assert terminal["reconciliation"]["reason"] == "successful_process_and_result"
    world.later(HARNESS_GRACE_MS, TimePassed())
    assert world.stops() == []


def test_nothing_is_told_once_the_program_is_stopped() -> None:
    world = talking()
    world.say(ask())
    world.deliver("turn.interrupt")

    world.resolve()

    assert world.unwritten() == []
    assert world.stops() == ["interrupt"]


def test_a_conclusion_counts_once_and_is_kept() -> None:
    world = talking()

    world.say(Concluded(SUCCESS), Concluded({"turnTerminalState": "failed"}))

    assert world.codes() == ["duplicate_terminal_ignored"]
    dialogue = world.runner.live.dialogue
    assert dialogue is not None
    assert dialogue.conclusion is not None
    assert dialogue.conclusion.proposal == SUCCESS
