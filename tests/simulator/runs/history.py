"""One history of a durable run: storm, heal, quiet, audit (faults.md 5.8).

It decides which step follows and when a history is over. It refuses to know what any step
does and whether it was right.
"""

from collections.abc import Collection
from typing import Final

from tests.simulator import invariants
from tests.simulator.disk import Mode
from tests.simulator.draws import Draws, Recording
from tests.simulator.option import Op
from tests.simulator.profile import draw_profile
from tests.simulator.registry import runs_options
from tests.simulator.runs import ops
from tests.simulator.runs.host import TOOLS
from tests.simulator.runs.world import World
from tests.simulator.verdict import Outcome, Violation, traceback_violation

STEPS_MAX: Final = 10**6
LONGEST: Final = (20, 30, 40, 60)
QUIET_STEPS_MAX: Final = 300
WORKS_MAX: Final = 3


def run_runs(
    seed: int,
    recording: Recording | None = None,
    disabled: Collection[str] = (),
    steps_max: int = STEPS_MAX,
    needed: Collection[str] = (),
) -> Outcome:
    """Run one history and return how it went; nothing is raised but faults of the simulator."""
    draws = Draws(seed, recording)
    options = runs_options()
    families = [family for option in options for family in option.families]
    profile = draw_profile(draws, families, disabled, needed)
    stream = draws.stream("profile")
    mode = stream.pick("disk mode", (Mode.STRICT, Mode.EXT4_LIKE))
    steps = min(steps_max, stream.pick("steps", LONGEST))
    world = World(draws, profile, mode)
    tools = tuple(TOOLS)
    world.works = tuple(
        (f"w{number}", stream.pick("tool", tools))
        for number in range(stream.between("works", 1, WORKS_MAX))
    )
    profile.facts.update({"disk_mode": mode.value, "steps": steps, "works": world.works})
    outcome = Outcome("runs", draws, profile, disabled, needed, trace=world.trace, seen=world.seen)
    present = [op for option in options for op in option.ops if profile.has(op.family or "")]
    try:
        for option in options:
            if option.begin is not None:
                option.begin(world)
        _storm(world, (*ops.OPS, *present), steps, outcome)
        _calm_down(world)
        for option in options:
            if option.audit is not None:
                option.audit(world)
    except Violation as violation:
        outcome.violation = violation
    except Exception as error:  # noqa: BLE001 - a traceback is never an outcome (I18)
        outcome.violation = traceback_violation(error)
    outcome.steps = steps
    return outcome


def _storm(world: World, all_ops: tuple[Op[World], ...], steps: int, outcome: Outcome) -> None:
    stream = world.draws.stream("schedule")
    for number in range(steps):
        outcome.step = number + 1
        weights = [op.weight(world) for op in all_ops]
        total = sum(weights)
        if not total:
            return
        drawn = stream.choose("op", total)
        for op, weight in zip(all_ops, weights, strict=True):
            drawn -= weight
            if drawn < 0:
                world.trace.append(op.name)
                op.act(world)
                break
        _check_disk(world)


def _calm_down(world: World) -> None:
    world.trace.append("heal")
    world.faults_are_on, world.armed, world.loses_power = False, None, False
    disk = world.machine.disk
    disk.is_read_only, disk.capacity_bytes = False, None
    for _ in range(QUIET_STEPS_MAX):
        if world.is_over:
            break
        if world.host is None:
            world.decide() if world.needs_person else world.start_host()
        elif ops.open_requests(world):
            ops.happen(world)
        else:
            ops.move(world)
        _check_disk(world)
    invariants.I20("" if world.is_over else "the run is neither over nor closed")
    world.lose_power()
    if world.judge.damaged is None:
        world.judge.check_end()


def _check_disk(world: World) -> None:
    if world.machine.disk.violations:
        number, _, words = world.machine.disk.violations[0].partition(" ")
        raise Violation(number, words)
