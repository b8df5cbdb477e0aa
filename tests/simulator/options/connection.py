"""Connections that break and attempts that fail (W01, W02, socket-drop, lost-ack, R11)."""

from typing import Final

from protocol.errors import ErrorCode
from runnerd.core.inputs import ConnectFailed, ConnectionLost, ControlReceived
from tests.simulator.option import Op, Option
from tests.simulator.short.ops import link_is_open
from tests.simulator.short.world import World


def lose(world: World) -> None:
    """Break the connection; what is on its way to the runner may be lost, from some point on."""
    link = world.peer.link
    assert link is not None
    link.is_open = False
    mine = [place for place, fact in enumerate(world.inbox) if isinstance(fact, ControlReceived)]
    lost = world.draws.stream("net").choose("facts lost", len(mine) + 1)
    if lost:
        world.seen.add("control data lost")
        for place in reversed(mine[len(mine) - lost :]):
            del world.inbox[place]
    world.inbox.append(ConnectionLost(link.binding.connection_id, ErrorCode.CONNECTION_LOST))


def fail_dial(world: World) -> None:
    """Let an attempt end without a welcome; a bootstrap proof may have left."""
    dial, world.peer.dial = world.peer.dial, None
    assert dial is not None
    spent = dial.credential_kind == "bootstrap" and world.draws.stream("net").chance("spent", 30)
    if spent:
        world.seen.add("welcome lost after ticket use")
    code = ErrorCode.PEER_TIMEOUT if spent else ErrorCode.CONNECTION_LOST
    world.inbox.append(ConnectFailed(code=code, credential_spent=spent))


SHORT: Final = Option[World](
    "connection",
    families=("loss", "dial"),
    ops=(
        Op("loss", lambda w: w.scaled("loss", 1) if link_is_open(w) else 0, lose, "loss"),
        Op(
            "dial fails",
            lambda w: w.scaled("dial", 3) if w.peer.dial is not None else 0,
            fail_dial,
            "dial",
        ),
    ),
    sometimes=("control data lost", "welcome lost after ticket use", "event sent again"),
)
