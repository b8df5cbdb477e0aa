"""From start to the first welcome, on one blocking thread without an event loop (D11).

It decides nothing about the protocol: it drives the core until a connection is welcomed or
the core orders the end. It refuses to import what only a connected runner needs.
"""

import msgspec

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.base.ports import Clock
from runnerd.core.actions import Dial, Exit
from runnerd.core.inputs import Input
from runnerd.driving import (
    Alarm,
    FactLog,
    RunnerDriver,
    StateRoom,
    StateStore,
    end_write,
    tell_room,
)
from runnerd.io.caller import Caller
from runnerd.io.dialling import Call, call, wait_for
from runnerd.io.signals import StopSignals


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that the daemon works with from its first to its last moment."""

    clock: Clock
    store: StateStore
    caller: Caller
    stops: StopSignals
    log: FactLog
    room: StateRoom | None = None
    """Of the store's disk; None for a store that never fills."""
    run_folder: str | None = None
    """Where the log of the run is kept; None for none."""


def make_contact(driver: RunnerDriver, world: World) -> Call | Exit:
    """Drive the core until a welcome arrives, which has been fed to it, or until its end.

    Writes are made inline: before the first welcome there is no lease that a slow disk
    could cost.

    Returns:
        The welcomed call, with the messages that came in the same bytes still to be fed.
        Or the core's order to end.
    """
    alarm = Alarm(driver)
    while True:
        for stop in world.stops.take():
            _feed(driver, world, stop)
        _write(driver, world)
        action = driver.next_action()
        match action:
            case None:
                wait_for((), world.stops, alarm.sleep_ms(world.clock.now()))
                alarm.tell(world.clock.now())
            case Exit():
                return action
            case Dial():
                world.log.ordered(action)
                outcome = call(world.caller, action, world.clock, world.stops)
                if isinstance(outcome, Call):
                    _feed(driver, world, outcome.connected)
                    return outcome
                _feed(driver, world, outcome)
            case _:
                raise AssertionError("an order that needs a connection, before the first one")


def _feed(driver: RunnerDriver, world: World, stimulus: Input) -> None:
    world.log.heard(stimulus)
    driver.feed(stimulus, world.clock.now())


def _write(driver: RunnerDriver, world: World) -> None:
    while (write := driver.next_write()) is not None:
        failure: ReplaceFailed | None = None
        try:
            world.store.replace(write.state.durable)
        except ReplaceFailed as error:
            failure = error
        end_write(driver, world.log, failure, world.clock.now())
        tell_room(driver, world.log, world.room, world.clock.now())
