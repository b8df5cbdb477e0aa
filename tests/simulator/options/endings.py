"""Ways to end: drain, suspend, shutdown, a signal, revocation (drain, revoke, P02)."""

from typing import Final

from protocol.envelope import Revoke
from protocol.ids import RevocationEpoch
from runnerd.core.inputs import StopRequested
from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Command, Op, Option
from tests.simulator.short.ops import link_is_open
from tests.simulator.short.world import World

SIGTERM: Final = 15


def stop(world: World) -> None:
    """Send the process a signal."""
    world.stops += 1
    world.inbox.append(StopRequested(SIGTERM, world.stops))


def revoke(world: World) -> None:
    """Withdraw authority."""
    peer = world.peer
    peer.epoch += 1
    peer.revoked = True
    world.seen.add("revoked")
    world.inbox.append(peer.says(Revoke(RevocationEpoch(peer.epoch)), world.peer_now_ms))


def stop_runner(world: FullWorld) -> None:
    """Send the process a signal."""
    assert world.runner is not None
    world.trace.append("signal")
    world.runner.stop(SIGTERM)


def revoke_run(world: FullWorld) -> None:
    """Withdraw the run's authority."""
    assert world.controller is not None
    world.kept["revoked"] = True
    world.seen.add("revoked")
    world.controller.revoke(lambda _: None)


FULL: Final = Option[FullWorld](
    "endings",
    families=("drain", "suspend", "shutdown", "stop", "revoke"),
    ops=(
        Op("signal", lambda w: w.scaled("stop", 1) if w.runner else 0, stop_runner, "stop"),
        Op(
            "revoke",
            lambda w: (
                1
                if w.controller and not w.controller.is_fenced and not w.kept.get("revoked")
                else 0
            ),
            revoke_run,
            "revoke",
        ),
    ),
    commands=(
        Command("runner.drain", lambda _: 2, family="drain"),
        Command("runner.suspend", lambda _: 1, family="suspend"),
        Command("runner.shutdown", lambda _: 1, family="shutdown"),
    ),
    sometimes=("revoked", "turn refused while draining", "stopped on request", "ended cleanly"),
)
SHORT: Final = Option[World](
    "endings",
    families=("drain", "suspend", "shutdown", "stop", "revoke"),
    ops=(
        Op("stop", lambda w: w.scaled("stop", 1) if w.is_running else 0, stop, "stop"),
        Op(
            "revoke",
            lambda w: 1 if link_is_open(w) and not w.peer.revoked else 0,
            revoke,
            "revoke",
        ),
    ),
    commands=(
        Command("runner.drain", lambda _: 2, family="drain"),
        Command("runner.suspend", lambda _: 1, family="suspend"),
        Command("runner.shutdown", lambda _: 1, family="shutdown"),
    ),
    sometimes=("revoked", "turn refused while draining", "stopped on request", "ended cleanly"),
)
