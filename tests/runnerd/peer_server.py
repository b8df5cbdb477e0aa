"""Connections of `Peer` over real sockets on loopback, served by one thread.

A test waits with `wait_until` for what the runner did; nothing here sleeps or polls.
"""

import select
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tests.runnerd.peer import PATH, Authority, Peer, Tamper

PATIENCE_S = 30.0
"""How long a test waits for something that must happen before it gives up."""


class PeerServer:
    """Accepts any number of connections of one authority."""

    def __init__(self, authority: Authority, tls: ssl.SSLContext | None = None) -> None:
        self.authority = authority
        self.tamper = Tamper()
        self.peers: list[Peer] = []
        self.is_accepting = True
        self._changed = threading.Condition()
        self._tls = tls
        self._sockets: dict[int, tuple[socket.socket, Peer]] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake_read, self._wake_write = socket.socketpair()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The URL of the authority."""
        return f"{'wss' if self._tls else 'ws'}://127.0.0.1:{self.port}{PATH}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Drop every connection and end the thread. A second call does nothing."""
        with self._changed:
            if self._is_stopping:
                return
            self._is_stopping = True
        self._wake_write.send(b"\0")
        self._thread.join()
        for resource in (self._listener, self._wake_read, self._wake_write):
            resource.close()

    def wait_until(self, predicate: Callable[[], bool], what: str) -> None:
        """Return when ``predicate`` holds; it is judged whenever bytes moved."""
        with self._changed:
            assert self._changed.wait_for(predicate, PATIENCE_S), f"it never came to: {what}"

    @contextmanager
    def changing(self) -> Generator[None]:
        """Change peers or the authority between two turns of the server, then let it write."""
        with self._changed:
            yield
            self._changed.notify_all()
        self._wake_write.send(b"\0")

    def newest(self) -> Peer:
        """Return the newest connection that was welcomed."""
        return [peer for peer in self.peers if peer.is_welcomed][-1]

    def drop_connections(self) -> None:
        """Cut every socket as a broken network would."""
        with self.changing():
            for peer in self.peers:
                peer.close()

    # --- the thread -----------------------------------------------------------------------

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            with self._changed:
                if self._is_stopping:
                    break
                if self._wake_read.fileno() in ready:
                    self._wake_read.recv(4096)
                if self._listener.fileno() in ready:
                    self._accept(poll)
                for descriptor in ready & self._sockets.keys():
                    self._read(descriptor)
                for descriptor in list(self._sockets):
                    self._write(descriptor, poll)
                self._changed.notify_all()
        for endpoint, _ in self._sockets.values():
            endpoint.close()

    def _accept(self, poll: select.poll) -> None:
        endpoint, _ = self._listener.accept()
        if self._tls is not None:
            try:
                endpoint = self._tls.wrap_socket(endpoint, server_side=True)
            except OSError:
                return
        peer = Peer(self.authority, self.tamper)
        self.peers.append(peer)
        self._sockets[endpoint.fileno()] = (endpoint, peer)
        poll.register(endpoint, select.POLLIN)

    def _read(self, descriptor: int) -> None:
        endpoint, peer = self._sockets[descriptor]
        try:
            data = endpoint.recv(1 << 20)
        except OSError:
            data = b""
        if data:
            peer.feed(data)
        else:
            peer.close()

    def _write(self, descriptor: int, poll: select.poll) -> None:
        endpoint, peer = self._sockets[descriptor]
        try:
            if outgoing := peer.outgoing():
                endpoint.sendall(outgoing)
        except OSError:
            peer.close()
        if peer.is_closed:
            poll.unregister(endpoint)
            del self._sockets[descriptor]
            endpoint.close()


@contextmanager
def serving(authority: Authority, tls: ssl.SSLContext | None = None) -> Generator[PeerServer]:
    """Serve an authority for the length of a test."""
    server = PeerServer(authority, tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
