"""Tickets used again, and tickets that come too late (A01-A03)."""

from typing import Final

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Op, Option


def start_again(world: FullWorld) -> None:
    """Start a runner with the ticket of the last one."""
    world.trace.append("old ticket")
    world.seen.add("ticket used again")
    world.start_runner(world.kept["ticket"])


def may_start_again(world: FullWorld) -> int:
    return 20 if world.runner is None and not world.is_over and "ticket" in world.kept else 0


FULL: Final = Option[FullWorld](
    "tickets",
    families=("old_ticket",),
    ops=(Op("old ticket", may_start_again, start_again, "old_ticket"),),
    sometimes=("ticket used again",),
)
