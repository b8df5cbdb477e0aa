"""Backpressure: two edges far apart, one event each, and new turns only in between."""

import msgspec

from protocol.errors import ErrorCode
from protocol.limits import HARNESS_PAUSE_MS
from runnerd.core.actions import ReadHarness
from runnerd.core.inputs import ConnectionLost, StorageRoom, TimePassed
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import PREPARE, SETTINGS, World, exited, members

SMALL = msgspec.structs.replace(SETTINGS, max_outbox_bytes=120_000, p0_reserve_bytes=40_000)


def pressed() -> World:
    """A runner whose harness printed until there was no room, with nobody connected."""
    world = World(settings=SMALL)
    world.connect()
    world.prepare()
    world.start_turn()
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    while world.runner.live.harness_reading and world.durable.turn is not None:
        if world.durable.turn.intent is not None:
            break
        world.lines("x" * 9_000)
    return world


def pressure_events(world: World) -> list[bool]:
    return [
        msgspec.json.decode(entry.body)["payload"]["newTurnsAccepted"]
        for entry in world.durable.outbox
        if entry.event_type == "runner.backpressure"
    ]


def test_full_outbox_enters_backpressure_with_one_p0_event_inside_the_reserve() -> None:
    world = pressed()

    assert world.durable.lifecycle is Lifecycle.BACKPRESSURE
    assert pressure_events(world) == [False]
    soft = SMALL.max_outbox_bytes - SMALL.p0_reserve_bytes
    displayed = sum(len(e.body) for e in world.durable.outbox if e.priority > 0)
    assert displayed <= soft


def test_new_turn_is_refused_with_zero_effects_under_backpressure() -> None:
    world = World(settings=SMALL)
    world.connect()
    world.prepare()
    while world.durable.lifecycle is Lifecycle.READY:
        assert world.deliver("run.prepare", PREPARE).status == "completed"
    produced = world.durable.next_source_seq

    result = world.deliver("turn.start")

    assert members(result) == {"code": "runner_backpressure", "logicalEffectCount": 0}
    assert world.durable.next_source_seq == produced
    world.ack()
    world.start_turn()
    assert world.durable.turn is not None


def test_backpressure_ends_with_one_event_when_the_outbox_is_delivered() -> None:
    world = pressed()
    world.connect(bootstrap=False)

    world.ack()

    assert world.durable.lifecycle is Lifecycle.READY
    assert pressure_events(world) == [True]
    assert world.runner.live.harness_reading


def test_small_traffic_never_crosses_an_edge() -> None:
    world = World(settings=SMALL)
    world.connect()
    for _ in range(200):
        world.deliver("run.prepare", PREPARE)
        world.ack()

    assert "runner.backpressure" not in world.event_types()


def test_full_disk_is_one_edge_that_pauses_the_program_and_refuses_turns() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()

    world.feed(StorageRoom(is_tight=True))
    world.ack()
    paused = world.lines("asked for before")
    world.feed(StorageRoom(is_tight=True))

    assert not any(isinstance(action, ReadHarness) for action in paused)
    tight = world.durable.lifecycle
    assert world.event_types().count("runner.backpressure") == 1
    world.feed(StorageRoom(is_tight=False))
    assert (tight, world.durable.lifecycle) == (Lifecycle.BACKPRESSURE, Lifecycle.READY)
    assert world.event_types().count("runner.backpressure") == 2


def test_program_is_read_again_when_the_disk_has_room() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()
    world.feed(StorageRoom(is_tight=True))
    world.lines("asked for before")
    world.ack()

    resumed = world.feed(StorageRoom(is_tight=False))

    assert any(isinstance(action, ReadHarness) for action in resumed)
    assert world.durable.lifecycle is Lifecycle.READY


def waiting_for_room() -> World:
    world = World()
    world.connect(lease_ms=4 * HARNESS_PAUSE_MS, renewal_version=None)
    world.prepare()
    world.start_turn()
    world.feed(StorageRoom(is_tight=True))
    world.lines("asked for before")
    world.ack()
    return world


def intent_after(world: World, milliseconds: int) -> str | None:
    """Let time pass, and return why the turn is to end then."""
    world.mono += milliseconds
    world.feed(TimePassed())
    assert world.durable.turn is not None
    return world.durable.turn.intent


def test_program_that_waits_for_room_too_long_fails_with_a_reason() -> None:
    world = waiting_for_room()

    assert intent_after(world, HARNESS_PAUSE_MS - 1) is None
    assert intent_after(world, 1) == "overflow"

    world.feed(exited(world.durable.generation, None, 15))
    [payload] = [
        msgspec.json.decode(entry.body)["payload"]
        for entry in world.durable.outbox
        if entry.event_type == "run.terminal"
    ]
    assert payload["reconciliation"]["reason"] == "outbox_full"


def test_wait_for_room_is_counted_anew_after_each_pause() -> None:
    world = waiting_for_room()
    intent_after(world, HARNESS_PAUSE_MS - 1)
    world.feed(StorageRoom(is_tight=False))
    world.feed(StorageRoom(is_tight=True))
    world.lines("asked for before")

    assert intent_after(world, 1) is None
