"""A relay between a real runner and its controller: it can be slow, silent, or stop reading.

It decides how bytes move. It refuses to read them.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field

from tests.runnerd.peer import PATH

CHUNK = 65_536


@dataclass
class Flow:
    """One direction of every connection: how its bytes move."""

    piece_bytes: int = CHUNK
    """At most so many bytes in one segment."""
    delay_s: float = 0.0
    is_swallowed: bool = False
    """What comes is read and never handed on."""
    is_stopped: bool = False
    """Nothing is read any more, so that the sender's socket fills up."""
    seen_bytes: int = 0


@dataclass
class Relay:
    """Listens beside a controller and hands on what a runner says, and back."""

    port: int
    up: Flow = field(default_factory=Flow)
    down: Flow = field(default_factory=Flow)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Where a runner dials."""
        return f"ws://127.0.0.1:{self._listener.getsockname()[1]}{PATH}"

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over:
            ready, _, _ = select.select([self._listener], [], [], 0.1)
            if not ready:
                continue
            runner, _ = self._listener.accept()
            controller = socket.create_connection(("127.0.0.1", self.port))
            self._ends += (runner, controller)
            for end in (runner, controller):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            up, down = self.up, self.down
            self._start(self._carry, runner, controller, up)
            self._start(self._carry, controller, runner, down)

    def _carry(self, source: socket.socket, target: socket.socket, flow: Flow) -> None:
        with contextlib.suppress(OSError):
            while not self._is_over:
                ready, _, _ = select.select([source], [], [], 0.05)
                if not ready or flow.is_stopped:
                    continue
                data = source.recv(CHUNK)
                if not data:
                    break
                flow.seen_bytes += len(data)
                if flow.is_swallowed:
                    continue
                if flow.delay_s:
                    # This slowness is what is under test; nobody waits for it to pass.
                    time.sleep(flow.delay_s)
                for at in range(0, len(data), flow.piece_bytes):
                    target.sendall(data[at : at + flow.piece_bytes])
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Let connections that begin from now on be good ones."""
        self.up, self.down = Flow(), Flow()

    def close(self) -> None:
        """End everything."""
        self._is_over = True
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


@contextlib.contextmanager
def relaying(port: int) -> Generator[Relay]:
    """Relay for the length of a test."""
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()
