"""Calls: handed on once, behind the commit that holds them, and never again."""

import pytest

from controller_mock.core.actions import Action, CallTool, CloseConnection, PutEvent, SendControl
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, MessageReceived
from controller_mock.core.state import StoredCall, StoredRun, restore, run_row
from protocol.canonical_json import JsonValue
from protocol.envelope import Ack, EventMessage
from protocol.errors import ErrorCode
from protocol.events import runner_event
from protocol.ids import SourceSeq
from protocol.limits import TOOL_CALLS_PER_RUN_MAX
from tests.controller_mock.core.world import (
    CONFIG,
    IDENTITY,
    World,
    connected,
    event,
    event_message,
    lease_of,
    welcome_in,
)
from tests.controller_mock.tools import INPUT, call_payload

TYPES = ("semantic_tool.input", "mcp_app.tool_input")


def call_event(
    seq: int,
    call_id: str = "call_1",
    value: JsonValue = INPUT,
    event_type: str = "semantic_tool.input",
) -> EventMessage:
    body = runner_event(
        IDENTITY,
        source_seq=SourceSeq(seq),
        event_type=event_type,
        priority=0,
        payload=call_payload(IDENTITY, call_id, value),
        emitted_at="2026-01-02T03:04:05.678Z",
    )
    return event_message(body)


def orders(actions: list[Action]) -> list[CallTool]:
    return [action for action in actions if isinstance(action, CallTool)]


@pytest.mark.parametrize("event_type", TYPES)
def test_a_call_is_handed_on_exactly_as_it_was_made(event_type: str) -> None:
    world = connected()

    [order] = orders(world.say(1, call_event(1, event_type=event_type)))

    assert order.call.input == INPUT
    assert (order.call.call_id, order.call.operation_id) == ("call_1", "create_task")
    assert (order.event.source_seq, order.event.event_type) == (1, event_type)
    assert world.run.durable.tool_calls == {"call_1": 1}


def test_a_call_is_handed_on_behind_its_commit_and_its_ack() -> None:
    world = connected()
    world.driver.feed(MessageReceived(ConnectionHandle(1), call_event(1)), world.now)
    assert orders(world.drain()) == []

    write = world.driver.next_write()
    assert write is not None
    assert any(isinstance(change, PutEvent) for change in write.writes)
    assert orders(world.drain()) == []
    world.driver.wrote()

    ack, order = world.drain()
    assert isinstance(ack, SendControl)
    assert ack.message == Ack(SourceSeq(1))
    assert isinstance(order, CallTool)


def test_a_call_whose_commit_failed_is_handed_on_to_nobody() -> None:
    world = connected()
    world.driver.feed(MessageReceived(ConnectionHandle(1), call_event(1)), world.now)
    assert world.driver.next_write() is not None

    dropped = world.driver.write_failed()

    assert orders(list(dropped)) != []
    assert orders(world.drain()) == []


def test_a_redelivered_call_is_not_handed_on_again() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.say(1, call_event(1))
    world.feed(ConnectionLost(ConnectionHandle(1)))
    world.reconnect(2, lease)

    assert orders(world.say(2, call_event(1))) == []


@pytest.mark.parametrize("value", [INPUT, {"other": 1}])
def test_the_same_call_in_another_event_is_not_handed_on_again(value: JsonValue) -> None:
    world = connected()
    world.say(1, call_event(1))

    assert orders(world.say(1, call_event(2, value=value))) == []
    assert world.run.durable.acked_source_seq == 2
    assert world.run.durable.tool_calls == {"call_1": 1}


def test_no_call_of_an_earlier_process_is_handed_on() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.say(1, call_event(1))
    durable = world.run.durable
    assert durable.lease is not None
    stored = StoredRun(
        row=run_row(durable),
        credentials=(durable.lease,),
        tool_calls=(StoredCall("call_1", SourceSeq(1)), StoredCall("call_1", SourceSeq(9))),
        digests=call_event(1).digest,
    )
    again = World(restore(CONFIG, stored))
    again.reconnect(1, lease)

    assert orders(again.say(1, call_event(1))) == []
    assert orders(again.say(1, call_event(2))) == []
    assert again.run.durable.tool_calls == {"call_1": 1}
    assert len(orders(again.say(1, call_event(3, "call_2")))) == 1


def test_calls_of_a_run_are_bounded() -> None:
    world = connected()
    full = {f"call_{n}": SourceSeq(1) for n in range(TOOL_CALLS_PER_RUN_MAX)}
    stored = StoredRun(
        row=run_row(world.run.durable),
        credentials=tuple(filter(None, (world.run.durable.lease,))),
        tool_calls=tuple(StoredCall(call_id, seq) for call_id, seq in full.items()),
    )
    lease = lease_of(1, welcome_in(world.sent))
    again = World(restore(CONFIG, stored))
    again.reconnect(1, lease)

    actions = again.say(1, call_event(1, "one_more"))

    assert isinstance(actions[0], CloseConnection)
    assert actions[0].code is ErrorCode.EVENT_INVALID
    assert again.run.durable.acked_source_seq == 0


def test_events_of_other_types_hand_nothing_on() -> None:
    world = connected()

    assert orders(world.say(1, event(1, "callId"))) == []
