"""Controllers that die, and stores that fail (K01, K11)."""

from typing import Final

from tests.simulator.full.store import Trouble
from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Op, Option


def kill(world: FullWorld) -> None:
    """Kill the controller between two of its steps, perhaps with a commit under way."""
    busy = any(job.actor == "controller writer" for job in world.jobs)
    world.seen.add("controller killed in a commit" if busy else "controller killed")
    world.controller_died()


def spoil_commit(world: FullWorld) -> None:
    """Let the next commit fail, before or after it is durable."""
    trouble = world.draws.stream("disk").pick("trouble", (Trouble.FAILS, Trouble.FAILS_AFTER))
    world.store.trouble = trouble
    world.seen.add(f"commit {trouble.value}")


FULL: Final = Option[FullWorld](
    "controllers",
    families=("controller_crash", "store"),
    ops=(
        Op(
            "kill controller",
            lambda w: w.scaled("controller_crash", 1) if w.controller else 0,
            kill,
            "controller_crash",
        ),
        Op(
            "store trouble",
            lambda w: w.scaled("store", 1) if w.store.trouble is None else 0,
            spoil_commit,
            "store",
        ),
    ),
    sometimes=(
        "controller killed",
        "controller killed in a commit",
        "commit fails",
        "commit fails after",
    ),
)
