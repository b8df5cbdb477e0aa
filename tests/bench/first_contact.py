"""The least that a start in Python can be: imports, one blocking socket, the handshake, no state.

Run as ``first_contact.py HOST PORT PATH CONFIG``, the ticket in the runner's variable. It is
what `runnerd`'s start is held against, so it spares every import that `runnerd` spares. It
keeps the connection until its standard input ends. It is not for importing.
"""

import gc
import sys
from types import ModuleType

gc.disable()
# The WebSocket library asks it for a version, which costs a fifth of a start.
sys.modules["importlib.metadata"] = ModuleType("importlib.metadata")

import os  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402

import msgspec  # noqa: E402

from protocol.base.clock import MonoMs, Now, UnixMs  # noqa: E402
from protocol.carrier import ClientCarrier, TextReceived  # noqa: E402
from protocol.codec import decode_control  # noqa: E402
from protocol.credentials import auth_key, credential_id  # noqa: E402
from protocol.envelope import Resume  # noqa: E402
from protocol.handshake import ClientOffer, client_answer, client_hello  # noqa: E402
from protocol.ids import Identity  # noqa: E402
from protocol.secrets import Secret  # noqa: E402
from protocol.secure_channel import Role, SecureChannel  # noqa: E402

_TICKET = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"
_READ_BYTES = 65_536


class Offered(msgspec.Struct, frozen=True):
    """What the command line says of the runner."""

    identity: Identity
    runner_version: str
    runner_digest: str


def main(host: str, port: str, path: str, offered_json: str) -> None:
    """Shake hands once."""
    offered = msgspec.json.decode(offered_json, type=Offered)
    ticket = Secret(os.environ.pop(_TICKET))
    offer = ClientOffer(
        identity=offered.identity,
        runner_version=offered.runner_version,
        runner_digest=offered.runner_digest,
        credential_kind="bootstrap",
        credential_id=credential_id(ticket),
        client_nonce=os.urandom(32).hex(),
        resume=Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0),
    )
    wire = Wire(host, int(port), path)
    wire.send(client_hello(offer))
    now = Now(UnixMs(time.time_ns() // 1_000_000), MonoMs(0))
    answer = client_answer(offer, auth_key(ticket), wire.receive(), now)
    wire.send(answer.response)
    channel = SecureChannel(answer.keys, Role.CLIENT)
    decode_control(
        channel.open(wire.receive()),
        version=answer.selected_version,
        identity=offered.identity,
        connection=None,
    )


class Wire:
    """One blocking connection."""

    def __init__(self, host: str, port: int, path: str) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._carrier = ClientCarrier(host, port, path, secure=False)
        self._texts: list[bytes] = []
        self._flush()
        while not self._carrier.is_open:
            self._read()

    def send(self, text: bytes) -> None:
        """Send one text."""
        self._carrier.send_text(text)
        self._flush()

    def receive(self) -> bytes:
        """Wait for one text."""
        while not self._texts:
            self._read()
        return self._texts.pop(0)

    def _flush(self) -> None:
        self._socket.sendall(b"".join(self._carrier.outgoing()))

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise SystemExit("the controller ended the connection")
        self._texts += [
            event.data for event in self._carrier.feed(data) if isinstance(event, TextReceived)
        ]


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdin.read()
