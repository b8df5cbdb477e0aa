"""Sweeps over every disk call of a history of appends.

It decides which histories are run. It refuses to judge them: that is `run_logs`.
"""

from collections.abc import Iterator

from tests.crash.run_logs import RESTART, LogMachine, LogWorld
from tests.crash.sweep import at_call, from_call
from tests.simulator.choices import Choices, Tape, explore
from tests.simulator.disk_process import Call, Die, Nemesis, Refuse, Shorten, TurnReadOnly

EXHAUSTIVE_MAX = 24
SAMPLES = 6
DEATHS = (Die(is_after=False), Die(is_after=True))


def calm(machine: LogMachine) -> Iterator[str]:
    """Nothing goes wrong."""
    for is_restart in (False, True):
        yield from explored(machine, lambda call: None, is_restart=is_restart, loses_power=False)


def deaths(machine: LogMachine, *, loses_power: bool) -> Iterator[str]:
    """The process dies, or power is lost, before and after each call."""
    for is_restart, index in places(machine):
        for death in DEATHS:
            yield from explored(
                machine, at_call(index, death), is_restart=is_restart, loses_power=loses_power
            )


def errors(machine: LogMachine, errno: int, *, loses_power: bool) -> Iterator[str]:
    """Each call fails once."""
    for is_restart, index in places(machine):
        yield from explored(
            machine, at_call(index, Refuse(errno)), is_restart=is_restart, loses_power=loses_power
        )


def lasting_errors(machine: LogMachine, errno: int) -> Iterator[str]:
    """Each call and all after it fail, or every change does."""
    for is_restart, index in places(machine):
        for fault in (Refuse(errno), TurnReadOnly()):
            yield from explored(
                machine, from_call(index, fault), is_restart=is_restart, loses_power=True
            )


def short_transfers(machine: LogMachine, errno: int) -> Iterator[str]:
    """Each read and write does less than asked; the rest comes, or fails at the next call."""
    for name, counts in (("read", (1, 4096)), ("write", (0, 1, 4096))):
        for is_restart, index in places(machine, name=name):
            for count in counts:
                for nemesis in (
                    at_call(index, Shorten(count)),
                    _both(at_call(index, Shorten(count)), at_call(index + 1, Refuse(errno))),
                ):
                    yield from explored(machine, nemesis, is_restart=is_restart, loses_power=True)


def _both(first: Nemesis, second: Nemesis) -> Nemesis:
    return lambda call: first(call) or second(call)


def places(machine: LogMachine, *, name: str | None = None) -> Iterator[tuple[bool, int]]:
    for is_restart in (False, True):
        for call in _calls(machine, is_restart=is_restart):
            if name is None or call.name == name:
                yield is_restart, call.index


def _calls(machine: LogMachine, *, is_restart: bool) -> list[Call]:
    world = LogWorld(machine, Tape())
    if is_restart:
        world.run_process(RESTART)
    world.run_process(machine.plan)
    return world.last_calls


def explored(
    machine: LogMachine, nemesis: Nemesis, *, is_restart: bool, loses_power: bool
) -> Iterator[str]:
    def run(choices: Choices) -> list[str]:
        world = LogWorld(machine, choices)
        if is_restart:
            world.run_process(RESTART)
        world.run_process(machine.plan, nemesis)
        if loses_power:
            world.lose_power()
        world.check_at_the_end()
        return world.violations

    for violations in explore(run, exhaustive_max=EXHAUSTIVE_MAX, samples=SAMPLES, seed=1):
        yield from violations
