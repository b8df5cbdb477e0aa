"""Every option of both stacks, in the order in which their families are drawn.

It decides what exists. It refuses to know what it does: append a line for a new feature.
"""

import functools

from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Menu, Option
from tests.simulator.options import (
    checkpoints,
    clock,
    connection,
    controllers,
    dialogue,
    endings,
    lies,
    owners,
    pressure,
    programs,
    relay,
    rollback,
    room,
    run_effects,
    run_log,
    run_store,
    storage,
    tickets,
    turns,
)
from tests.simulator.runs.world import World as RunsWorld
from tests.simulator.short.world import World as ShortWorld


def short_options() -> tuple[Option[ShortWorld], ...]:
    """Return what the short stack is made of."""
    return (
        turns.SHORT,
        storage.SHORT,
        connection.SHORT,
        clock.SHORT,
        endings.SHORT,
        lies.SHORT,
        programs.SHORT,
        pressure.SHORT,
        rollback.SHORT,
        dialogue.SHORT,
        run_log.SHORT,
    )


@functools.cache
def short_menu() -> Menu[ShortWorld]:
    """Return the same, put together."""
    return Menu(short_options())


def full_options() -> tuple[Option[FullWorld], ...]:
    """Return what the full stack is made of."""
    return (
        turns.FULL,
        storage.FULL,
        connection.FULL,
        clock.FULL,
        endings.FULL,
        programs.FULL,
        pressure.FULL,
        controllers.FULL,
        tickets.FULL,
        relay.FULL,
        room.FULL,
        rollback.FULL,
        checkpoints.FULL,
        dialogue.FULL,
        owners.FULL,
    )


@functools.cache
def full_menu() -> Menu[FullWorld]:
    """Return the same, put together."""
    return Menu(full_options())


def runs_options() -> tuple[Option[RunsWorld], ...]:
    """Return what the stack of durable runs is made of."""
    return (run_store.RUNS, run_effects.RUNS)


def sometimes_of(stack: str) -> list[str]:
    """Return what a batch of this stack must see."""
    if stack == "short":
        return [fact for option in short_options() for fact in option.sometimes]
    if stack == "runs":
        return [fact for option in runs_options() for fact in option.sometimes]
    return [fact for option in full_options() for fact in option.sometimes]
