"""The least of a runner's end of the wire: one blocking socket, no loop, no state.

It decides nothing. It refuses to be fast at anything but waiting for one answer, and imports
only what a handshake needs: a start is measured with it.
"""

import os
import socket
import time

import msgspec

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.carrier import ClientCarrier, TextReceived
from protocol.codec import decode_control, event_envelope
from protocol.credentials import auth_key, credential_id
from protocol.envelope import Ack, Binding, ProtocolVersion, Received, Resume, Welcome
from protocol.handshake import ClientOffer, client_answer, client_hello
from protocol.ids import Identity
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel

READ_BYTES = 65_536


class Offered(msgspec.Struct, frozen=True):
    """What a runner says of itself; a run's configuration holds it."""

    identity: Identity
    runner_version: str
    runner_digest: str


class Wire:
    """One blocking connection that has been upgraded."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._carrier = ClientCarrier(host, port, path, secure=False)
        self._texts: list[bytes] = []
        self.flush()
        while not self._carrier.is_open:
            self._read()

    def put(self, text: bytes) -> None:
        """Frame one text behind the others."""
        self._carrier.send_text(text)

    def flush(self) -> None:
        """Send what was put."""
        self._socket.sendall(b"".join(self._carrier.outgoing()))

    def send(self, text: bytes) -> None:
        """Send one text."""
        self.put(text)
        self.flush()

    def receive(self) -> bytes:
        """Wait for one text."""
        while not self._texts:
            self._read()
        return self._texts.pop(0)

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the controller ended the connection")
        self._texts += [
            event.data for event in self._carrier.feed(data) if isinstance(event, TextReceived)
        ]


class Session:
    """A welcomed connection."""

    def __init__(self, wire: Wire, offered: Offered, ticket: Secret) -> None:
        """Shake hands; the ticket is used up."""
        offer = ClientOffer(
            identity=offered.identity,
            runner_version=offered.runner_version,
            runner_digest=offered.runner_digest,
            credential_kind="bootstrap",
            credential_id=credential_id(ticket),
            client_nonce=os.urandom(32).hex(),
            resume=Resume(
                last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0
            ),
        )
        wire.send(client_hello(offer))
        now = Now(UnixMs(time.time_ns() // 1_000_000), MonoMs(0))
        answer = client_answer(offer, auth_key(ticket), wire.receive(), now)
        wire.send(answer.response)
        self._wire = wire
        self._identity = offered.identity
        self._version: ProtocolVersion = answer.selected_version
        self._channel = SecureChannel(answer.keys, Role.CLIENT)
        self._binding: Binding | None = None
        self._binding = self._welcomed()
        self._around = event_envelope(self._version, self._identity)

    def event_until_ack(self, body: bytes, source_seq: int) -> float:
        """Send one event, sealed and framed before, and return the seconds until its ACK."""
        before, after = self._around
        self._wire.put(self._channel.seal(before + body + after))
        start = time.perf_counter()
        self._wire.flush()
        while True:
            message = self._receive().message
            if isinstance(message, Ack) and message.acked_source_seq >= source_seq:
                return time.perf_counter() - start

    def _welcomed(self) -> Binding:
        received = self._receive()
        welcome = received.message
        assert isinstance(welcome, Welcome), "the codec lets nothing else be the first"
        return Binding(
            version=self._version,
            identity=self._identity,
            connection_id=received.connection_id,
            connection_lease_id=welcome.connection_lease_id,
        )

    def _receive(self) -> Received:
        return decode_control(
            self._channel.open(self._wire.receive()),
            version=self._version,
            identity=self._identity,
            connection=self._binding,
        )
