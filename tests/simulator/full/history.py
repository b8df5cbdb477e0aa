"""One full schedule: storm, heal, quiet, audit (faults.md 5.8).

It decides which step follows and when a schedule is over. It refuses to know what any step
does and whether it was right.
"""

from collections.abc import Collection
from typing import Final

from tests.simulator.disk import Mode
from tests.simulator.draws import Draws, Recording
from tests.simulator.full.calm import calm_down
from tests.simulator.full.entropy import seeded_library, silent_logs
from tests.simulator.full.ops import OPS
from tests.simulator.full.scheduler import STRATEGIES, Scheduler
from tests.simulator.full.starts import STARTS, put_in_place
from tests.simulator.full.world import World
from tests.simulator.option import Op
from tests.simulator.profile import draw_profile
from tests.simulator.registry import full_menu
from tests.simulator.short.world import USUAL_BYTES, settings_of
from tests.simulator.verdict import Outcome

STEPS_MAX: Final = 10**6
LONGEST: Final = (60, 100, 100, 150, 150, 200, 300)
DRIFTS_PPM: Final = (0, 0, 500, -500)
OPERATION_PERCENT: Final = 15
NONE_WEIGHT: Final = 40


def run_full(
    seed: int,
    recording: Recording | None = None,
    disabled: Collection[str] = (),
    steps_max: int = STEPS_MAX,
    needed: Collection[str] = (),
) -> Outcome:
    """Run one schedule and return how it went; nothing is raised but faults of the simulator."""
    draws = Draws(seed, recording)
    menu = full_menu()
    profile = draw_profile(draws, menu.families, disabled, needed)
    stream = draws.stream("profile")
    mode = stream.pick("disk mode", (Mode.STRICT, Mode.EXT4_LIKE))
    steps = min(steps_max, stream.pick("steps", LONGEST))
    strategy = stream.pick("strategy", STRATEGIES)
    drift = stream.pick("drift", DRIFTS_PPM)
    profile.facts.update(
        {"disk_mode": mode.value, "steps": steps, "strategy": strategy, "drift": drift}
    )
    world = World(draws, profile, settings_of(*USUAL_BYTES), mode, drift)
    world.scheduler = Scheduler(draws.stream("schedule"), strategy, steps)
    menu.begin(world)
    world.grammar = menu.commands(profile)
    outcome = Outcome("full", draws, profile, disabled, needed, trace=world.trace, seen=world.seen)

    def history() -> None:
        put_in_place(world, stream.pick("start", STARTS))
        _storm(world, (*OPS, *menu.ops(profile)), steps, outcome)
        calm_down(world)
        menu.audit(world)

    with seeded_library(seed), silent_logs():
        try:
            outcome.judge(history)
        finally:
            world.put_down()
    outcome.steps = steps
    outcome.virtual_ms = world.now_ms
    return outcome


def _storm(world: World, ops: tuple[Op[World], ...], steps: int, outcome: Outcome) -> None:
    stream = world.draws.stream("nemesis")
    for number in range(steps):
        outcome.step = number + 1
        # Most steps are the world's own: what else could happen is looked at now and then.
        if stream.chance("operation", OPERATION_PERCENT) and _operate(world, ops):
            continue
        if not world.step():
            world.pass_time(1_000)


def _operate(world: World, ops: tuple[Op[World], ...]) -> bool:
    weights = [op.weight(world) for op in ops]
    place = world.draws.stream("nemesis").weighed("which", weights, NONE_WEIGHT)
    if place is None:
        return False
    world.trace.append(ops[place].name)
    ops[place].act(world)
    return True
