"""One connection to the controller without its socket: bytes in, facts out, orders to bytes.

    CARRIER ──101──▶ CHALLENGE ──proof sent──▶ WELCOME ──welcome──▶ OPEN
        └──────────────┴──── any violation ─────┴──▶ failed: nothing comes out any more

It decides when a connection counts as authenticated and which message belongs to it. It
refuses to know sockets, event loops, clocks and what a message leads to.
"""

import enum
from collections.abc import Callable
from typing import Final

from msgspec import structs

from protocol.base.clock import Now
from protocol.carrier import ClientCarrier, Failed, Opened, PongReceived, TextReceived
from protocol.codec import decode_control, encode_pong, encode_renew, encode_result, event_envelope
from protocol.commands import CommandResult
from protocol.envelope import (
    PROTOCOL_MIN,
    Binding,
    LeaseRenew,
    OwnerEpoch,
    Pong,
    ProtocolVersion,
    Received,
    Welcome,
)
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import ClientOffer, client_answer, client_hello
from protocol.limits import FRAME_BYTES_MAX
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel
from runnerd.core.inputs import Connected, ControlReceived
from runnerd.io.pipe import Pipe


class Phase(enum.Enum):
    """What the link waits for; each step before `OPEN` has its own time limit."""

    CARRIER = "carrier"
    """The HTTP upgrade, and TLS below it."""
    CHALLENGE = "challenge"
    WELCOME = "welcome"
    OPEN = "open"


Fact = Connected | ControlReceived
Note = Callable[[ErrorCode, str], None]

_NO_ENVELOPE: Final = (b"", b"")


class Link:
    """Drives carrier, handshake, secure channel and codec of one connection."""

    def __init__(
        self,
        carrier: ClientCarrier,
        pipe: Pipe,
        offer: ClientOffer,
        auth_key: Secret,
        max_frame_bytes: int = FRAME_BYTES_MAX,
        note: Note | None = None,
    ) -> None:
        """Begin with the upgrade request waiting in `outgoing`.

        Args:
            auth_key: of the offered credential; the link wipes it when it needs it no more.
            max_frame_bytes: longest text that is taken from the peer. What is sent is bounded
                when it is sealed, by what every peer takes.
            note: is told why the peer was refused, in words that may quote it.
        """
        self._carrier = carrier
        self._max_frame_bytes = max_frame_bytes
        self._note = note
        self._pipe = pipe
        self._offer = offer
        self._auth_key = auth_key
        self._channel: SecureChannel | None = None
        self._version: ProtocolVersion = PROTOCOL_MIN
        self._binding: Binding | None = None
        self._owner: OwnerEpoch | None = None
        self._event_envelope = _NO_ENVELOPE
        self._proof_queued = False
        self.phase = Phase.CARRIER
        self.failure: ErrorCode | None = None
        """Why the link is of no more use; the socket is to be dropped without a close frame."""
        self.credential_spent = False
        """True once a bootstrap proof has left: the one-use ticket may be used up (R11)."""

    @property
    def binding(self) -> Binding | None:
        """What every message repeats; None before the welcome."""
        return self._binding

    # --- from the socket ------------------------------------------------------------------

    def receive(self, data: bytes, now: Now) -> list[Fact]:
        """Take bytes as they arrived, cut anywhere, and return what they say.

        A violation sets `failure`; what came before it in the same bytes is still returned.
        """
        facts: list[Fact] = []
        if self.failure is not None:
            return facts
        try:
            for event in self._carrier.feed(self._pipe.unwrap(data)):
                match event:
                    case TextReceived(data=text):
                        self._read_text(text, facts, now)
                    case Opened():
                        self._carrier.send_text(client_hello(self._offer))
                        self.phase = Phase.CHALLENGE
                    case PongReceived():
                        pass
                    case Failed(code=code):
                        self.fail(code)
        except PrpError as error:
            self.fail(error.code, error.message)
        return facts

    def end(self) -> None:
        """Take the end of the peer's bytes."""
        self.fail(ErrorCode.CONNECTION_LOST)

    def fail(self, code: ErrorCode, reason: str = "") -> None:
        """Make the link useless and wipe its keys; only the first reason counts."""
        if self.failure is not None:
            return
        self.failure = code
        if reason and self._note is not None:
            self._note(code, reason)
        self._auth_key.wipe()
        if self._channel is not None:
            self._channel.wipe()
            self._channel = None

    def _read_text(self, text: bytes, facts: list[Fact], now: Now) -> None:
        if len(text) > self._max_frame_bytes:
            raise PrpError(ErrorCode.FRAME_TOO_LARGE, f"a message of {len(text)} bytes")
        match self.phase:
            case Phase.CHALLENGE:
                self._answer(text, now)
            case Phase.WELCOME:
                facts.append(self._be_welcomed(self._open(text), now))
            case Phase.OPEN:
                received = self._open(text)
                facts.append(
                    ControlReceived(
                        connection_id=received.connection_id,
                        message=received.message,
                        sent_at_unix_ms=received.sent_at_unix_ms,
                    )
                )
            case Phase.CARRIER:
                raise PrpError(ErrorCode.MESSAGE_UNEXPECTED, "a message before the upgrade")

    def _answer(self, challenge: bytes, now: Now) -> None:
        answer = client_answer(self._offer, self._auth_key, challenge, now)
        self._channel = SecureChannel(answer.keys, Role.CLIENT)
        self._version = answer.selected_version
        self._owner = answer.owner
        self._carrier.send_text(answer.response)
        self._proof_queued = True
        self.phase = Phase.WELCOME

    def _open(self, text: bytes) -> Received:
        assert self._channel is not None, "the channel opens with the proof"
        plaintext = self._channel.open(text)
        return decode_control(
            plaintext,
            version=self._version,
            identity=self._offer.identity,
            connection=self._binding,
        )

    def _be_welcomed(self, received: Received, now: Now) -> Connected:
        welcome = received.message
        assert isinstance(welcome, Welcome), "the codec lets nothing else be the first"
        token = self._take_token(welcome)
        if welcome.connection_lease_expires_at_unix_ms <= now.unix_ms:
            raise PrpError(ErrorCode.CREDENTIAL_EXPIRED, "the welcome's lease is over")
        self._binding = Binding(
            version=self._version,
            identity=self._offer.identity,
            connection_id=received.connection_id,
            connection_lease_id=welcome.connection_lease_id,
        )
        self._event_envelope = event_envelope(self._binding.version, self._binding.identity)
        self._auth_key.wipe()
        self.credential_spent = False
        self.phase = Phase.OPEN
        return Connected(
            binding=self._binding,
            welcome=structs.replace(welcome, connection_lease_token=None),
            lease_token=token,
            sent_at_unix_ms=received.sent_at_unix_ms,
            owner=self._owner,
        )

    def _take_token(self, welcome: Welcome) -> Secret | None:
        token = welcome.connection_lease_token
        if self._offer.credential_kind == "bootstrap":
            if not token:
                raise PrpError(ErrorCode.MESSAGE_INVALID, "the welcome grants no lease")
            return Secret(token)
        if token is not None or welcome.connection_lease_id != self._offer.lease_id:
            raise PrpError(ErrorCode.MESSAGE_INVALID, "the welcome is for another lease")
        return None

    # --- to the socket --------------------------------------------------------------------

    def outgoing(self) -> list[bytes]:
        """Return the bytes to write now, in order; after a failure there are none."""
        if self.failure is not None:
            return []
        try:
            chunks = self._pipe.wrap(self._carrier.outgoing())
        except PrpError as error:
            self.fail(error.code, error.message)
            return []
        if self._proof_queued and chunks:
            self._proof_queued = False
            self.credential_spent = self._offer.credential_kind == "bootstrap"
        return chunks

    def send_event(self, body: bytes) -> None:
        """Queue an event; its bytes are the stored ones."""
        before, after = self._event_envelope
        self._send(b"".join((before, body, after)))

    def send_result(self, result: CommandResult) -> None:
        """Queue a command result."""
        if self._binding is not None:
            self._send(encode_result(self._binding.version, self._binding.identity, result))

    def send_renewal(self, renewal: LeaseRenew) -> None:
        """Queue a request for a later lease expiry."""
        if self._binding is not None:
            self._send(encode_renew(self._binding, renewal))

    def send_pong(self, pong: Pong) -> None:
        """Queue the answer to a ping."""
        if self._binding is not None:
            self._send(encode_pong(self._binding, pong))

    def ask_for_life(self) -> None:
        """Queue a WebSocket ping: any answer shows that the peer is there."""
        self._carrier.send_ping()

    def _send(self, plaintext: bytes) -> None:
        if self.failure is not None or self._channel is None:
            return
        try:
            text = self._channel.seal(plaintext)
            if self._channel.is_exhausted:
                raise PrpError(ErrorCode.FRAMES_EXHAUSTED, "the session needs fresh keys")
            self._carrier.send_text(text)
        except PrpError as error:
            self.fail(error.code, error.message)
