"""A controller that knows less than it has acknowledged (lost-ack, K03, V05).

A cursor that lags behind is answered with events that came before; a checkpoint without
events is completed by the runner's own cursor. What it breaks shows as I2, I3 and I7.
"""

from typing import Final

from tests.simulator.full.world import World
from tests.simulator.option import Op, Option


def lag(world: World) -> None:
    """Let the next welcome name an earlier cursor, as if the last ACK had never been sent."""
    assert world.controller is not None
    world.controller.shell.lags = True


def may_lag(world: World) -> int:
    return 1 if world.controller is not None and not world.controller.shell.lags else 0


def make_sparse(world: World) -> None:
    """Start the controller's next process on a checkpoint without events."""
    acked = world.store.run_row_of(world.run_id).acked_source_seq
    kept = world.draws.stream("nemesis").choose("cursor kept", acked + 1)
    world.store.make_sparse(world.run_id, kept)
    world.trace.append(("sparse checkpoint", kept))
    world.observers.store_put_back(kept, is_sparse=True)


def may_make_sparse(world: World) -> int:
    if world.controller is not None or world.observers.is_contradicted or world.is_over:
        return 0
    return 60 if world.store.run_row_of(world.run_id).acked_source_seq else 0


FULL: Final = Option[World](
    "checkpoints",
    families=("lost_ack", "sparse"),
    ops=(
        Op("lag", may_lag, lag, "lost_ack"),
        Op("sparse", may_make_sparse, make_sparse, "sparse"),
        Op("controller ends", lambda w: 1 if w.controller else 0, World.controller_died, "sparse"),
    ),
    sometimes=("duplicate delivery absorbed", "sparse recovery"),
)
