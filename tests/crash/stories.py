"""Sweeps over every disk call of a story that a world can tell again and again.

It decides which faults strike where. It refuses to judge what they leave: a world does.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from tests.crash.sweep import at_call, from_call
from tests.simulator.choices import Choices, Tape, explore
from tests.simulator.disk_faults import Call, Die, Nemesis, Refuse, Shorten, TurnReadOnly

EXHAUSTIVE_MAX = 24
SAMPLES = 6
DEATHS = (Die(is_after=False), Die(is_after=True))


class World(Protocol):
    """One machine, and what was promised on it."""

    last_calls: list[Call]

    @property
    def violations(self) -> list[str]:
        """Each promise that was found broken."""
        ...

    def run_process(self, nemesis: Nemesis | None = None) -> None:
        """Start a process that goes on with the story, and end it."""
        ...

    def lose_power(self) -> None:
        """Keep what is durable, and of the rest what the choices leave."""
        ...

    def check_at_the_end(self) -> None:
        """Let the story end without faults, and look at every promise."""
        ...


MakeWorld = Callable[[Choices], World]


def calm(make: MakeWorld) -> Iterator[str]:
    """Nothing goes wrong."""
    yield from explored(make, lambda call: None, loses_power=True)


def deaths(make: MakeWorld, *, loses_power: bool) -> Iterator[str]:
    """The process dies, or power is lost, before and after each call."""
    for call in calls_of(make):
        for death in DEATHS:
            yield from explored(make, at_call(call.index, death), loses_power=loses_power)


def errors(make: MakeWorld, errno: int, *, loses_power: bool) -> Iterator[str]:
    """Each call fails once."""
    for call in calls_of(make):
        yield from explored(make, at_call(call.index, Refuse(errno)), loses_power=loses_power)


def lasting_errors(make: MakeWorld, errno: int) -> Iterator[str]:
    """Each call and all after it fail, or every change does."""
    for call in calls_of(make):
        for fault in (Refuse(errno), TurnReadOnly()):
            yield from explored(make, from_call(call.index, fault), loses_power=True)


def short_transfers(make: MakeWorld, errno: int) -> Iterator[str]:
    """Each read and write does less than asked; the rest comes, or fails at the next call."""
    for call in calls_of(make):
        counts = {"read": (1, 40), "write": (0, 1, 40)}.get(call.name, ())
        for count in counts:
            short = at_call(call.index, Shorten(count))
            failing = at_call(call.index + 1, Refuse(errno))
            yield from explored(make, short, loses_power=True)
            yield from explored(make, lambda c: short(c) or failing(c), loses_power=True)  # noqa: B023


def calls_of(make: MakeWorld) -> list[Call]:
    """Return the disk calls of a story in which nothing goes wrong."""
    world = make(Tape())
    world.run_process()
    return world.last_calls


def explored(make: MakeWorld, nemesis: Nemesis, *, loses_power: bool) -> Iterator[str]:
    def run(choices: Choices) -> list[str]:
        world = make(choices)
        world.run_process(nemesis)
        if loses_power:
            world.lose_power()
        world.check_at_the_end()
        return world.violations

    for violations in explore(run, exhaustive_max=EXHAUSTIVE_MAX, samples=SAMPLES, seed=1):
        yield from violations
