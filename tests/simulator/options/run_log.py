"""The log of the run: slow, refusing, broken, or written by a process that dies before it knows.

What it breaks shows as I7: a call or an answer that is visible before the log has it.
"""

from typing import Final

import msgspec

from protocol.errors import ErrorCode
from tests.simulator.option import Op, Option
from tests.simulator.short.run_log import FAMILY, RunLog, log_of
from tests.simulator.short.world import World

_PASSING: Final = ErrorCode.DURABILITY_BARRIER_FAILED
_FINAL: Final = ErrorCode.RUN_STATE_CORRUPT


def begin(world: World) -> None:
    """Let the runner keep a log in some histories."""
    if world.profile.has(FAMILY):
        world.use_settings(msgspec.structs.replace(world.settings, keeps_run_log=True))
        world.kept[FAMILY] = RunLog()


def refuse(world: World) -> None:
    """Let the disk of the log refuse, or find the log broken."""
    log, stream = log_of(world), world.draws.stream("run log")
    assert log is not None
    fault = _FINAL if stream.chance("broken", 10) else _PASSING
    log.refuse(world, fault, stream.choose("taken", 3))
    world.seen.add("run log refused")


def lose_answer(world: World) -> None:
    """Kill the runner between the record and its answer."""
    log = log_of(world)
    assert log is not None
    log.lose_answer()
    world.seen.add("run log written unnoticed")
    world.crash()


def _weight(world: World, weight: int) -> int:
    log = log_of(world)
    return weight if log is not None and log.has_order(world) else 0


SHORT: Final = Option[World](
    FAMILY,
    families=(FAMILY,),
    begin=begin,
    ops=(
        Op("run log refuses", lambda w: _weight(w, 20), refuse, FAMILY),
        Op("run log written unnoticed", lambda w: _weight(w, 10), lose_answer, FAMILY),
    ),
    sometimes=(
        "call left behind its record",
        "run log refused",
        "run log written unnoticed",
    ),
)
