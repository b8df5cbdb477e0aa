"""One short history: storm, heal, quiet, audit (faults.md 5.8).

It decides which step follows and when a history is over. It refuses to know what any step
does and whether it was right.
"""

from collections.abc import Collection, Sequence
from typing import Final

from tests.simulator.disk import Mode
from tests.simulator.draws import Draws, Recording
from tests.simulator.option import Op
from tests.simulator.profile import draw_profile
from tests.simulator.registry import short_menu
from tests.simulator.short.calm import calm_down
from tests.simulator.short.ops import STEPS, weigh
from tests.simulator.short.orders import perform
from tests.simulator.short.starts import STARTS, put_in_place
from tests.simulator.short.told import note
from tests.simulator.short.world import USUAL_BYTES, World, settings_of
from tests.simulator.verdict import Outcome

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
    menu = short_menu()
    profile = draw_profile(draws, menu.families, disabled, needed)
    stream = draws.stream("profile")
    mode = stream.pick("disk mode", (Mode.STRICT, Mode.EXT4_LIKE))
    longest = stream.pick("longest", LONGEST)
    steps = min(steps_max, stream.between("steps", 6, longest))
    profile.facts.update({"disk_mode": mode.value, "steps": steps})
    world = World(draws, profile, settings_of(*USUAL_BYTES), mode, note, perform)
    menu.begin(world)
    world.grammar = menu.commands(profile)
    outcome = Outcome("short", draws, profile, disabled, needed, trace=world.trace, seen=world.seen)

    def history() -> None:
        put_in_place(world, stream.pick("start", STARTS))
        profile.facts["start"] = world.start_name
        _storm(world, menu.ops(profile), steps, outcome)
        calm_down(world)
        menu.audit(world)

    outcome.judge(history)
    outcome.steps = steps
    outcome.virtual_ms = world.elapsed_ms
    return outcome


def _storm(world: World, trouble: Sequence[Op[World]], steps: int, outcome: Outcome) -> None:
    schedule, nemesis = world.draws.stream("schedule"), world.draws.stream("nemesis")
    for number in range(steps):
        outcome.step = number + 1
        # What could go wrong is looked at now and then only: most steps are the world's own.
        if nemesis.chance("trouble", TROUBLE_PERCENT):
            weights = [op.weight(world) for op in trouble]
            place = nemesis.weighed("step", weights, NONE)
            if place is not None:
                world.trace.append(trouble[place].name)
                trouble[place].act(world)
                continue
        place = schedule.weighed("step", weigh(world))
        if place is None:
            return
        name, act = STEPS[place]
        world.trace.append(name)
        act(world)
