"""Processes that die, power that goes, and disks that refuse (P01, S01-S10)."""

import errno
from typing import Final

from tests.simulator.disk_process import Die, Fault, Refuse, Shorten, TurnReadOnly
from tests.simulator.option import Op, Option
from tests.simulator.short.world import World

CALLS_AHEAD_MAX: Final = 8
"""A save makes six calls; a fault may also strike the one after it."""
ERRNOS: Final = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EINTR, errno.EMFILE)


def crash(world: World) -> None:
    """End the process between two of its steps."""
    world.seen.add("crash with a write in flight" if world.write else "crash")
    world.crash()


def lose_power(world: World) -> None:
    """End everything on the machine."""
    world.lose_power()
    world.seen.add("power loss")


def arm(world: World) -> None:
    """Let one of the next disk calls fail, fall short or be the last."""
    stream = world.draws.stream("disk")
    ahead = stream.between("calls ahead", 1, CALLS_AHEAD_MAX)
    fault: Fault
    match stream.choose("fault", 4):
        case 0:
            fault = Refuse(stream.pick("errno", ERRNOS))
        case 1:
            fault = Shorten(stream.choose("bytes", 64))
        case 2:
            fault = Die(is_after=False)
        case _:
            fault = Die(is_after=True)
    world.judge.armed = (ahead, fault)


def turn_read_only(world: World) -> None:
    """From now on nothing can be changed."""
    world.judge.armed = (1, TurnReadOnly())


def turn_writable(world: World) -> None:
    """Mount the disk anew."""
    world.machine.disk.is_read_only = False
    world.trace.append("disk writable")


SHORT: Final = Option[World](
    "storage",
    families=("crash", "power", "disk", "read_only"),
    ops=(
        Op("crash", lambda w: w.scaled("crash", 1) if w.is_running else 0, crash, "crash"),
        Op("power loss", lambda w: w.scaled("power", 1), lose_power, "power"),
        Op(
            "disk fault", lambda w: w.scaled("disk", 3) if w.judge.armed is None else 0, arm, "disk"
        ),
        Op(
            "read only",
            lambda w: 1 if w.judge.armed is None and not w.machine.disk.is_read_only else 0,
            turn_read_only,
            "read_only",
        ),
        Op(
            "writable",
            lambda w: 2 if w.machine.disk.is_read_only else 0,
            turn_writable,
            "read_only",
        ),
    ),
    sometimes=(
        "crash",
        "crash with a write in flight",
        "power loss",
        "fault at create_exclusive",
        "fault at write",
        "fault at sync",
        "fault at close",
        "fault at rename",
        "died in a write",
        "write undecided",
        "write succeeded after a failure",
        "ended on an undecided write",
    ),
)
