"""Commands: queued, handed out one at a time, settled once."""

import msgspec
import pytest

from controller_mock.core.actions import (
    CloseConnection,
    CountDelivery,
    CountResultRedelivery,
    Publish,
    PutCommand,
    PutResult,
    PutRun,
    Reply,
    SendControl,
)
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, RevokeRequested
from protocol.commands import CommandStatus, WireCommand, command_fingerprint
from protocol.envelope import CommandResultAck, Deliver, ResultMessage
from protocol.errors import ErrorCode
from protocol.ids import CommandId, ControllerSeq
from protocol.limits import SETTLED_RESULTS_MAX
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    START,
    World,
    closes_in,
    connected,
    lease_of,
    messages_in,
    reply_in,
    result,
    result_of,
    told,
    welcome_in,
)

FIRST = ConnectionHandle(1)


def open_command(world: World) -> WireCommand:
    """Return the lowest open command."""
    return world.run.durable.open_commands[0].command


def delivered(world: World) -> list[tuple[int, int]]:
    """Return number and count of every delivery that left, in order."""
    return [
        (message.command.controller_seq, message.delivery)
        for message in messages_in(world.sent)
        if isinstance(message, Deliver)
    ]


def test_a_command_is_stored_before_it_is_sent_and_answered() -> None:
    world = connected()
    world.written.clear()

    left = world.queue("turn.start", b'{"text": "go"}')

    command = open_command(world)
    assert command == WireCommand(
        schema="paperclip.prp.command.v1",
        command_id=CommandId("command_prp_00000001"),
        controller_seq=ControllerSeq(1),
        type="turn.start",
        issued_at="2023-11-14T22:13:20.000Z",
        payload=msgspec.Raw(b'{"text": "go"}'),
    )
    assert left == [
        Reply(
            request=reply_in(left).request,
            command_id=command.command_id,
            controller_seq=ControllerSeq(1),
        ),
        SendControl(
            connection=FIRST,
            message=Deliver(command, 1),
            envelope_id="command_command_prp_00000001_1",
        ),
    ]
    put, counted, row = world.written
    assert put == PutCommand(
        controller_seq=ControllerSeq(1),
        command_id=command.command_id,
        type="turn.start",
        body=msgspec.json.encode(command),
        fingerprint=command_fingerprint(command),
        issued_at=command.issued_at,
    )
    assert counted == CountDelivery(ControllerSeq(1))
    assert isinstance(row, PutRun)
    assert row.last_controller_seq == 1


def test_a_command_leaves_only_once_it_is_durable() -> None:
    world = connected()
    world.driver.feed(world.requested(), world.now)

    assert world.drain() == []
    assert world.driver.committed.durable.open_commands == ()

    assert len(messages_in(world.settle())) == 1


def test_the_pending_command_is_sent_again_when_another_is_queued() -> None:
    world = connected("turn.start", "turn.steer", "turn.stop")

    assert delivered(world) == [(1, 1), (1, 2), (1, 3)]


def test_the_next_command_leaves_when_the_result_of_the_one_before_is_stored() -> None:
    world = connected("turn.start", "turn.stop")
    world.written.clear()
    message = result(open_command(world))

    left = world.say(1, message)

    assert [type(found) for found in left] == [SendControl, Publish]
    assert delivered(world)[-1] == (2, 1)
    assert world.written == [
        PutResult(
            controller_seq=ControllerSeq(1),
            status="completed",
            body=message.body,
            digest=message.digest,
            received_at_unix_ms=START.unix_ms,
        ),
        CountDelivery(ControllerSeq(2)),
    ]


def test_a_result_is_published_when_nothing_follows_it() -> None:
    world = connected("turn.start")

    left = world.say(1, result(open_command(world)))

    assert left == [Publish()]
    assert world.driver.committed.durable.open_commands == ()


@pytest.mark.parametrize("status", ["completed", "failed", "rejected", "indeterminate"])
def test_every_status_advances_the_queue(status: CommandStatus) -> None:
    world = connected("turn.start", "turn.stop")

    world.say(1, result(open_command(world), status))

    assert delivered(world)[-1] == (2, 1)
    assert world.run.durable.settled[-1].status == status


def test_an_equal_result_is_counted_and_unanswered_when_it_comes_again() -> None:
    world = connected("turn.start")
    message = result(open_command(world))
    world.say(1, message)
    world.written.clear()

    left = world.say(1, message)

    assert left == []
    world.issue(Secret("another"))
    assert world.written[0] == CountResultRedelivery(ControllerSeq(1))


def test_a_different_result_closes_and_the_stored_one_stays() -> None:
    world = connected("turn.start")
    command = open_command(world)
    world.say(1, result(command))
    before = world.run.durable

    left = world.say(1, result(command, "failed"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_CONFLICT)]
    assert world.run.durable == before


@pytest.mark.parametrize("command", ["runner.suspend", "runner.shutdown"])
def test_a_terminal_result_is_acknowledged_each_time_and_nothing_follows(command: str) -> None:
    world = connected(command, "turn.start")
    out = open_command(world)
    ack = SendControl(
        connection=FIRST,
        message=CommandResultAck(
            command_id=out.command_id,
            command_type=command,
            controller_seq=out.controller_seq,
            status="completed",
        ),
        envelope_id="command_result_ack_1",
    )

    first = world.say(1, result(out))
    second = world.say(1, result(out))

    assert told(first) == [ack]
    assert second == [ack]
    assert delivered(world) == [(1, 1)]


def test_a_terminal_result_is_acknowledged_only_once_it_is_durable() -> None:
    world = connected("runner.shutdown")
    message = result(open_command(world))
    world.driver.feed(world.said(1, message), world.now)
    world.driver.feed(world.said(1, message), world.now)

    assert world.drain() == []
    assert [type(found) for found in messages_in(world.settle())] == [CommandResultAck] * 2


def test_the_next_command_waits_for_another_connection_when_a_terminal_one_was_out() -> None:
    world = connected("runner.suspend", "turn.start")
    lease = lease_of(1, welcome_in(world.sent))
    world.say(1, result(open_command(world)))

    welcome = welcome_in(world.reconnect(2, lease))

    assert [pending.controller_seq for pending in welcome.pending_commands] == [2]


def test_the_welcome_carries_the_pending_command_and_counts_it() -> None:
    world = connected("turn.start", "turn.stop")
    lease = lease_of(1, welcome_in(world.sent))
    world.feed(ConnectionLost(FIRST))
    world.written.clear()

    welcome = welcome_in(world.reconnect(2, lease))

    assert welcome.pending_commands == (open_command(world),)
    assert CountDelivery(ControllerSeq(1)) in world.written
    assert world.run.durable.open_commands[0].deliveries == 3


def test_a_command_waits_when_nobody_is_connected() -> None:
    world = World()

    left = world.queue()

    assert told(left) == [reply_in(left)]
    assert world.run.durable.open_commands[0].deliveries == 0


def test_a_result_closes_when_its_command_was_never_handed_out() -> None:
    world = connected("turn.start", "turn.stop")
    second = world.run.durable.open_commands[1].command

    for strange in (result(second), result_of("nobody", "turn.start", 1)):
        world = connected("turn.start", "turn.stop")
        left = world.say(1, strange)
        assert told(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_UNKNOWN)]


def test_a_result_closes_when_its_command_waits_behind_a_terminal_one() -> None:
    world = connected("runner.suspend", "turn.start")
    world.say(1, result(open_command(world)))

    left = world.say(1, result(open_command(world)))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_UNKNOWN)]
    assert len(world.run.durable.open_commands) == 1


def test_a_result_closes_when_no_command_is_open() -> None:
    world = connected()

    left = world.say(1, result_of("command_prp_00000001", "turn.start", 1))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_UNKNOWN)]


@pytest.mark.parametrize(("type_", "seq"), [("turn.stop", 1), ("turn.start", 2)])
def test_a_result_closes_when_it_names_its_command_wrongly(type_: str, seq: int) -> None:
    world = connected("turn.start")

    left = world.say(1, result_of("command_prp_00000001", type_, seq))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_CONFLICT)]
    assert len(world.run.durable.open_commands) == 1


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"1"])
def test_a_result_that_is_no_object_never_settles_a_command(body: bytes) -> None:
    world = connected("turn.start")
    whole = result(open_command(world))
    flat = ResultMessage(
        msgspec.structs.replace(whole.result, result=msgspec.Raw(body)), whole.body, whole.digest
    )

    left = world.say(1, flat)

    assert told(left) == [CloseConnection(FIRST, ErrorCode.MESSAGE_INVALID)]
    assert len(world.run.durable.open_commands) == 1


def test_a_result_is_unknown_when_its_command_was_settled_too_long_ago() -> None:
    world = connected("turn.start")
    oldest = result(open_command(world))
    world.say(1, oldest)
    for _ in range(SETTLED_RESULTS_MAX):
        world.queue()
        world.say(1, result(open_command(world)))

    left = world.say(1, oldest)

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.COMMAND_RESULT_UNKNOWN)]
    assert len(world.run.durable.settled) == SETTLED_RESULTS_MAX


def test_open_commands_stay_and_leave_no_more_when_the_run_is_revoked() -> None:
    world = connected("turn.start", "turn.stop")
    command = open_command(world)
    world.feed(RevokeRequested(world.request()))
    before = delivered(world)

    world.say(1, result(command))

    assert delivered(world) == before
    assert [open_.command.controller_seq for open_ in world.run.durable.open_commands] == [2]
