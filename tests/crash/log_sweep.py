"""Sweeps over every disk call of a history of appends.

It decides which histories are run. It refuses to judge them: that is `run_logs`.
"""

import enum
from collections.abc import Iterator

from tests.crash.run_logs import RESTART, UNSETTLED, LogMachine, LogWorld
from tests.crash.sweep import at_call, from_call
from tests.simulator.choices import Choices, Tape, explore
from tests.simulator.disk_faults import Call, Die, Nemesis, Refuse, Shorten, TurnReadOnly

EXHAUSTIVE_MAX = 24
SAMPLES = 6
DEATHS = (Die(is_after=False), Die(is_after=True))


class Start(enum.Enum):
    """What the process that is struck finds."""

    NOTHING = "nothing"
    LOG = "log"
    TORN_LOG = "torn log"


def begin(world: LogWorld, start: Start) -> None:
    if start is not Start.NOTHING:
        fills = world.machine.fills
        world.run_process(UNSETTLED if fills else RESTART, is_killed=fills)
    if start is Start.TORN_LOG:
        world.tear()
    if world.machine.fills:
        world.fill()


def calm(machine: LogMachine) -> Iterator[str]:
    """Nothing goes wrong."""
    for start in Start:
        yield from explored(machine, lambda call: None, start=start, loses_power=False)


def deaths(machine: LogMachine, *, loses_power: bool) -> Iterator[str]:
    """The process dies, or power is lost, before and after each call."""
    for start, index in places(machine):
        for death in DEATHS:
            yield from explored(
                machine, at_call(index, death), start=start, loses_power=loses_power
            )


def errors(machine: LogMachine, errno: int, *, loses_power: bool) -> Iterator[str]:
    """Each call fails once."""
    for start, index in places(machine):
        yield from explored(
            machine, at_call(index, Refuse(errno)), start=start, loses_power=loses_power
        )


def lasting_errors(machine: LogMachine, errno: int) -> Iterator[str]:
    """Each call and all after it fail, or every change does."""
    for start, index in places(machine):
        for fault in (Refuse(errno), TurnReadOnly()):
            yield from explored(machine, from_call(index, fault), start=start, loses_power=True)


def short_transfers(machine: LogMachine, errno: int) -> Iterator[str]:
    """Each read and write does less than asked; the rest comes, or fails at the next call."""
    for name, counts in (("read", (1, 4096)), ("write", (0, 1, 4096))):
        for start, index in places(machine, name=name):
            for count in counts:
                for nemesis in (
                    at_call(index, Shorten(count)),
                    _both(at_call(index, Shorten(count)), at_call(index + 1, Refuse(errno))),
                ):
                    yield from explored(machine, nemesis, start=start, loses_power=True)


def _both(first: Nemesis, second: Nemesis) -> Nemesis:
    return lambda call: first(call) or second(call)


def places(machine: LogMachine, *, name: str | None = None) -> Iterator[tuple[Start, int]]:
    for start in Start:
        for call in _calls(machine, start=start):
            if name is None or call.name == name:
                yield start, call.index


def _calls(machine: LogMachine, *, start: Start) -> list[Call]:
    world = LogWorld(machine, Tape())
    begin(world, start)
    world.run_process(machine.plan)
    return world.last_calls


def explored(
    machine: LogMachine, nemesis: Nemesis, *, start: Start, loses_power: bool
) -> Iterator[str]:
    def run(choices: Choices) -> list[str]:
        world = LogWorld(machine, choices)
        begin(world, start)
        world.run_process(machine.plan, nemesis)
        if loses_power:
            world.lose_power()
        world.check_at_the_end()
        return world.violations

    for violations in explore(run, exhaustive_max=EXHAUSTIVE_MAX, samples=SAMPLES, seed=1):
        yield from violations
