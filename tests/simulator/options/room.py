"""A disk that fills up, and has room again (S12, S13, R15)."""

from typing import Final

from tests.simulator.full.world import World
from tests.simulator.option import Op, Option

_SLACK: Final = (4096, 0, 100, 1_000, 20_000, 60_000)
"""Bytes that files may still grow by: less than a state, about one, some."""


def fill(world: World) -> None:
    """Let somebody else take all room but a little."""
    disk = world.runner_machine.disk
    disk.capacity_bytes = 0
    used = -disk.room_left()
    disk.capacity_bytes = used + world.draws.stream("disk").pick("slack", _SLACK)
    world.trace.append(("disk full", disk.capacity_bytes - used))


def make_room(world: World) -> None:
    """Let somebody else give room back."""
    world.runner_machine.disk.capacity_bytes = None
    world.trace.append("disk has room")


def _is_full(world: World) -> bool:
    return world.runner_machine.disk.capacity_bytes is not None


FULL: Final = Option[World](
    "room",
    families=("full_disk",),
    ops=(
        Op(
            "fill disk", lambda w: 0 if _is_full(w) else w.scaled("full_disk", 1), fill, "full_disk"
        ),
        Op("make room", lambda w: 2 if _is_full(w) else 0, make_room, "full_disk"),
    ),
    sometimes=("stored in the reserve", "room came back"),
)
