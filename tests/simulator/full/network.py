"""Connections as two ordered byte queues with finite buffers (faults.md 5.5).

It decides what a close, a reset and a full buffer mean for bytes in flight. It refuses to
know what the bytes say, and when they move: the world delivers.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulator.full.loop import VirtualLoop, running

KERNEL_BYTES: Final = 256 * 1024
"""What both kernels hold of one direction; what is more waits in the sender's process."""
EOF: Final = b""


@dataclass
class Chunk:
    """Bytes on their way, not to be read before a moment."""

    data: bytes
    ready_ms: int


@dataclass
class Pipe:
    """One direction. ``blocked`` lets nothing through and tells nobody."""

    name: str
    chunks: deque[Chunk] = field(default_factory=deque[Chunk])
    blocked: bool = False
    in_flight: int = 0


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: "Network", connection: "Connection", loop: VirtualLoop, is_client: bool
    ) -> None:
        super().__init__()
        self._network = network
        self.connection = connection
        self.loop = loop
        self.is_client = is_client
        self.protocol: Any = None
        self.reads = True
        self._closing = False
        self._lost = False
        self._high = 64 * 1024
        self._is_paused = False

    # --- what the product calls ---------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([bytes(data)])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._closing:
            return
        for data in list_of_data:
            self._network.sent(self, bytes(data))
        self.watch_buffer()

    def get_write_buffer_size(self) -> int:
        return max(0, self.connection.outgoing(self).in_flight - KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self.reads and not self._closing

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closing:
            self._network.ended(self)
            self.lose()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    # --- the network's side -------------------------------------------------------------------

    def lose(self) -> None:
        """Report the end of the connection to this end, once, when its loop is next free."""
        self._closing = True
        if not self._lost and not self.loop.is_dead:
            self._lost = True
            self.loop.call_soon(self._report_lost)

    def _report_lost(self) -> None:
        self.protocol.connection_lost(None)

    def receive(self, data: bytes) -> None:
        """Hand over bytes, or the end of them."""
        if self._closing or self.loop.is_dead:
            return
        with running(self.loop):
            if data != EOF:
                self.protocol.data_received(data)
            elif not self.protocol.eof_received():
                self.abort()

    def watch_buffer(self) -> None:
        """Tell the protocol when it has written more than can be held, and when no more."""
        size = self.get_write_buffer_size()
        if not self._is_paused and size > self._high:
            self._is_paused = True
            self.protocol.pause_writing()
        elif self._is_paused and size <= self._high // 4:
            self._is_paused = False
            if not self._closing:
                self.protocol.resume_writing()


class Connection:
    """Both ends and both directions."""

    def __init__(self, number: int, caller: Any, listener: Any) -> None:
        self.number = number
        self.caller = caller
        self.listener = listener
        """Who opened it and who took it; the network does not ask who they are."""
        self.to_server = Pipe(f"{number}>")
        self.to_client = Pipe(f"{number}<")
        self.client: Transport | None = None
        self.server: Transport | None = None

    def outgoing(self, end: Transport) -> Pipe:
        """Return the direction into which an end writes."""
        return self.to_server if end.is_client else self.to_client

    def other(self, end: Transport) -> Transport | None:
        """Return the opposite end."""
        return self.server if end.is_client else self.client

    def reader(self, pipe: Pipe) -> Transport | None:
        """Return who reads a direction."""
        return self.server if pipe is self.to_server else self.client

    @property
    def is_over(self) -> bool:
        """True once nobody is left who could read or write."""
        ends = (self.client, self.server)
        return all(end is None or end.is_closing() or end.loop.is_dead for end in ends)


class Network:
    """All connections there ever were; the last ones are live."""

    def __init__(
        self, now_ms: Callable[[], int], delay_ms: Callable[[], int], tap: Callable[..., None]
    ) -> None:
        """Begin without a connection.

        Args:
            delay_ms: is asked how long each piece of data is on its way.
            tap: is told of everything that an end writes, before anything happens to it.
        """
        self._now_ms = now_ms
        self._delay_ms = delay_ms
        self._tap = tap
        self.connections: list[Connection] = []
        self.opened = 0
        self.arrives: Callable[[int, bytes], None] = lambda number, data: None
        """Is told what a server is about to read, and of which connection."""

    def connect(self, caller: object, listener: object) -> Connection:
        """Return a new connection without ends."""
        self.opened += 1
        connection = Connection(self.opened, caller, listener)
        self.connections.append(connection)
        return connection

    def pipes(self) -> list[tuple[Connection, Pipe]]:
        """Return every direction in which something is on its way."""
        return [
            (connection, pipe)
            for connection in self.connections
            for pipe in (connection.to_server, connection.to_client)
            if pipe.chunks
        ]

    def sent(self, end: Transport, data: bytes) -> None:
        """Take bytes into the sender's queue."""
        self._tap(end, data)
        self.put(end.connection.outgoing(end), data)

    def put(self, pipe: Pipe, data: bytes) -> None:
        """Put data behind everything that is on its way."""
        ready_ms = self._now_ms() + self._delay_ms()
        if pipe.chunks:
            ready_ms = max(ready_ms, pipe.chunks[-1].ready_ms)
        pipe.chunks.append(Chunk(data, ready_ms))
        pipe.in_flight += len(data)

    def ended(self, end: Transport) -> None:
        """Let the other end read what is on its way, and then the end."""
        self.put(end.connection.outgoing(end), EOF)

    def process_died(self, loop: VirtualLoop, *, is_told: bool) -> None:
        """End every end of a process that is gone; the kernel may not live to tell the others."""
        for connection in self.connections:
            for end in (connection.client, connection.server):
                if end is not None and end.loop is loop and not end.is_closing():
                    if is_told:
                        self.ended(end)
                    else:
                        connection.outgoing(end).blocked = True

    def is_ready(self, connection: Connection, pipe: Pipe) -> bool:
        """Tell whether the head of a direction can be read now."""
        reader = connection.reader(pipe)
        if pipe.blocked or not pipe.chunks or pipe.chunks[0].ready_ms > self._now_ms():
            return False
        if reader is None or reader.is_closing() or reader.loop.is_dead:
            return True
        return reader.reads and reader.protocol is not None

    def deliver(self, connection: Connection, pipe: Pipe, count: int, cut: int) -> None:
        """Let the reader have the first ``count`` chunks at once, or ``cut`` bytes of the first."""
        head = pipe.chunks[0]
        if 0 < cut < len(head.data):
            data, head.data = head.data[:cut], head.data[cut:]
        else:
            data = pipe.chunks.popleft().data
            while data != EOF and count > 1 and pipe.chunks and pipe.chunks[0].data != EOF:
                data += pipe.chunks.popleft().data
                count -= 1
        pipe.in_flight -= len(data)
        if pipe is connection.to_server:
            self.arrives(connection.number, data)
        reader = connection.reader(pipe)
        if reader is not None:
            reader.receive(data)
        writer = connection.client if pipe is connection.to_server else connection.server
        if writer is not None and not writer.is_closing() and not writer.loop.is_dead:
            with running(writer.loop):
                writer.watch_buffer()

    def heal(self) -> None:
        """Let everything through again, and end what was cut off for good."""
        for connection in self.connections:
            for pipe in (connection.to_server, connection.to_client):
                if pipe.blocked:
                    pipe.blocked = False
                    pipe.chunks.append(Chunk(EOF, self._now_ms()))

    def tidy(self) -> None:
        """Forget connections that are over and empty."""
        self.connections = [
            connection
            for connection in self.connections
            if not connection.is_over or any(p.chunks for p in (connection.to_server,))
        ][-8:]
