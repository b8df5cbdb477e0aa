"""Bytes of strangers against a listening controller: refused by name, never a traceback."""

import asyncio
import base64
import contextlib
import os
import struct
from pathlib import Path
from random import Random

import pytest

from protocol.errors import ErrorCode
from protocol.limits import (
    CONNECTIONS_UNAUTHENTICATED_MAX,
    FRAME_BYTES_MAX,
    WRITE_BUFFER_BYTES_MAX,
)
from tests.controller_mock.runner_client import event_body
from tests.controller_mock.served import WAIT_S, Served, eventually, served

KEY = base64.b64encode(bytes(range(16))).decode()


def request(
    *,
    method: str = "GET",
    path: str = "/api/runner/v1/connect",
    key: str = KEY,
    version: str = "13",
    upgrade: str = "websocket",
    more: str = "",
) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        f"Upgrade: {upgrade}\r\nSec-WebSocket-Version: {version}\r\n"
        f"Sec-WebSocket-Key: {key}\r\n{more}\r\n"
    ).encode()


def frame(
    payload: bytes, *, opcode: int = 1, fin: bool = True, masked: bool = True, length: int = -1
) -> bytes:
    size = len(payload) if length < 0 else length
    head = bytes([(0x80 if fin else 0) | opcode])
    mask_bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([mask_bit | size])
    elif size < 1 << 16:
        head += bytes([mask_bit | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask_bit | 127]) + struct.pack(">Q", size)
    return head + (bytes(4) if masked else b"") + payload


class Raw:
    """A TCP connection that says whatever a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, world: Served) -> "Raw":
        host, port = world.url.split("/")[2].split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    @classmethod
    async def upgraded(cls, world: Served) -> "Raw":
        raw = await cls.open(world)
        raw.writer.write(request())
        head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        return raw

    async def rest(self) -> bytes:
        """Return everything until the controller ends the connection."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while data := await asyncio.wait_for(self.reader.read(65_536), WAIT_S):
                found += data
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        return found


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(path="/other"), 404),
        (request(path="/api/runner/v1/connect/"), 404),
        (request(method="POST"), 400),
        (request(key="AAAA"), 400),
        (request(key=KEY[:-3] + "9=="), 400),
        (request(version="8"), 400),
        (request(upgrade="h2c"), 400),
        (request(more=f"X-Long: {'x' * 17_000}\r\n"), 431),
        (request() + frame(b"early"), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
    ],
    ids=[
        "path",
        "longer path",
        "method",
        "short key",
        "key that is not canonical",
        "version",
        "upgrade",
        "long headers",
        "bytes behind the request",
        "TLS hello",
        "no request line",
    ],
)
async def test_upgrade_that_breaks_a_rule_is_refused_and_counted(
    tmp_path: Path, sent: bytes, status: int
) -> None:
    async with served(tmp_path) as world:
        raw = await Raw.open(world)

        raw.writer.write(sent)
        answer = await raw.rest()

        assert answer.split(b" ")[1] == str(status).encode()
        assert world.controller.closings() == {ErrorCode.UPGRADE_REFUSED: 1}


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"not a frame at all, nowhere near one", ErrorCode.FRAME_MALFORMED),
        (frame(b"{}", masked=False), ErrorCode.FRAME_MALFORMED),
        (frame(b"{}", opcode=2), ErrorCode.FRAME_MALFORMED),
        (frame(b"{}", opcode=0), ErrorCode.FRAME_MALFORMED),
        (frame(b"{}", opcode=3), ErrorCode.FRAME_MALFORMED),
        (frame(b"{}", fin=False), ErrorCode.FRAME_MALFORMED),
        (frame(b"x" * 126, opcode=9), ErrorCode.FRAME_MALFORMED),
        (frame(b"", length=FRAME_BYTES_MAX + 1), ErrorCode.FRAME_TOO_LARGE),
        (frame(b"", length=2**62), ErrorCode.FRAME_TOO_LARGE),
        (frame(b""), ErrorCode.MESSAGE_NOT_JSON),
        (frame(b"\xff\xfe"), ErrorCode.MESSAGE_NOT_JSON),
        (frame(b"[" * 100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (frame(b'{"a":' * 65 + b"1" + b"}" * 65), ErrorCode.MESSAGE_TOO_LARGE),
        (frame(b'{"a":1,"a":2}'), ErrorCode.MESSAGE_INVALID),
        (frame(b'{"a":NaN}'), ErrorCode.MESSAGE_NOT_JSON),
        (frame(b'{"a":1e999}'), ErrorCode.MESSAGE_INVALID),
        (frame(b'{"a":"\\ud800"}'), ErrorCode.MESSAGE_INVALID),
        (frame(b'{"a":' + b"9" * 5_000 + b"}"), ErrorCode.MESSAGE_INVALID),
        (frame(b"\xef\xbb\xbf{}"), ErrorCode.MESSAGE_NOT_JSON),
        (frame(b"null"), ErrorCode.MESSAGE_INVALID),
        (frame(b'{"__proto__":{}}'), ErrorCode.MESSAGE_INVALID),
    ],
    ids=lambda value: value.value if isinstance(value, ErrorCode) else repr(value[:16]),
)
async def test_frame_of_a_stranger_ends_its_connection_with_a_code(
    tmp_path: Path, sent: bytes, code: ErrorCode
) -> None:
    async with served(tmp_path) as world:
        before = world.controller.view(world.run_id)
        raw = await Raw.upgraded(world)

        raw.writer.write(sent)
        answer = await raw.rest()

        assert answer == b"", "no close frame and no explanation"
        assert world.controller.closings() == {code: 1}
        assert world.controller.view(world.run_id) == before


async def test_frame_of_exactly_the_limit_is_taken(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        raw = await Raw.upgraded(world)

        raw.writer.write(frame(b" " * FRAME_BYTES_MAX))
        await raw.rest()

        # The carrier takes it; it is the reader of a hello that does not.
        assert world.controller.closings() == {ErrorCode.MESSAGE_TOO_LARGE: 1}


async def test_close_frame_ends_the_connection_without_being_a_breach(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        raw = await Raw.upgraded(world)

        raw.writer.write(frame(struct.pack(">H", 1000), opcode=8))
        answer = await raw.rest()

        assert answer == b""
        assert world.controller.closings() == {}


async def test_frames_in_single_bytes_are_one_message(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        raw = await Raw.open(world)

        for byte in request() + frame(b'{"kind":"none"}'):
            raw.writer.write(bytes([byte]))
            await raw.writer.drain()
        await raw.rest()

        assert list(world.controller.closings().values()) == [1]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", request()], ids=["silent", "half", "upgraded"])
async def test_peer_that_says_nothing_more_is_dropped(
    tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller_mock.io.websocket.HANDSHAKE_STEP_TIMEOUT_MS", 50)
    async with served(tmp_path) as world:
        raw = await Raw.open(world)

        raw.writer.write(sent)
        await raw.rest()

        assert world.controller.closings() == {ErrorCode.PEER_TIMEOUT: 1}


async def test_strangers_beyond_the_bound_are_dropped_and_runners_come_in_again_later(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        strangers = [await Raw.open(world) for _ in range(CONNECTIONS_UNAUTHENTICATED_MAX)]

        one_more = await Raw.open(world)
        assert await one_more.rest() == b""
        assert world.controller.closings() == {ErrorCode.UPGRADE_REFUSED: 1}
        for stranger in strangers:
            stranger.writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await stranger.writer.wait_closed()
        await eventually(lambda: world.controller.shell.reception.unproven == 0)
        client = await world.bootstrap()

        assert client.acked == 0


async def test_peer_that_pings_and_never_reads_does_not_grow_the_write_buffer(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        [slot] = world.controller.shell.runs()
        [peer] = slot.peers.values()
        client.pause_reading()

        ping = frame(os.urandom(125), opcode=9)
        flood = asyncio.create_task(client.send_bytes(ping * 100_000))
        await eventually(lambda: peer.connection.is_held)
        size = peer.connection.unsent_bytes
        await client.close()
        with contextlib.suppress(ConnectionError):
            await flood

        assert 0 < size < WRITE_BUFFER_BYTES_MAX


async def test_garbage_after_authentication_keeps_what_came_before(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()

        await client.send_events([event_body(client.config, 1)])
        await client.send_bytes(b"\xff" * 100)
        await client.closed()

        await eventually(lambda: world.sequences() == [1])
        assert world.controller.closings() == {ErrorCode.FRAME_MALFORMED: 1}


async def test_arbitrary_bytes_change_nothing_but_the_count_of_closings(tmp_path: Path) -> None:
    random = Random(20260102)
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        before = world.controller.view(world.run_id)

        for number in range(150):
            noise = random.randbytes(random.randrange(1, 600))
            raw = await (Raw.open if number % 3 == 0 else Raw.upgraded)(world)
            raw.writer.write(frame(noise) if number % 3 == 1 else noise)
            raw.writer.write_eof()
            await raw.rest()

        assert world.controller.view(world.run_id) == before
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)
