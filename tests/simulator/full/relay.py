"""Somebody between runner and controller: sees frames, holds no key (faults.md 4.4).

It decides what is done to bytes in flight and what is said first. It refuses to know tokens.
"""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from protocol.canonical_json import JsonValue
from tests.simulator.draws import Stream
from tests.simulator.full.network import EOF, Chunk, Connection, Pipe
from tests.simulator.full.sealed import HEAD_END, frame, texts

if TYPE_CHECKING:
    from tests.simulator.full.world import World

RECORDED_MAX: Final = 40
MASK: Final = b"\x01\x02\x03\x04"

HOSTILE: Final = (
    b"[" * 5_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b'{"protocol":"paperclip.runner","version":2,"kind":"auth_hello","payload":"\\ud800"}',
    b'{"protocol":"paperclip.runner","version":2,"kind":"auth_hello","payload":{"a":1e999}}',
    b'{"kind":"auth_hello","kind":"auth_hello"}',
    b'{"n":' + b"9" * 5_000 + b"}",
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b'"\\ud800"',
    b"NaN",
    b"",
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":0,"ciphertext":"\\ud800"}',
    b'{"schema":"paperclip.runner.secure-frame.v1","counter":-1,"ciphertext":"00"}',
)
"""Texts that a strict reader refuses by name and no reader may stumble over (W11)."""


@dataclass
class Relay:
    """What was recorded, to be said again elsewhere."""

    to_server: deque[bytes] = field(default_factory=lambda: deque(maxlen=RECORDED_MAX))
    to_client: deque[bytes] = field(default_factory=lambda: deque(maxlen=RECORDED_MAX))

    def record(self, data: bytes, *, is_client: bool) -> None:
        """Keep what somebody wrote."""
        (self.to_server if is_client else self.to_client).append(data)


def meddle(world: "World", relay: Relay) -> None:
    """Do one hostile thing to one direction of one connection."""
    stream = world.draws.stream("net")
    in_flight = [
        (connection, pipe)
        for connection, pipe in world.network.pipes()
        if any(chunk.data != EOF for chunk in pipe.chunks)
    ]
    if not in_flight:
        return
    connection, pipe = stream.pick("direction", in_flight)
    places = [place for place, chunk in enumerate(pipe.chunks) if chunk.data != EOF]
    place = stream.pick("chunk", places)
    deed = stream.pick("deed", DEEDS)
    if deed(stream, connection, pipe, place, relay):
        world.trace.append((deed.__name__, pipe.name, place))
        world.seen.add(f"relay: {deed.__name__}")
        pipe.in_flight = sum(len(chunk.data) for chunk in pipe.chunks)


def drop(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    del pipe.chunks[place]
    return True


def duplicate(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    chunk = pipe.chunks[place]
    pipe.chunks.insert(place, Chunk(chunk.data, chunk.ready_ms))
    return True


def swap(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    if place + 1 >= len(pipe.chunks) or pipe.chunks[place + 1].data == EOF:
        return False
    first, second = pipe.chunks[place], pipe.chunks[place + 1]
    first.data, second.data = second.data, first.data
    return True


def corrupt(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    data = bytearray(pipe.chunks[place].data)
    bit = s.choose("bit", 8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    pipe.chunks[place].data = bytes(data)
    return True


def truncate(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    data = pipe.chunks[place].data
    pipe.chunks[place].data = data[: 1 + s.choose("kept", len(data))]
    return True


def splice(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    """Put in something that was recorded in this direction, perhaps of another connection."""
    recorded = relay.to_server if pipe is connection.to_server else relay.to_client
    old = s.pick("recorded", list(recorded))
    pipe.chunks.insert(place, Chunk(old, pipe.chunks[place].ready_ms))
    return True


def reflect(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    """Send what one end said back to it, framed as the other end would."""
    is_to_server = pipe is connection.to_server
    recorded = list(relay.to_client if is_to_server else relay.to_server)
    if not recorded:
        return False
    said = [text for data in recorded[-5:] if HEAD_END not in data for text in texts(data)]
    if not said:
        return False
    data = frame(s.pick("said", said), MASK if is_to_server else b"")
    pipe.chunks.insert(place, Chunk(data, pipe.chunks[place].ready_ms))
    return True


def blurt(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    """Put in a hostile text."""
    mask = MASK if pipe is connection.to_server else b""
    data = frame(s.pick("text", HOSTILE), mask)
    pipe.chunks.insert(place, Chunk(data, pipe.chunks[place].ready_ms))
    return True


def alter(s: Stream, connection: Connection, pipe: Pipe, place: int, relay: Relay) -> bool:
    """Change one member of a plain message, and frame it anew (W07)."""
    data = pipe.chunks[place].data
    if HEAD_END in data:
        return False
    mask = MASK if pipe is connection.to_server else b""
    for text in texts(data):
        try:
            message = json.loads(text)
            payload: JsonValue = message["payload"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        if not isinstance(payload, dict) or not payload:
            return False
        name = s.pick("member", sorted(payload))
        payload[name] = _altered(payload[name])
        pipe.chunks[place].data = frame(msgspec.json.encode(message), mask)
        return True
    return False


def _altered(value: JsonValue) -> JsonValue:
    if isinstance(value, bool) or value is None:
        return "altered"
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str) and value:
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return None


DEEDS: Final = (drop, duplicate, swap, corrupt, truncate, splice, reflect, blurt, alter, alter)
