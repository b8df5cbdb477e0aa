"""A runner that is told of its successor ends at once and applies nothing more (R8)."""

from protocol.envelope import Ack, Deliver, Superseded
from protocol.errors import ErrorCode
from protocol.ids import SourceSeq
from runnerd.core.actions import CloseConnection, Dial, Exit, SendEvent, SendResult
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import World, restarted


def test_superseded_runner_gives_its_authority_up_and_ends() -> None:
    world = World()
    world.connect()
    world.prepare()
    outbox = world.durable.outbox

    left = world.control(Superseded())

    assert Exit(ErrorCode.SUPERSEDED) in left
    assert world.runner.live.lease is None
    assert not any(isinstance(action, Dial | SendEvent | SendResult) for action in left)
    assert world.durable.outbox == outbox
    assert world.durable.lifecycle is Lifecycle.RECOVERABLE_FAILURE
    assert world.durable.recoverable_failure == ErrorCode.SUPERSEDED.value


def test_superseded_runner_stops_its_program_and_applies_nothing_meanwhile() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()
    world.control(Superseded())
    acked = world.durable.acked_source_seq

    world.control(Deliver(world.command("session.close")))
    world.control(Ack(SourceSeq(1)))

    assert world.durable.acked_source_seq == acked
    assert world.durable.session_open
    assert world.exits() == []
    world.exit(None, 15)
    assert world.exits() == [Exit(ErrorCode.SUPERSEDED)]


def test_reason_of_the_end_is_what_the_next_start_finds() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.control(Superseded())

    again = restarted(world)

    assert not any(isinstance(action, CloseConnection) for action in again.left)
    assert isinstance(again.left[-1], Dial)
