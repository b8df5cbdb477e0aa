"""One accepted connection: WebSocket frames over an asyncio transport, bounded in bytes and time.

It decides how much a peer may send, leave unread and delay before it is dropped. It refuses
to know what a frame says: text goes to the receiver, orders come back.
"""

import asyncio
import enum
import socket
from typing import Final, Protocol

from controller_mock.core.inputs import ConnectionHandle
from protocol.carrier import Failed, Opened, PongReceived, ServerCarrier, TextReceived
from protocol.errors import ErrorCode
from protocol.limits import (
    HANDSHAKE_STEP_TIMEOUT_MS,
    SOCKET_READ_BYTES,
    WRITE_BUFFER_BYTES_MAX,
    WRITE_BUFFER_HIGH_BYTES,
    WRITE_STALL_TIMEOUT_MS,
)

_MS: Final = 1000


class Hold(enum.Enum):
    """Why nothing is read from a connection for now."""

    UNSENT = "unsent"
    """The peer does not take what was sent to it."""
    COMMIT = "commit"
    """Enough was read while one commit is in flight."""
    HANDSHAKE = "handshake"
    """What follows can only be read under keys that are not there yet."""
    REFUSED = "refused"
    """The peer broke a rule; nothing more of it is looked at."""


class Receiver(Protocol):
    """What a connection reports to; every call comes from the loop and returns at once."""

    def connection_made(self, connection: "Connection") -> bool:
        """Take a new connection, or refuse it (False) because there are too many."""
        ...

    def frame_received(self, connection: "Connection", text: bytes) -> None:
        """Judge one text frame."""
        ...

    def connection_refused(self, connection: "Connection", code: ErrorCode) -> None:
        """Close a connection whose peer broke a rule of the carrier."""
        ...

    def connection_lost(self, connection: "Connection") -> None:
        """Forget a connection; called exactly once after ``connection_made`` took it."""
        ...


class Connection(asyncio.Protocol, asyncio.BufferedProtocol):
    """The carrier's side of one peer; no close frame is ever sent."""

    def __init__(
        self,
        handle: ConnectionHandle,
        carrier: ServerCarrier,
        receiver: Receiver,
        loop: asyncio.AbstractEventLoop,
        buffer: memoryview | None = None,
    ) -> None:
        """Prepare for a transport.

        Args:
            buffer: for what is read, until it is copied out at once; connections of one loop
                may share it, so that an idle one needs none.
        """
        self.handle = handle
        self._buffer = new_buffer() if buffer is None else buffer
        self._carrier = carrier
        self._receiver = receiver
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._step_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._holds: set[Hold] = set()
        self._taken = False

    @property
    def is_open(self) -> bool:
        """True while bytes can still be exchanged."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_refused(self) -> bool:
        """True once the peer broke a rule."""
        return Hold.REFUSED in self._holds

    @property
    def is_held(self) -> bool:
        """True while nothing is read."""
        return bool(self._holds)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- orders ---------------------------------------------------------------------------

    def send_text(self, text: bytes) -> None:
        """Put one text frame behind the others; `flush` sends them together."""
        if self.is_open:
            self._carrier.send_text(text)

    def flush(self) -> None:
        """Hand everything that waits to the transport in one write."""
        if not self.is_open:
            return
        assert self._transport is not None
        if outgoing := self._carrier.outgoing():
            self._transport.writelines(outgoing)
            if self.unsent_bytes > WRITE_BUFFER_BYTES_MAX:
                self.refuse(ErrorCode.PEER_TIMEOUT)

    def drop(self) -> None:
        """End the connection now; what the system already took may still arrive."""
        self.flush()
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, code: ErrorCode) -> None:
        """Look at nothing more of the peer and report the broken rule, once."""
        if not self.is_refused:
            self.settle()
            self.hold(Hold.REFUSED)
            self._receiver.connection_refused(self, code)

    def expect_within(self, timeout_ms: int) -> None:
        """Refuse the peer as `peer_timeout` unless the next frame or `settle` comes in time."""
        self.settle()
        self._step_timer = self._loop.call_later(
            timeout_ms / _MS, self.refuse, ErrorCode.PEER_TIMEOUT
        )

    def settle(self) -> None:
        """Expect nothing any more."""
        if self._step_timer is not None:
            self._step_timer.cancel()
            self._step_timer = None

    def hold(self, reason: Hold) -> None:
        """Read nothing until the reason is released."""
        if not self._holds and self.is_open:
            assert self._transport is not None
            self._transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: Hold) -> None:
        """Read again, unless another reason is left."""
        if reason not in self._holds:
            return
        self._holds.remove(reason)
        if not self._holds and self.is_open:
            assert self._transport is not None
            self._transport.resume_reading()

    # --- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._taken = self._receiver.connection_made(self)
        if self._taken:
            self.expect_within(HANDSHAKE_STEP_TIMEOUT_MS)
        else:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if not self._taken:
            return
        for event in self._carrier.feed(data):
            if self.is_refused or not self.is_open:
                return
            match event:
                case TextReceived(data=text):
                    self.settle()
                    self._receiver.frame_received(self, text)
                case Opened():
                    self.expect_within(HANDSHAKE_STEP_TIMEOUT_MS)
                case PongReceived():
                    pass
                case Failed(code=ErrorCode.CONNECTION_LOST):
                    self.drop()
                case Failed(code=code):
                    self.refuse(code)
        self.flush()

    def eof_received(self) -> None:
        self._carrier.eof()

    def pause_writing(self) -> None:
        # A peer that pings and never reads would otherwise grow the buffer without end.
        self.hold(Hold.UNSENT)
        self._stall_timer = self._loop.call_later(
            WRITE_STALL_TIMEOUT_MS / _MS, self.refuse, ErrorCode.PEER_TIMEOUT
        )

    def resume_writing(self) -> None:
        self._cancel_stall()
        self.release(Hold.UNSENT)

    def connection_lost(self, exc: Exception | None) -> None:
        self.settle()
        self._cancel_stall()
        self._carrier.eof()
        if self._taken:
            self._receiver.connection_lost(self)

    def _cancel_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def new_buffer() -> memoryview:
    """Return memory for one read."""
    return memoryview(bytearray(SOCKET_READ_BYTES))
