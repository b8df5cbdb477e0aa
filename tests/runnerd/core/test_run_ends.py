"""Every way in which the core ends its process: asked, revoked, fenced, out of time."""

import pytest

from protocol.envelope import CommandResultAck, Deliver, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from runnerd.core import step
from runnerd.core.actions import CloseConnection, Exit, SendResult, StopHarness
from runnerd.core.inputs import ConnectionLost, StopRequested, TimePassed
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import World, connected, members, restarted, running


def test_stop_request_ends_the_harness_flushes_and_leaves_a_resumable_lifecycle() -> None:
    world = running()

    actions = world.feed(StopRequested(15))

    assert [a.intent for a in actions if isinstance(a, StopHarness)] == ["stop"]
    world.exit(None, 15)
    assert not world.exits()
    world.ack()
    assert world.exits() == [Exit(ErrorCode.STOP_REQUESTED)]
    assert world.event_types()[-2:] == ["turn.interrupted", "harness.exited"]
    assert world.durable.lifecycle is Lifecycle.READY


def test_second_stop_request_ends_at_once() -> None:
    world = running()
    world.feed(StopRequested(15))

    world.feed(StopRequested(15, count=2))

    assert world.exits() == [Exit(ErrorCode.STOP_REQUESTED)]


def test_shutdown_exits_cleanly_after_outbox_and_result_are_acknowledged() -> None:
    world = running()
    world.exit(0)
    result = world.deliver("runner.shutdown")

    world.control(
        CommandResultAck(
            command_id=result.command_id,
            command_type=result.command_type,
            controller_seq=result.controller_seq,
            status=result.status,
        )
    )
    assert not world.exits()
    world.ack()

    assert world.exits() == [Exit(None)]
    assert world.driver.committed.durable.lifecycle is Lifecycle.STOPPED
    assert restarted(world).left == [Exit(None)]


def test_unacknowledged_shutdown_keeps_its_fence_and_is_finished_by_the_next_process() -> None:
    world = running()
    world.exit(0)
    command = world.command("runner.shutdown")
    world.control(Deliver(command))

    world.later(10_000, TimePassed())

    assert world.exits() == [Exit(ErrorCode.TERMINAL_RESULT_UNACKNOWLEDGED)]
    again = restarted(world)
    actions = again.connect(pending=(command,))
    [result] = [action.result for action in actions if isinstance(action, SendResult)]
    again.control(
        CommandResultAck(
            command_id=result.command_id,
            command_type=result.command_type,
            controller_seq=result.controller_seq,
            status=result.status,
        )
    )
    again.ack()
    assert again.exits() == [Exit(None)]


def test_revocation_accepts_nothing_more_and_exits_when_the_outbox_is_delivered() -> None:
    world = running()

    world.control(Revoke(RevocationEpoch(1)))

    assert members(world.deliver("turn.start"))["code"] == "runner_revoked"
    world.exit(None, 15)
    world.ack()
    assert world.exits() == [Exit(None)]
    assert restarted(world).left == [Exit(None)]


def test_revocation_that_cannot_be_flushed_names_itself_and_a_new_ticket_may_only_deliver() -> None:
    world = connected()
    world.prepare()
    world.control(Revoke(RevocationEpoch(1)))

    world.later(2_000, TimePassed())

    assert world.exits() == [Exit(ErrorCode.REVOCATION_FLUSH_REQUIRES_BOOTSTRAP)]
    assert world.durable.recoverable_failure == "revocation_flush_requires_bootstrap"
    again = restarted(world)
    again.connect(pending=(world.command("turn.start"),))
    assert not [action for action in again.left if isinstance(action, SendResult)]
    again.ack()
    assert again.exits() == [Exit(None)]


def test_higher_epoch_in_a_later_welcome_means_deliver_only() -> None:
    world = connected()
    world.prepare()
    again = restarted(world)

    again.connect(acked=0, epoch=1, pending=(again.command("turn.start"),))

    assert again.durable.lifecycle is Lifecycle.REVOKED
    assert not [action for action in again.left if isinstance(action, SendResult)]
    again.ack()
    assert again.exits() == [Exit(None)]


def test_lower_epoch_in_a_later_welcome_closes_and_sends_nothing() -> None:
    world = World()
    world.connect(epoch=3)
    world.prepare()
    again = restarted(world)

    actions = again.connect(acked=0, epoch=2)

    assert [type(action) for action in actions] == [CloseConnection]
    assert not again.events()


def test_expired_lease_stops_the_harness_and_needs_a_fresh_ticket() -> None:
    world = running()

    actions = world.later(30_000, TimePassed())

    assert [a.intent for a in actions if isinstance(a, StopHarness)] == ["authority"]
    world.exit(None, 15)
    assert world.exits() == [Exit(ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP)]
    assert world.durable.lifecycle is Lifecycle.RECOVERABLE_FAILURE
    assert world.durable.recoverable_failure == "lease_expired_requires_bootstrap"
    assert world.durable.outbox


def test_end_that_gives_up_waits_for_nothing_but_its_own_deadline() -> None:
    world = running()
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    world.later(10_000, TimePassed())

    ending, lease = world.runner.live.ending, world.runner.live.lease
    assert ending is not None
    assert lease is not None
    assert step.next_deadline(world.runner) == min(ending.deadline_mono_ms, lease.deadline_mono_ms)


def test_grace_over_ends_a_runner_that_was_connected_once() -> None:
    world = connected()
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    world.later(10_000, TimePassed())

    assert world.exits() == [Exit(ErrorCode.TRANSPORT_RECONNECT_GRACE_EXCEEDED)]


@pytest.mark.parametrize(
    ("acked", "code"),
    [
        (3, ErrorCode.RUNNER_ROLLBACK_DETECTED),
        (0, ErrorCode.CONTROLLER_ROLLBACK_DETECTED),
    ],
)
def test_contradicting_histories_end_the_runner_and_send_nothing(
    acked: int, code: ErrorCode
) -> None:
    world = connected()
    world.prepare()
    world.ack(1)
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    world.later(400, TimePassed())
    sent = len(world.events())

    world.connect(bootstrap=False, acked=acked)

    assert world.exits() == [Exit(code)]
    assert len(world.events()) == sent
