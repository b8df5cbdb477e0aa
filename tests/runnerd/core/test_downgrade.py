"""Native v2 state on a v1 connection: a placeholder is sent, the evidence is kept."""

import msgspec

from protocol.base.driver import Driver
from protocol.errors import ErrorCode
from protocol.limits import KEY_LIFETIME_MS_MAX
from runnerd.core import step
from runnerd.core.actions import CloseConnection, SendEvent
from runnerd.core.inputs import Connected, ConnectionLost, TimePassed
from runnerd.core.outbox import Draft, produce
from tests.runnerd.core.world import World

GOAL: dict[str, object] = {
    "goal": {
        "objective": "tidy the notes",
        "status": "active",
        "tokenBudget": None,
        "tokensUsed": None,
        "elapsedSeconds": None,
        "iterations": None,
        "lastReason": None,
        "createdAt": None,
        "updatedAt": None,
        "completedAt": None,
        "workingNow": False,
    }
}


def with_goal(version: int, bootstrap: bool = True) -> World:
    """A world with one native v2 event in its outbox, connected at this version."""
    world = World()
    draft = Draft("session.goal.updated", 0, msgspec.to_builtins(GOAL), 2)
    staged = produce(world.runner, [draft], world.now)
    world.driver = Driver(staged, step.step)
    connect(world, version, bootstrap)
    return world


def connect(world: World, version: int, bootstrap: bool = True) -> None:
    welcome = world.welcome(bootstrap=bootstrap)
    binding = msgspec.structs.replace(welcome.binding, version=version)
    connected = Connected(
        binding=binding,
        welcome=welcome.welcome,
        lease_token=welcome.lease_token,
        sent_at_unix_ms=welcome.sent_at_unix_ms,
    )
    world.feed(connected)


def sent(world: World) -> list[tuple[object, object, object]]:
    return [(e["sourceSeq"], e["eventType"], e["schemaVersion"]) for e in world.events()]


def test_v1_peer_gets_a_placeholder_under_the_same_sequence() -> None:
    world = with_goal(version=1)

    [event] = world.events()

    assert sent(world) == [(1, "runner.diagnostic", 1)]
    assert event["payload"] == {
        "originalEventType": "session.goal.updated",
        "reasonCode": "event_requires_prp_v2",
    }


def test_placeholder_is_the_same_bytes_each_time() -> None:
    world = with_goal(version=1)
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    connect(world, version=1, bootstrap=False)

    bodies = {action.body for action in world.left if isinstance(action, SendEvent)}

    assert len(bodies) == 1


def test_v2_peer_gets_the_native_event() -> None:
    assert sent(with_goal(version=2)) == [(1, "session.goal.updated", 2)]


def test_acknowledged_placeholder_keeps_the_native_state_for_a_later_v2_peer() -> None:
    world = with_goal(version=1)
    world.ack()
    assert [event.event_type for event in world.durable.retained_events] == ["session.goal.updated"]

    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    connect(world, version=2, bootstrap=False)

    assert sent(world)[-1] == (2, "session.goal.updated", 2)
    assert world.events()[-1]["payload"] == GOAL
    assert world.durable.retained_events == ()


def test_acknowledgement_by_a_v2_peer_retains_nothing() -> None:
    world = with_goal(version=2)

    world.ack()

    assert world.durable.retained_events == ()


def test_connection_is_replaced_before_its_keys_are_a_day_old() -> None:
    world = World()
    welcome = world.welcome(lease_ms=2 * KEY_LIFETIME_MS_MAX, renewal_version=None)
    world.feed(welcome)

    assert step.next_deadline(world.runner) == world.mono + KEY_LIFETIME_MS_MAX
    actions = world.later(KEY_LIFETIME_MS_MAX, TimePassed())

    assert actions == [CloseConnection(world.binding.connection_id, ErrorCode.FRAMES_EXHAUSTED)]
