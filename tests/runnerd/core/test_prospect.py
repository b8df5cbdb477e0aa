"""What a restart would do is what a restart then does."""

from protocol.envelope import Deliver, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from runnerd.core.actions import Dial, Exit
from runnerd.core.inputs import OrphanSettled
from runnerd.core.prospect import Outlook, Prospect, prospect
from tests.runnerd.core.world import World, restarted


def foreseen(world: World) -> Prospect:
    return prospect(world.durable, world.now)


def test_no_state_is_foreseen_as_a_new_run() -> None:
    assert prospect(None, World().now).outlook is Outlook.BEGINS_NEW


def test_prepared_run_is_foreseen_to_resume_and_to_take_a_turn() -> None:
    world = World()
    world.connect()
    world.prepare()

    seen = foreseen(world)

    assert (seen.outlook, seen.turn_refusal) == (Outlook.RESUMES, None)
    assert seen.resent_events == len(world.durable.outbox)
    assert seen.new_events == ("runner.reconciled",)
    again = restarted(world)
    assert isinstance(again.left[-1], Dial)
    assert len(again.durable.outbox) == seen.resent_events + 1


def test_live_turn_is_foreseen_as_interrupted_and_its_command_as_indeterminate() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.control(Deliver(command := world.command("turn.start")))

    seen = foreseen(world)

    assert seen.indeterminate_commands == (command.command_id,)
    again = restarted(world, OrphanSettled(world.durable.generation, "ended"))
    before = len(world.durable.outbox)
    assert seen.new_events == tuple(entry.event_type for entry in again.durable.outbox[before:])
    assert "turn.interrupted" in seen.new_events


def test_drained_run_is_foreseen_to_refuse_a_turn() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.deliver("runner.drain")

    seen = foreseen(world)

    assert seen.outlook is Outlook.RESUMES
    assert seen.turn_refusal is ErrorCode.RUNNER_DRAINING


def test_shutdown_that_is_not_delivered_is_foreseen_to_deliver_and_end() -> None:
    world = World()
    world.connect()
    world.deliver("runner.shutdown")

    seen = foreseen(world)

    assert (seen.outlook, seen.turn_refusal) == (Outlook.DELIVERS_AND_ENDS, None)
    again = restarted(world)
    again.connect()
    assert again.runner.live.ending is not None


def test_revoked_run_is_foreseen_to_deliver_first_and_to_end_at_once_later() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.control(Revoke(RevocationEpoch(1)))

    assert foreseen(world).outlook is Outlook.DELIVERS_AND_ENDS

    world.ack()
    assert foreseen(world).outlook is Outlook.ENDS_AT_ONCE
    assert restarted(world).exits() == [Exit(None)]


def test_looking_ahead_changes_nothing() -> None:
    world = World()
    world.connect()
    world.prepare()
    before = world.durable

    foreseen(world)

    assert world.durable is before
    assert foreseen(world) == foreseen(world)
