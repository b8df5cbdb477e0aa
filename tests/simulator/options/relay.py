"""A hostile relay that holds no key (W03-W08, W11)."""

from typing import Final

from tests.simulator.full.relay import Relay, meddle
from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Op, Option


def begin(world: FullWorld) -> None:
    """Let somebody sit in between."""
    if world.profile.has("relay"):
        world.kept["relay"] = relay = Relay()
        world.recorded = relay.record


def act(world: FullWorld) -> None:
    """Do one hostile thing."""
    meddle(world, world.kept["relay"])


def _has_bytes(world: FullWorld) -> int:
    return 6 * world.scaled("relay", 1) if world.network.pipes() else 0


FULL: Final = Option[FullWorld](
    "relay",
    families=("relay",),
    begin=begin,
    ops=(Op("relay", _has_bytes, act, "relay"),),
    sometimes=(
        "relay: drop",
        "relay: duplicate",
        "relay: swap",
        "relay: corrupt",
        "relay: truncate",
        "relay: splice",
        "relay: reflect",
        "relay: blurt",
        "relay: alter",
    ),
)
