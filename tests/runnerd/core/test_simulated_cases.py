"""Cases that simulated histories found, each as a short hand-written one."""

from msgspec import structs

from protocol.envelope import CommandResultAck, Deliver, LeaseRenewed, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from runnerd.core.actions import Exit, SendEvent
from runnerd.core.inputs import ConnectionLost, HarnessLogs, TimePassed
from runnerd.core.outbox import soft_room
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import LEASE_MS, SETTINGS, World, exited, members, restarted


def test_second_answer_to_a_repeated_renewal_changes_nothing() -> None:
    world = World()
    world.connect()
    lease = world.runner.live.lease
    assert lease is not None
    world.later(LEASE_MS // 2, TimePassed())
    world.later(5_000, TimePassed())
    answer = LeaseRenewed(
        previous_expires_at_unix_ms=lease.expires_at_unix_ms,
        connection_lease_expires_at_unix_ms=world.now.unix_ms + LEASE_MS,
        connection_lease_revocation_epoch=RevocationEpoch(0),
    )
    world.control(answer)
    extended = world.runner.live.lease

    actions = world.control(answer)

    assert actions == []
    assert world.runner.live.lease == extended


def test_put_back_state_is_noticed_when_the_cursor_covers_only_its_own_new_event() -> None:
    """A restart adds an event; its number was taken by one that the old state has lost."""
    world = World()
    world.connect()
    world.prepare()
    older = world.stored
    world.deliver("session.close")
    world.ack()
    committed = world.durable.acked_source_seq
    world.stored = older
    again = restarted(world)
    assert again.durable.next_source_seq - 1 == committed

    actions = again.connect(acked=committed)

    assert [a for a in actions if isinstance(a, SendEvent)] == []
    assert again.exits() == [Exit(ErrorCode.RUNNER_ROLLBACK_DETECTED)]


def test_revoked_stays_revoked_when_an_earlier_shutdown_is_delivered_at_last() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.deliver("runner.shutdown")
    world.control(Revoke(RevocationEpoch(1)))
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    again = restarted(world)

    again.connect()
    again.ack()

    assert again.exits() == [Exit(None)]
    assert again.durable.lifecycle is Lifecycle.REVOKED


def test_drain_outlasts_an_expired_lease_and_the_restart_behind_it() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.deliver("runner.drain")
    world.later(LEASE_MS, TimePassed())
    assert world.exits() == [Exit(ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP)]
    again = restarted(world)
    again.connect()

    result = again.deliver("turn.start")

    assert (result.status, members(result)["code"]) == ("rejected", "runner_draining")
    assert again.durable.turn is None


def test_nothing_is_dialled_with_the_spent_ticket_when_the_lease_ends_in_a_shutdown() -> None:
    world = World()
    world.connect(lease_ms=6_000)
    world.deliver("runner.shutdown")
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    actions = [*world.later(6_000, TimePassed()), *world.later(4_000, TimePassed())]

    assert actions == [Exit(ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED)]


def test_revoked_stays_revoked_when_the_last_facts_find_no_room() -> None:
    settings = structs.replace(SETTINGS, max_outbox_bytes=24 * 1024, p0_reserve_bytes=2 * 1024)
    world = World(settings=settings)
    world.connect()
    world.prepare()
    world.start_turn()
    while soft_room(world.runner) > 9 * 1024:
        world.lines("x" * 500)
    world.control(Revoke(RevocationEpoch(1)))

    exited_with_much_to_say = structs.replace(
        exited(world.durable.generation), logs=HarnessLogs(lines=("y" * 500,) * 24)
    )
    world.feed(exited_with_much_to_say)

    assert world.durable.unrecoverable_outcome == "p0_storage_exhausted"
    assert world.durable.lifecycle is Lifecycle.REVOKED


def test_put_back_state_is_noticed_when_commands_are_missing_that_were_answered() -> None:
    world = World()
    world.connect()
    world.deliver("runner.drain")
    world.ack()
    older = world.stored
    world.deliver("session.snapshot")
    following = world.command("session.snapshot")
    world.stored = older
    again = restarted(world)

    again.connect(acked=world.durable.acked_source_seq, pending=(following,))

    assert again.exits() == [Exit(ErrorCode.RUNNER_ROLLBACK_DETECTED)]


def test_stopped_runner_takes_no_fact_behind_its_exit_that_it_would_never_deliver() -> None:
    world = World()
    world.connect()
    world.prepare()
    shutdown = world.deliver("runner.shutdown")
    world.ack()
    stored = CommandResultAck(
        command_id=shutdown.command_id,
        command_type=shutdown.command_type,
        controller_seq=shutdown.controller_seq,
        status=shutdown.status,
    )
    behind = world.command("session.close")

    actions = world.feed(world.received(stored), world.received(Deliver(behind)))

    assert actions == [Exit(None)]
    assert world.durable.lifecycle is Lifecycle.STOPPED
    assert world.durable.last_controller_command_seq == shutdown.controller_seq
    assert world.durable.outbox == ()
