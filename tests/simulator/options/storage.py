"""Processes that die, power that goes, and disks that refuse (P01, S01-S10)."""

import errno
from typing import Final

from tests.simulator.disk_faults import Die, Fault, Refuse, Shorten, TurnReadOnly
from tests.simulator.draws import Stream
from tests.simulator.full.world import World as FullWorld
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
    world.judge.armed = draw_fault(world.draws.stream("disk"))


def draw_fault(stream: Stream) -> tuple[int, Fault]:
    """Return what happens, and at the how-manieth call from now."""
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
    return ahead, fault


def turn_read_only(world: World) -> None:
    """From now on nothing can be changed."""
    world.judge.armed = (1, TurnReadOnly())


def turn_writable(world: World) -> None:
    """Mount the disk anew."""
    world.machine.disk.is_read_only = False
    world.trace.append("disk writable")


def crash_runner(world: FullWorld) -> None:
    """Kill the runner between two of its steps; the kernel tells its peers."""
    world.trace.append("runner killed")
    busy = any(job.actor == "state writer" for job in world.jobs)
    world.seen.add("crash with a write in flight" if busy else "crash")
    world.runner_died()


def lose_runner_power(world: FullWorld) -> None:
    """End everything on the runner's machine; nobody is told."""
    world.lose_power()
    world.seen.add("power loss")


def arm_full(world: FullWorld) -> None:
    """Let one of the runner's next disk calls fail, fall short or be the last."""
    world.judge.armed = draw_fault(world.draws.stream("disk"))


def arm_power_loss(world: FullWorld) -> None:
    """Let power be lost in one of the runner's next disk calls (S02)."""
    world.judge.armed = draw_power_loss(world.draws.stream("disk"))
    world.side.loses_power = True


def draw_power_loss(stream: Stream) -> tuple[int, Fault]:
    """Return at which call from now power is lost, before or after it takes effect."""
    ahead = stream.between("calls ahead", 1, CALLS_AHEAD_MAX)
    return ahead, Die(is_after=stream.chance("after", 50))


def begin_slow(world: FullWorld) -> None:
    """Let the runner's disk, and the store, take their time."""
    if world.profile.has("slow_disk"):
        stream = world.draws.stream("profile")
        world.disk_latency_ms = stream.pick(
            "disk latency", ((0, 50), (0, 0, 0, 1_000), (0, 0, 0, 0, 0, 0, 7_000))
        )


FULL: Final = Option[FullWorld](
    "storage",
    families=("crash", "power", "disk", "slow_disk"),
    begin=begin_slow,
    ops=(
        Op("kill runner", lambda w: w.scaled("crash", 1) if w.runner else 0, crash_runner, "crash"),
        Op(
            "power loss",
            lambda w: w.scaled("power", 1) if w.runner else 0,
            lose_runner_power,
            "power",
        ),
        Op("disk fault", lambda w: 0 if w.judge.armed else w.scaled("disk", 2), arm_full, "disk"),
        Op(
            "power fault",
            lambda w: 0 if w.judge.armed else w.scaled("power", 1),
            arm_power_loss,
            "power",
        ),
    ),
    sometimes=(
        "crash",
        "crash with a write in flight",
        "power loss",
        "write undecided",
        "write succeeded after a failure",
        "indeterminate reported",
        "interrupted turn",
        "power loss in a disk call",
        "power loss dropped a rename",
        "power loss tore a file",
    ),
)
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
        "fault at open_directory",
        "fault at unlink",
    ),
)
