"""Sweeps over every call of a history of saves (faults.md 5.12).

It decides which histories are run. It refuses to judge them: that is `saves`.
"""

from collections.abc import Iterator

from tests.crash.saves import BODIES, Machine, World
from tests.simulator.choices import Choices, Tape, explore
from tests.simulator.disk_faults import Call, Die, Fault, Nemesis, Refuse, Shorten, TurnReadOnly

EXHAUSTIVE_MAX = 200
SAMPLES = 12
DEATHS = (Die(is_after=False), Die(is_after=True))


def process_deaths(machine: Machine) -> Iterator[str]:
    """The process dies before and after each call; the machine stays up."""
    for is_restart, index in _places(machine):
        for death in DEATHS:
            yield from _explored(
                machine, at_call(index, death), is_restart=is_restart, loses_power=False
            )


def power_losses(machine: Machine) -> Iterator[str]:
    """Power is lost before and after each call, with every outcome or a fair sample."""
    for is_restart, index in _places(machine):
        for death in DEATHS:
            yield from _explored(
                machine, at_call(index, death), is_restart=is_restart, loses_power=True
            )


def errors(machine: Machine, errno: int, *, loses_power: bool) -> Iterator[str]:
    """Each call fails once."""
    for is_restart, index in _places(machine):
        yield from _explored(
            machine, at_call(index, Refuse(errno)), is_restart=is_restart, loses_power=loses_power
        )


def lasting_errors(machine: Machine, errno: int) -> Iterator[str]:
    """Each call and all after it fail."""
    for is_restart, index in _places(machine):
        for fault in (Refuse(errno), TurnReadOnly()):
            yield from _explored(
                machine, from_call(index, fault), is_restart=is_restart, loses_power=True
            )


def short_transfers(machine: Machine, errno: int) -> Iterator[str]:
    """Each read and write does less than asked; the rest comes, or fails at the next call."""
    for name, counts in (("read", (1, 4096)), ("write", (0, 1, 4096))):
        for is_restart, index in _places(machine, name=name):
            for count in counts:
                for nemesis in (
                    at_call(index, Shorten(count)),
                    from_call(index, Shorten(max(count, 512))),
                    _both(at_call(index, Shorten(count)), at_call(index + 1, Refuse(errno))),
                ):
                    yield from _explored(machine, nemesis, is_restart=is_restart, loses_power=True)


def death_pairs(machine: Machine) -> Iterator[str]:
    """A start that recovers from a death dies as well; then power is lost."""
    for _, first in _places(machine, restarts=(False,)):
        for second in range(len(_calls(machine, is_restart=True))):
            nemeses = (at_call(first, DEATHS[1]), at_call(second, DEATHS[0]))
            yield from _explored(machine, *nemeses, is_restart=False, loses_power=True)


def at_call(index: int, fault: Fault) -> Nemesis:
    return lambda call: fault if call.index == index else None


def from_call(index: int, fault: Fault) -> Nemesis:
    return lambda call: fault if call.index >= index else None


def _both(first: Nemesis, second: Nemesis) -> Nemesis:
    return lambda call: first(call) or second(call)


def _places(
    machine: Machine,
    *,
    restarts: tuple[bool, ...] = (False, True),
    name: str | None = None,
) -> Iterator[tuple[bool, int]]:
    for is_restart in restarts:
        for call in _calls(machine, is_restart=is_restart):
            if name is None or call.name == name:
                yield is_restart, call.index


def _calls(machine: Machine, *, is_restart: bool) -> list[Call]:
    """Return the calls of a start and its saves when nothing goes wrong."""
    world = World(machine, Tape())
    if is_restart:
        world.run_process(BODIES[:1])
    world.run_process(machine.bodies)
    return world.last_calls


def _explored(
    machine: Machine, *nemeses: Nemesis, is_restart: bool, loses_power: bool
) -> Iterator[str]:
    def run(choices: Choices) -> list[str]:
        return _history(machine, choices, *nemeses, is_restart=is_restart, loses_power=loses_power)

    for violations in explore(run, exhaustive_max=EXHAUSTIVE_MAX, samples=SAMPLES, seed=1):
        yield from violations


def _history(
    machine: Machine,
    choices: Choices,
    *nemeses: Nemesis,
    is_restart: bool,
    loses_power: bool,
) -> list[str]:
    """Run the saves under each nemesis in turn, then without, and judge what is found."""
    world = World(machine, choices)
    if is_restart:
        world.run_process(BODIES[:1])
    for nemesis in nemeses:
        world.run_process(machine.bodies, nemesis)
        if loses_power:
            world.disk.lose_power(choices)
    world.check_at_the_end()
    return world.violations
