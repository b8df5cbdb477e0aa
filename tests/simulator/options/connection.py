"""Connections that break and attempts that fail (W01, W02, socket-drop, lost-ack, R11)."""

from typing import Final

from protocol.errors import ErrorCode
from runnerd.core.inputs import ConnectFailed, ConnectionLost, ControlReceived
from tests.simulator.full.network import Connection
from tests.simulator.full.world import World as FullWorld
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


def _live(world: FullWorld) -> list[Connection]:
    return [connection for connection in world.network.connections if not connection.is_over]


def reset(world: FullWorld) -> None:
    """Break a connection; of the bytes in flight any suffix is lost, in each direction."""
    stream = world.draws.stream("net")
    connection = stream.pick("connection", list(reversed(_live(world))))
    world.trace.append(("reset", connection.number))
    for pipe in (connection.to_server, connection.to_client):
        lost = stream.choose("chunks lost", len(pipe.chunks) + 1)
        if lost:
            world.seen.add("bytes lost")
        for _ in range(lost):
            pipe.chunks.pop()
    for end in (connection.client, connection.server):
        if end is not None and not end.is_closing() and end.protocol is not None:
            end.lose()


def black_hole(world: FullWorld) -> None:
    """Let nothing through in one direction any more, and tell nobody."""
    stream = world.draws.stream("net")
    connection = stream.pick("connection", list(reversed(_live(world))))
    pipe = connection.to_client if stream.chance("to client", 50) else connection.to_server
    world.trace.append(("black hole", pipe.name))
    pipe.blocked = True
    world.seen.add("half-open")


def begin(world: FullWorld) -> None:
    """Draw how slow the network is, and how it cuts the bytes."""
    stream = world.draws.stream("profile")
    if world.profile.has("slow_net"):
        world.latency_ms = stream.pick(
            "latency", ((0, 30, 100), (0, 300), (0, 0, 0, 0, 0, 0, 0, 3_000))
        )
    world.segments = world.profile.has("segments")


FULL: Final = Option[FullWorld](
    "connection",
    families=("reset", "half_open", "dial", "slow_net", "segments"),
    begin=begin,
    ops=(
        Op("reset", lambda w: w.scaled("reset", 1) if _live(w) else 0, reset, "reset"),
        Op(
            "half open",
            lambda w: w.scaled("half_open", 1) if _live(w) else 0,
            black_hole,
            "half_open",
        ),
    ),
    sometimes=("bytes lost", "half-open", "event sent again"),
)
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
