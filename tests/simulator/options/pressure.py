"""Little room and long lines (storage-pressure, H05, S13, K11)."""

from typing import Final

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Option
from tests.simulator.short.world import CRAMMED_BYTES, World, settings_of

KIB: Final = 1024
_ROOM: Final = (
    (64 * KIB, 16 * KIB),
    (40 * KIB, 16 * KIB),
    (32 * KIB, 12 * KIB),
    (24 * KIB, 4 * KIB),
)
_LENGTHS: Final = (0, 1, 500, 1_500, 4_000)


def begin(world: World) -> None:
    """Draw how much the outbox may hold, and how long the lines are."""
    if not world.profile.has("pressure"):
        return
    stream = world.draws.stream("profile")
    outbox, reserve = stream.pick("outbox", (*_ROOM, CRAMMED_BYTES, CRAMMED_BYTES))
    if (outbox, reserve) == CRAMMED_BYTES:
        world.kept["start"] = "nearly full"
    world.use_settings(settings_of(outbox, reserve))
    world.line_length = stream.pick("line", _LENGTHS)
    world.profile.facts.update({"outbox": outbox, "reserve": reserve, "line": world.line_length})


def begin_full(world: FullWorld) -> None:
    """Draw how much the outbox may hold, and how long the lines are."""
    if world.profile.has("pressure"):
        stream = world.draws.stream("profile")
        outbox, reserve = stream.pick("outbox", _ROOM)
        world.use_settings(settings_of(outbox, reserve))
        world.line_length = stream.pick("line", _LENGTHS)
        world.profile.facts.update({"outbox": outbox, "line": world.line_length})


FULL: Final = Option[FullWorld](
    "pressure",
    families=("pressure",),
    begin=begin_full,
    sometimes=(
        "backpressure entered",
        "backpressure left",
        "turn refused under backpressure",
    ),
)
SHORT: Final = Option[World](
    "pressure",
    families=("pressure",),
    begin=begin,
    sometimes=(
        "turn refused under backpressure",
        "output had no room",
        "reserve used",
        "no room for a fact",
    ),
)
