"""Programs that do not start, die, or cannot be killed (H01-H03, H10)."""

from typing import Final

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Op, Option
from tests.simulator.short.world import World


def fail_start(world: World) -> None:
    """There is no such program."""
    program = world.program
    assert program is not None
    world.inbox.append(program.start(fails=True))


def die(world: World) -> None:
    """End with a bad status or a signal, perhaps leaving something alive."""
    program = world.program
    assert program is not None
    stream = world.draws.stream("program")
    code, signal = stream.pick("how", ((1, None), (None, 9), (None, None)))
    survivors = 1 if world.profile.has("survivor") and stream.chance("survivors", 30) else 0
    world.inbox.append(program.exit(code, signal, survivors))


def _waits_for_start(world: World) -> bool:
    return world.is_running and world.program is not None and not world.program.answered_start


def _runs(world: World) -> bool:
    program = world.program
    return world.is_running and program is not None and program.is_alive and program.released


def begin(world: FullWorld) -> None:
    """Let programs fail, or print much."""
    world.programs.may_fail = world.profile.has("bad_exit")
    world.programs.may_print_much = world.profile.has("chatty")


FULL: Final = Option[FullWorld](
    "programs", families=("bad_exit", "chatty", "survivor"), begin=begin
)
SHORT: Final = Option[World](
    "programs",
    families=("no_program", "bad_exit", "survivor"),
    ops=(
        Op(
            "no program",
            lambda w: 3 if _waits_for_start(w) else 0,
            fail_start,
            "no_program",
        ),
        Op("bad exit", lambda w: 1 if _runs(w) else 0, die, "bad_exit"),
    ),
    sometimes=("turn failed", "interrupted turn"),
)
