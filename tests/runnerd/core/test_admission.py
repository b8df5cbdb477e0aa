"""Deadlines, preconditions and the replay filter, as a controller meets them."""

import msgspec
import pytest

from protocol.base.clock import UnixMs
from protocol.commands import Precondition
from protocol.envelope import Deliver
from protocol.ids import CommandId, ControllerSeq
from protocol.limits import COMMAND_RECORDS_MAX, REPLAY_FILTER_IDS_MAX, REPLAY_FILTER_WARN_IDS
from protocol.timestamps import rfc3339_ms
from runnerd.core.actions import SendResult
from tests.runnerd.core.world import PREPARE, World, connected, members, restarted


def answer(world: World, **changes: object) -> dict[str, object]:
    command = world.command("runner.drain", None, **changes)
    [sent] = [a for a in world.control(Deliver(command)) if isinstance(a, SendResult)]
    return dict(members(sent.result))


def test_command_after_its_deadline_is_refused_with_zero_effects() -> None:
    world = connected()

    result = answer(world, deadline_at=rfc3339_ms(world.now.unix_ms))

    assert result["code"] == "command_deadline_passed"
    assert result["logicalEffectCount"] == 0
    assert world.durable.next_source_seq == 1


def test_command_before_its_deadline_is_executed() -> None:
    world = connected()

    result = answer(world, deadline_at=rfc3339_ms(UnixMs(world.now.unix_ms + 1)))

    assert result["logicalEffectCount"] == 1


def test_deadline_that_is_no_instant_is_refused() -> None:
    assert answer(connected(), deadline_at="soon")["code"] == "command_deadline_passed"


@pytest.mark.parametrize(
    "precondition",
    [
        Precondition(runner_state=("draining",)),
        Precondition(runner_state=()),
        Precondition(run_state=("active", "terminal")),
        Precondition(session_state=("open",)),
        Precondition(active_turn_id="turn_1"),
    ],
)
def test_false_precondition_is_refused_with_zero_effects(precondition: Precondition) -> None:
    world = connected()

    result = answer(world, precondition=precondition)

    assert result["code"] == "command_precondition_failed"
    assert result["logicalEffectCount"] == 0
    assert world.durable.next_source_seq == 1


def test_true_precondition_is_executed() -> None:
    world = connected()
    world.prepare()
    world.start_turn()

    result = answer(
        world,
        precondition=Precondition(
            runner_state=("ready",),
            run_state=("active",),
            session_state=("open",),
            active_turn_id="turn_1",
        ),
    )

    assert result["logicalEffectCount"] == 1


def compacted(count: int) -> World:
    """A world whose journal has let ``count`` commands go."""
    world = connected()
    for _ in range(COMMAND_RECORDS_MAX + count):
        world.deliver("session.snapshot")
    return world


def test_compacted_id_with_the_next_sequence_is_refused_and_consumes_it() -> None:
    world = compacted(3)
    before = world.durable

    reused = world.command("runner.drain", None, command_id=CommandId("cmd_1"))
    [sent] = [a for a in world.control(Deliver(reused)) if isinstance(a, SendResult)]

    assert members(sent.result)["code"] == "command_id_possibly_reused"
    assert world.durable.last_controller_command_seq == before.last_controller_command_seq + 1
    assert world.durable.next_source_seq == before.next_source_seq


def test_compacted_id_is_still_refused_after_a_restart() -> None:
    again = restarted(compacted(1))
    again.connect()

    reused = again.command("runner.drain", None, command_id=CommandId("cmd_1"))
    [sent] = [a for a in again.control(Deliver(reused)) if isinstance(a, SendResult)]

    assert members(sent.result)["code"] == "command_id_possibly_reused"


def with_compacted_count(world: World, count: int) -> World:
    """The same world after many more compactions (the filter itself keeps what it has)."""
    shift = count - world.durable.compacted_commands
    durable = msgspec.structs.replace(
        world.durable,
        compacted_commands=count,
        compacted_through_controller_seq=ControllerSeq(count),
        last_controller_command_seq=ControllerSeq(
            world.durable.last_controller_command_seq + shift
        ),
        commands=tuple(
            msgspec.structs.replace(
                record, controller_seq=ControllerSeq(record.controller_seq + shift)
            )
            for record in world.durable.commands
        ),
    )
    again = World(durable)
    again.connect()
    again.commands = durable.last_controller_command_seq
    return again


def test_filter_warns_once_when_it_gets_full() -> None:
    world = with_compacted_count(compacted(1), REPLAY_FILTER_WARN_IDS - 1)

    for _ in range(3):
        world.deliver("session.snapshot")

    warnings = [e for e in world.events() if e["eventType"] == "runner.diagnostic"]
    assert [event["priority"] for event in warnings] == [0]


def test_new_turns_are_refused_when_the_filter_is_full() -> None:
    world = with_compacted_count(compacted(1), REPLAY_FILTER_IDS_MAX)
    world.deliver("run.prepare", PREPARE)
    world.deliver("session.open")

    assert members(world.deliver("turn.start"))["code"] == "command_history_full"
