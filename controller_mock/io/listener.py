"""Listens for runners.

It decides the address, TLS and how many peers may be connected without having proven
anything. It refuses to know what the peers say.
"""

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.core.inputs import ConnectionHandle
from controller_mock.io.websocket import Connection, Receiver, new_buffer
from protocol.carrier import ServerCarrier
from protocol.errors import ErrorCode, PrpError
from protocol.limits import FRAME_BYTES_MAX, HANDSHAKE_STEP_TIMEOUT_MS

DEFAULT_PATH: Final = "/api/runner/v1/connect"
LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 1024
_ACCEPTS_PER_TURN: Final = 8
"""Accepted before the first of them is judged, and reported if descriptors have run out."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Where a listener is reached."""

    host: str
    port: int
    url: str
    """For `--connect-url`."""


class Listener:
    """One listening address; all its connections report to one receiver."""

    def __init__(self, server: asyncio.Server, bound: Bound) -> None:
        self._server = server
        self.bound = bound

    def close(self) -> None:
        """Accept nothing more. Connections that are open stay so."""
        self._server.close()


class Handles:
    """Numbers connections for the life of the process."""

    def __init__(self) -> None:
        self._next: Callable[[], int] = itertools.count(1).__next__

    def take(self) -> ConnectionHandle:
        """Return a number that no other connection has or had."""
        return ConnectionHandle(self._next())


async def listen(
    receiver: Receiver,
    handles: Handles,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    path: str = DEFAULT_PATH,
    tls: ssl.SSLContext | None = None,
) -> Listener:
    """Bind an address and accept connections.

    Args:
        port: 0 takes a free one.

    Raises:
        PrpError: LISTEN_FAILED if the address cannot be bound.
    """
    loop = asyncio.get_running_loop()
    buffer = new_buffer()

    def connection() -> Connection:
        carrier = ServerCarrier(path, FRAME_BYTES_MAX)
        return Connection(handles.take(), carrier, receiver, loop, buffer)

    try:
        server = await loop.create_server(
            connection,
            host,
            port,
            backlog=_ACCEPTS_PER_TURN,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_STEP_TIMEOUT_MS / 1000,
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the name does not resolve"
        raise PrpError(ErrorCode.LISTEN_FAILED, f"{host} port {port}: {reason}") from None
    for listening in server.sockets:
        # asyncio takes one number for both; the kernel's queue may be longer than a turn.
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(_BACKLOG)
    bound_port = server.sockets[0].getsockname()[1]
    scheme = "ws" if tls is None else "wss"
    authority = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{authority}:{bound_port}{path}"
    return Listener(server, Bound(host=host, port=bound_port, url=url))


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a server's TLS context from PEM files.

    Raises:
        PrpError: LISTEN_FAILED if they are unreadable or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else os.strerror(error.errno or 0)
        raise PrpError(
            ErrorCode.LISTEN_FAILED, f"certificate {certificate} and key {key}: {reason}"
        ) from None
    return context
