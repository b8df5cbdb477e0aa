"""One short history: storm, heal, quiet, audit (faults.md 5.8).

It decides which step follows and when a history is over. It refuses to know what any step
does and whether it was right.
"""

from collections.abc import Collection
from typing import Final

from tests.simulator.disk import Mode
from tests.simulator.draws import Draws, Recording, Stream
from tests.simulator.option import Op
from tests.simulator.profile import draw_profile
from tests.simulator.registry import short_options
from tests.simulator.short.calm import calm_down
from tests.simulator.short.ops import OPS
from tests.simulator.short.orders import perform
from tests.simulator.short.starts import STARTS, put_in_place
from tests.simulator.short.told import note
from tests.simulator.short.world import USUAL_BYTES, World, settings_of
from tests.simulator.verdict import Outcome, Violation, traceback_violation

STEPS_MAX: Final = 60
TROUBLE_PERCENT: Final = 30
NONE: Final = 20
LONGEST: Final = (12, 18, 18, 24, 24, 40, STEPS_MAX)
"""Most bugs need few steps, and many short histories see more than few long ones."""


def run_short(
    seed: int,
    recording: Recording | None = None,
    disabled: Collection[str] = (),
    steps_max: int = STEPS_MAX,
    needed: Collection[str] = (),
) -> Outcome:
    """Run one history and return how it went; nothing is raised but faults of the simulator.

    Args:
        recording: draws of an earlier history to be repeated; the seed is then only a name.
    """
    draws = Draws(seed, recording)
    options = short_options()
    families = [family for option in options for family in option.families]
    profile = draw_profile(draws, families, disabled, needed)
    stream = draws.stream("profile")
    mode = stream.pick("disk mode", (Mode.STRICT, Mode.EXT4_LIKE))
    longest = stream.pick("longest", LONGEST)
    steps = min(steps_max, stream.between("steps", 6, longest))
    profile.facts.update({"disk_mode": mode.value, "steps": steps})
    world = World(draws, profile, settings_of(*USUAL_BYTES), mode, note, perform)
    for option in options:
        if option.begin is not None:
            option.begin(world)
    outcome = Outcome("short", draws, profile, disabled, needed, trace=world.trace, seen=world.seen)
    present = [op for option in options for op in option.ops if profile.has(op.family or "")]
    world.grammar = tuple(
        command
        for option in options
        for command in option.commands
        if command.family is None or profile.has(command.family)
    )
    try:
        put_in_place(world, stream.pick("start", STARTS))
        profile.facts["start"] = world.start_name
        _storm(world, OPS, tuple(present), steps, outcome)
        calm_down(world)
        for option in options:
            if option.audit is not None:
                option.audit(world)
    except Violation as violation:
        outcome.violation = violation
    except Exception as error:  # noqa: BLE001 - a traceback is never an outcome (I18)
        outcome.violation = traceback_violation(error)
    outcome.steps = steps
    outcome.virtual_ms = world.elapsed_ms
    return outcome


def _storm(
    world: World,
    usual: tuple[Op[World], ...],
    trouble: tuple[Op[World], ...],
    steps: int,
    outcome: Outcome,
) -> None:
    schedule, nemesis = world.draws.stream("schedule"), world.draws.stream("nemesis")
    for number in range(steps):
        outcome.step = number + 1
        # What could go wrong is looked at now and then only: most steps are the world's own.
        if nemesis.chance("trouble", TROUBLE_PERCENT) and _one_of(world, trouble, nemesis, NONE):
            continue
        if not _one_of(world, usual, schedule, 0):
            return


def _one_of(world: World, ops: tuple[Op[World], ...], stream: Stream, none: int) -> bool:
    weights = [op.weight(world) for op in ops]
    total = none + sum(weights)
    drawn = stream.choose("step", total) - none if total else -1
    if drawn < 0:
        return False
    for op, weight in zip(ops, weights, strict=True):
        drawn -= weight
        if drawn < 0:
            world.trace.append(op.name)
            op.act(world)
            return True
    raise AssertionError("a draw is below the sum of the weights")
