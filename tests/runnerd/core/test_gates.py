"""Persist before visible: nothing leaves before the revision that it claims is durable (I7)."""

from collections.abc import Callable
from typing import Never

import msgspec
import pytest

from protocol.base.clock import Now
from protocol.base.driver import Driver
from protocol.base.revision import Revision, Transition
from protocol.envelope import Deliver
from protocol.errors import ErrorCode
from protocol.ids import Generation
from runnerd.core import step
from runnerd.core.actions import (
    Action,
    CloseConnection,
    Dial,
    Exit,
    ReadHarness,
    ReleaseHarness,
    SendEvent,
    SendRenewal,
    SendResult,
    StartHarness,
)
from runnerd.core.inputs import ConnectionLost, HarnessSpawned, Input, TimePassed, WriteFailed
from runnerd.core.state import Durable, Runner
from runnerd.core.transition import Step
from tests.runnerd.core.world import BIRTH, PREPARE, World

StepFunction = Callable[[Runner, Input, Now], Step]


def early(driver: Driver[Runner, Input, Action, Never]) -> list[Action]:
    """Return the actions that leave although the committed state does not hold their claim."""
    found: list[Action] = []
    while (action := driver.next_action()) is not None:
        if not _is_backed(action, driver.committed.durable):
            found.append(action)
    return found


def _is_backed(action: Action, durable: Durable) -> bool:
    match action:
        case SendEvent(source_seq=seq, body=body):
            stored = {entry.source_seq: bytes(entry.body) for entry in durable.outbox}
            return stored.get(seq) == body
        case SendResult(result=result):
            return any(record.result == result for record in durable.commands)
        case StartHarness(generation=generation):
            return durable.turn is not None and durable.turn.generation == generation
        case ReleaseHarness():
            return durable.turn is not None and durable.turn.birth is not None
        case _:
            return True


def play(step_function: StepFunction) -> list[Action]:
    """Run a short history on a disk that is one batch behind; return what left too early."""
    world = World()
    world.connect()
    world.driver = Driver(world.driver.staged, step_function)
    found: list[Action] = []
    prepare, opened = world.command("run.prepare", PREPARE), world.command("session.open")
    start = world.command("turn.start")
    for stimulus in (
        world.received(Deliver(prepare)),
        world.received(Deliver(opened)),
        world.received(Deliver(start)),
        None,
        HarnessSpawned(Generation(1), BIRTH),
        None,
    ):
        if stimulus is None:
            if world.driver.next_write() is not None:
                world.driver.wrote()
        else:
            world.driver.feed(stimulus, world.now)
        found += early(world.driver)
    return found


def ungated(runner: Runner, stimulus: Input, now: Now) -> Step:
    """The real step with every gate taken out."""
    transition = step.step(runner, stimulus, now)
    return Transition(
        transition.state,
        tuple(msgspec.structs.replace(gated, after=Revision(0)) for gated in transition.actions),
    )


def test_nothing_leaves_before_its_revision_is_durable() -> None:
    assert play(step.step) == []


def test_the_check_sees_every_kind_of_claim_when_the_gates_are_taken_out() -> None:
    kinds = {type(action) for action in play(ungated)}

    assert kinds == {SendEvent, SendResult, StartHarness, ReleaseHarness}


def test_renewal_leaves_while_a_write_hangs() -> None:
    world = World()
    world.connect()
    world.driver.feed(world.received(Deliver(world.command("runner.drain"))), world.now)
    assert world.driver.next_write() is not None

    world.mono += 15_000
    world.driver.feed(TimePassed(), world.now)

    assert isinstance(world.driver.next_action(), SendRenewal)
    assert world.driver.next_action() is None


def test_failed_write_closes_and_every_duty_is_given_again_later() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.control(Deliver(world.command("turn.start")))
    world.driver.feed(HarnessSpawned(world.durable.generation, BIRTH), world.now)
    assert world.driver.next_write() is not None

    dropped = world.driver.write_failed()
    actions = world.feed(WriteFailed(errno=28))

    assert {type(action) for action in dropped} >= {SendResult, SendEvent, ReleaseHarness}
    assert [type(action) for action in actions] == [CloseConnection]
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.STORAGE_WRITE_FAILED))
    again = world.later(1_000, TimePassed())
    assert {type(action) for action in again} == {ReleaseHarness, ReadHarness, Dial}
    actions = world.connect(bootstrap=False)
    assert [a.source_seq for a in actions if isinstance(a, SendEvent)] == list(
        range(1, world.durable.next_source_seq)
    )


def test_no_write_is_tried_before_the_disk_is_due_again() -> None:
    world = World()
    world.connect()
    world.driver.feed(world.received(Deliver(world.command("runner.drain"))), world.now)
    assert world.driver.next_write() is not None
    world.driver.write_failed()
    writes = world.writes

    world.feed(WriteFailed(errno=5), TimePassed())

    assert world.writes == writes


def test_disk_that_fails_for_too_long_ends_the_process_by_name() -> None:
    world = World()
    world.connect()
    world.driver.feed(world.received(Deliver(world.command("runner.drain"))), world.now)
    for _ in range(100):
        if world.driver.next_write() is not None:
            world.driver.write_failed()
            world.driver.feed(WriteFailed(errno=28), world.now)
        world.mono += 600
        world.driver.feed(TimePassed(), world.now)
        while (action := world.driver.next_action()) is not None:
            if isinstance(action, CloseConnection):
                lost = ConnectionLost(action.connection_id, action.code)
                world.driver.feed(lost, world.now)
            world.left.append(action)

    assert world.exits() == [Exit(ErrorCode.STORAGE_UNAVAILABLE)]


@pytest.mark.parametrize("errno", [5, 28])
def test_write_that_may_have_been_renamed_ends_the_process_at_once(errno: int) -> None:
    world = World()
    world.connect()
    world.driver.feed(world.received(Deliver(world.command("runner.drain"))), world.now)
    assert world.driver.next_write() is not None
    world.driver.write_failed()

    actions = world.feed(WriteFailed(errno=errno, is_final=True))

    assert actions == [Exit(ErrorCode.STORAGE_SYNC_FAILED)]
