"""Runs and turns: what a sensible controller asks for, and what it asks for out of place."""

from typing import Final

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Command, Option
from tests.simulator.short.ops import PREPARE
from tests.simulator.short.world import World


def _weight_prepare(world: World) -> int:
    return 12 if not _settled(world, "run.prepare") else 1


def _weight_open(world: World) -> int:
    return 12 if _settled(world, "run.prepare") and not _settled(world, "session.open") else 1


def _weight_turn(world: World) -> int:
    return 12 if _settled(world, "session.open") else 1


def _settled(world: World, command_type: str) -> bool:
    return command_type in world.peer.settled_types


def _asked(world: FullWorld, command_type: str) -> bool:
    return any(row.type == command_type for row in world.store.rows(world.run_id).values())


FULL: Final = Option[FullWorld](
    "turns",
    families=("cancel", "interrupt"),
    commands=(
        Command("session.snapshot", lambda _: 2),
        Command("run.prepare", lambda w: 1 if _asked(w, "run.prepare") else 30, lambda _: PREPARE),
        Command(
            "session.open",
            lambda w: 30 if _asked(w, "run.prepare") and not _asked(w, "session.open") else 1,
        ),
        Command("turn.start", lambda w: 20 if _asked(w, "session.open") else 1),
        Command("session.close", lambda _: 1),
        Command("turn.interrupt", lambda _: 3, family="interrupt"),
        Command("run.cancel", lambda _: 1, family="cancel"),
    ),
)
SHORT: Final = Option[World](
    "turns",
    families=("cancel", "interrupt"),
    commands=(
        Command("session.snapshot", lambda _: 1),
        Command("run.prepare", _weight_prepare, lambda _: PREPARE),
        Command("session.open", _weight_open),
        Command("turn.start", _weight_turn),
        Command("session.close", lambda _: 1),
        Command("turn.interrupt", lambda _: 3, family="interrupt"),
        Command("run.cancel", lambda _: 2, family="cancel"),
    ),
)
