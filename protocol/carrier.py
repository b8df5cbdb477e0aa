"""A WebSocket at one end of a connection, fed with bytes and drained of bytes.

It decides which bytes are text messages and which break a rule. It refuses to know
sockets, timers and what a text says. After `Failed` nothing more comes out but an HTTP
refusal: the transport is to be dropped, and no close frame is sent (prp-wire 1).
"""

import abc
import logging
from typing import Final

import msgspec
from websockets.exceptions import PayloadTooBig
from websockets.frames import CLOSE, PING, PONG, TEXT, Frame
from websockets.protocol import CLIENT, SERVER, Protocol, Side
from websockets.utils import generate_key

from protocol.errors import ErrorCode
from protocol.limits import FRAME_BYTES_MAX
from protocol.upgrade import (
    Head,
    Refused,
    accepting_response,
    is_accepted,
    judge_request,
    refusing_response,
    upgrade_request,
)

_SILENT: Final = logging.Logger("carrier", logging.CRITICAL)
"""The library would log the beginning of every frame where debugging is on."""


class Opened(msgspec.Struct, frozen=True):
    """The upgrade is done: texts may be sent."""


class TextReceived(msgspec.Struct, frozen=True):
    """A whole text message; its bytes are not known to be UTF-8."""

    data: bytes


class PongReceived(msgspec.Struct, frozen=True):
    """The peer answered a ping or sends a pong of its own."""


class Failed(msgspec.Struct, frozen=True):
    """The connection is of no more use.

    ``upgrade_refused``, ``frame_malformed``, ``frame_too_large``, or ``connection_lost`` if
    the peer closed it.
    """

    code: ErrorCode


CarrierEvent = Opened | TextReceived | PongReceived | Failed


class _Carrier(abc.ABC):
    """What both ends share: a head first, then frames, until one fails."""

    def __init__(self, side: Side, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._frames = Protocol(side, max_size=max_frame_bytes, logger=_SILENT)
        self._head: Head | None = Head()
        self._http: list[bytes] = []
        self._failed = False

    @property
    def is_open(self) -> bool:
        """True from `Opened` until `Failed`."""
        return self._head is None and not self._failed

    def feed(self, data: bytes) -> list[CarrierEvent]:
        """Take bytes as they arrived, cut anywhere, and return what they complete."""
        if self._failed or not data:
            return []
        if self._head is None:
            return self._receive(data)
        try:
            complete = self._head.feed(data)
        except OverflowError:
            return [self._refuse(Refused(431))]
        if complete is None:
            return []
        return self._judge(*complete)

    def eof(self) -> list[CarrierEvent]:
        """Take the end of the peer's bytes; the same at any moment: the connection is lost."""
        return [] if self._failed else [self._fail(ErrorCode.CONNECTION_LOST)]

    def send_text(self, text: bytes) -> None:
        """Queue one message of valid UTF-8 in a single frame; nothing happens once failed."""
        assert len(text) <= self._max_frame_bytes, "a frame that the peer would refuse"
        if self.is_open:
            self._frames.send_text(text)

    def send_ping(self) -> None:
        """Ask the peer for a sign of life; nothing happens unless the connection is open."""
        if self.is_open:
            self._frames.send_ping(b"")

    def outgoing(self) -> list[bytes]:
        """Return the bytes to write now, in order, and forget them."""
        waiting, self._http = self._http, []
        if self.is_open:
            waiting += self._frames.data_to_send()
        return waiting

    @abc.abstractmethod
    def _judge(self, head: bytes, behind: bytes) -> list[CarrierEvent]:
        """Judge the peer's head, and take in what came behind it."""

    def _refuse(self, refused: Refused) -> Failed:
        return self._fail(ErrorCode.UPGRADE_REFUSED)

    def _fail(self, code: ErrorCode) -> Failed:
        self._failed = True
        return Failed(code)

    def _receive(self, data: bytes) -> list[CarrierEvent]:
        self._frames.receive_data(data)
        events: list[CarrierEvent] = []
        for frame in self._frames.events_received():
            assert isinstance(frame, Frame), "the head was not given to the library"
            if frame.opcode is TEXT and frame.fin:
                events.append(TextReceived(bytes(frame.data)))
            elif frame.opcode is PONG:
                events.append(PongReceived())
            elif frame.opcode is CLOSE:
                return [*events, self._fail(ErrorCode.CONNECTION_LOST)]
            elif frame.opcode is not PING:  # which the library has answered
                return [*events, self._fail(ErrorCode.FRAME_MALFORMED)]
        if self._frames.parser_exc is not None:
            is_too_big = isinstance(self._frames.parser_exc, PayloadTooBig)
            events.append(
                self._fail(ErrorCode.FRAME_TOO_LARGE if is_too_big else ErrorCode.FRAME_MALFORMED)
            )
        return events


class ClientCarrier(_Carrier):
    """The runner's end. Its request waits in `outgoing` from the beginning.

    Args:
        host: as in the URL; an IPv6 address without brackets.
        path: absolute, without query or fragment, printable ASCII.
        secure: whether TLS lies below, which decides the port that needs no mention.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        secure: bool,
        max_frame_bytes: int = FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(CLIENT, max_frame_bytes)
        self._key = generate_key()
        authority = f"[{host}]" if ":" in host else host
        if port != (443 if secure else 80):
            authority += f":{port}"
        self._http.append(upgrade_request(authority, path, self._key))

    def _judge(self, head: bytes, behind: bytes) -> list[CarrierEvent]:
        if not is_accepted(head, self._key):
            return [self._fail(ErrorCode.UPGRADE_REFUSED)]
        self._head = None
        return [Opened(), *(self._receive(behind) if behind else ())]


class ServerCarrier(_Carrier):
    """The controller's end; it accepts one path."""

    def __init__(self, path: str, max_frame_bytes: int = FRAME_BYTES_MAX) -> None:
        super().__init__(SERVER, max_frame_bytes)
        self._path = path

    def _judge(self, head: bytes, behind: bytes) -> list[CarrierEvent]:
        verdict = judge_request(head, self._path)
        if isinstance(verdict, Refused):
            return [self._refuse(verdict)]
        if behind:
            # A client that waits for the answer has nothing to say yet.
            return [self._refuse(Refused(400))]
        self._http.append(accepting_response(verdict))
        self._head = None
        return [Opened()]

    def _refuse(self, refused: Refused) -> Failed:
        self._http.append(refusing_response(refused))
        return super()._refuse(refused)
