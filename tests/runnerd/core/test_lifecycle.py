"""The lifecycle as one table: every state against everything that could move it (R22, I13, I17)."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from protocol.envelope import CommandResultAck, Deliver, Revoke
from protocol.ids import RevocationEpoch
from runnerd.core.actions import Dial, SendResult
from runnerd.core.inputs import StorageRoom, TimePassed
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import LEASE_MS, PREPARE, SETTINGS, World, members, restarted

SMALL: Final = msgspec.structs.replace(SETTINGS, max_outbox_bytes=60_000, p0_reserve_bytes=2_000)


def ready() -> World:
    world = World()
    world.connect()
    world.prepare()
    return world


def backpressure() -> World:
    world = ready()
    world.feed(StorageRoom(is_tight=True))
    return world


def draining() -> World:
    world = ready()
    world.deliver("runner.drain")
    return world


def terminal() -> World:
    world = ready()
    world.start_turn()
    world.exit(0)
    return world


def over(command_type: str) -> World:
    """A process that ended on this command, with everything delivered."""
    world = ready()
    world.ack()
    result = world.deliver(command_type)
    world.control(
        CommandResultAck(
            command_id=result.command_id,
            command_type=result.command_type,
            controller_seq=result.controller_seq,
            status=result.status,
        )
    )
    assert world.exits()
    return world


def suspended() -> World:
    return over("runner.suspend")


def stopped() -> World:
    return over("runner.shutdown")


def revoked() -> World:
    world = ready()
    world.control(Revoke(RevocationEpoch(1)))
    return world


def recoverable_failure() -> World:
    world = ready()
    world.later(LEASE_MS, TimePassed())
    return world


def unrecoverable() -> World:
    """Facts of priority 0 that nobody acknowledges, until one does not fit."""
    world = World(settings=SMALL)
    world.connect()
    world.prepare()
    for _ in range(200):
        if world.durable.lifecycle is Lifecycle.UNRECOVERABLE:
            return world
        world.control(Deliver(world.command("session.close")))
        world.control(Deliver(world.command("session.open")))
    raise AssertionError("the outbox never was full")


def connecting() -> World:
    return World()


STATES: Final[dict[str, Callable[[], World]]] = {
    "connecting": connecting,
    "ready": ready,
    "backpressure": backpressure,
    "draining": draining,
    "terminal": terminal,
    "suspended": suspended,
    "stopped": stopped,
    "revoked": revoked,
    "recoverable_failure": recoverable_failure,
    "unrecoverable": unrecoverable,
}


@pytest.mark.parametrize("name", STATES)
def test_each_state_is_reached(name: str) -> None:
    assert STATES[name]().durable.lifecycle == name


# --- what moves a living process ----------------------------------------------------------------

LIVE: Final = ("ready", "backpressure", "draining", "terminal", "revoked", "unrecoverable")
"""States in which a connected process can be; the others have ended, or are not connected."""


def prepare(world: World) -> None:
    world.control(Deliver(world.command("run.prepare", PREPARE)))


def drain(world: World) -> None:
    world.control(Deliver(world.command("runner.drain")))


def revoke(world: World) -> None:
    epoch = world.durable.revocation_epoch or 0
    world.control(Revoke(RevocationEpoch(epoch + 1)))


def outlive_lease(world: World) -> None:
    world.later(LEASE_MS, TimePassed())


def acknowledge(world: World) -> None:
    world.ack()


def give_room(world: World) -> None:
    world.feed(StorageRoom(is_tight=False))


MOVES: Final[dict[str, Callable[[World], None]]] = {
    "run.prepare": prepare,
    "runner.drain": drain,
    "revoke": revoke,
    "lease over": outlive_lease,
    "all acknowledged": acknowledge,
    "room on the disk": give_room,
}
# Only what a row names moves; every other pair leaves the lifecycle as it is.
MOVED: Final = {
    ("ready", "runner.drain"): "draining",
    ("backpressure", "runner.drain"): "draining",
    ("unrecoverable", "runner.drain"): "unrecoverable",
    **{(state, "revoke"): "revoked" for state in LIVE},
    ("ready", "lease over"): "recoverable_failure",
    ("backpressure", "lease over"): "recoverable_failure",
    ("backpressure", "room on the disk"): "ready",
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", LIVE)
def test_lifecycle_goes_where_the_table_says_and_nowhere_else(state: str, move: str) -> None:
    world = STATES[state]()

    MOVES[move](world)

    assert world.durable.lifecycle == MOVED.get((state, move), state)


# --- what a new process makes of a stored one ---------------------------------------------------

DIALS_NOT: Final = ("stopped",)
AFTER_A_WELCOME: Final = {
    "connecting": "ready",
    "ready": "ready",
    "suspended": "ready",
    "recoverable_failure": "ready",
    # The disk of the new process has room, and its outbox is far from full.
    "backpressure": "ready",
}


@pytest.mark.parametrize("state", [name for name in STATES if name not in DIALS_NOT])
def test_stored_lifecycle_meets_a_welcome_as_the_table_says(state: str) -> None:
    before = STATES[state]()
    # What nobody waits for is stored with the next write; the end of a revoked one is such.
    before.later(2_000, TimePassed())
    count = before.durable.reconnect_count

    again = restarted(before)
    dials = [action for action in again.left if isinstance(action, Dial)]
    again.connect(acked=before.durable.acked_source_seq)

    assert len(dials) == 1
    assert dials[0].credential_kind == "bootstrap"
    assert again.durable.reconnect_count == count + 1
    assert again.durable.lifecycle == AFTER_A_WELCOME.get(state, state)
    if again.durable.lifecycle is Lifecycle.READY:
        assert again.durable.recoverable_failure is None


@pytest.mark.parametrize("state", ["stopped", "revoked"])
def test_stored_lifecycle_that_is_over_ends_at_once_without_a_connection(state: str) -> None:
    world = STATES[state]()
    if state == "revoked":
        world.ack()

    again = restarted(world)

    assert [action.code for action in again.exits()] == [None]
    assert not [action for action in again.left if isinstance(action, Dial)]
    assert again.durable.lifecycle == state


# --- what each state admits ---------------------------------------------------------------------

REFUSES: Final = {
    "backpressure": "runner_backpressure",
    "draining": "runner_draining",
    "terminal": "run_terminal",
    "revoked": "runner_revoked",
    "unrecoverable": "runner_unrecoverable",
}


@pytest.mark.parametrize("state", LIVE)
def test_new_turn_is_admitted_by_a_ready_runner_alone(state: str) -> None:
    world = STATES[state]()
    turns = world.durable.turns_started

    actions = world.control(Deliver(world.command("turn.start")))

    results = [action.result for action in actions if isinstance(action, SendResult)]
    if state == "ready":
        assert results == []
        assert world.durable.turns_started == turns + 1
    else:
        [refusal] = results
        assert refusal.status == "rejected"
        assert members(refusal) == {"code": REFUSES[state], "logicalEffectCount": 0}
        assert world.durable.turns_started == turns
