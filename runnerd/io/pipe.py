"""What lies between the carrier's bytes and the socket's: nothing, or TLS.

It decides how bytes are protected on the way. It refuses to own the socket, so that the same
pipe serves a blocking one and an event loop.
"""

from typing import Protocol


class Pipe(Protocol):
    """Bytes of the carrier on one side, bytes of the socket on the other."""

    def unwrap(self, data: bytes) -> bytes:
        """Take bytes from the socket and return what the carrier may see of them.

        Raises PrpError ``tls_refused`` if the peer cannot be trusted or breaks TLS.
        """
        ...

    def wrap(self, chunks: list[bytes]) -> list[bytes]:
        """Take the carrier's bytes and return what goes to the socket now."""
        ...


class PlainPipe:
    """No protection: `ws://` stays on this machine, and frames are sealed in any case."""

    def unwrap(self, data: bytes) -> bytes:
        return data

    def wrap(self, chunks: list[bytes]) -> list[bytes]:
        return chunks
