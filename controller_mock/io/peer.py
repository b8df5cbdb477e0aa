"""One peer of the controller, from its hello to its sealed session.

It decides how a text frame is read at each stage, and it alone holds the connection's keys.
It refuses to judge a proof or a message: frames become values, orders become frames.
"""

import enum
from typing import assert_never

import msgspec

from controller_mock.io.websocket import Connection, Hold
from protocol.codec import decode_runner, encode_control
from protocol.envelope import AuthHello, Binding, ControlMessage, RunnerMessage
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import SessionKeys, read_hello
from protocol.ids import RunId
from protocol.limits import CHALLENGE_TTL_MS, HANDSHAKE_STEP_TIMEOUT_MS
from protocol.secure_channel import Role, SecureChannel


class Stage(enum.Enum):
    """What the next frame of a peer must be."""

    HELLO = "hello"
    RESPONSE = "response"
    WAITING = "waiting"
    """The response is being judged; nothing can be read before its outcome."""
    SEALED = "sealed"


class ResponseFrame(msgspec.Struct, frozen=True):
    """The answer to a challenge, as received."""

    frame: bytes


Reading = AuthHello | ResponseFrame | RunnerMessage


class Peer:
    """What the shell keeps of one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.run_id: RunId | None = None
        """Set once the hello named a credential of that run."""
        self._stage = Stage.HELLO
        self._early: list[bytes] = []
        self._channel: SecureChannel | None = None
        self._binding: Binding | None = None

    @property
    def is_authenticated(self) -> bool:
        """True once a proof was accepted."""
        return self._stage is Stage.SEALED

    def read(self, text: bytes) -> Reading | None:
        """Return what a frame says at this stage; None if it must wait for the keys.

        Raises:
            PrpError: the frame does not open, decode or match; the connection must end.
        """
        match self._stage:
            case Stage.HELLO:
                hello = read_hello(text)
                self._stage = Stage.RESPONSE
                self.connection.expect_within(CHALLENGE_TTL_MS + HANDSHAKE_STEP_TIMEOUT_MS)
                return hello
            case Stage.RESPONSE:
                self._stage = Stage.WAITING
                self.connection.hold(Hold.HANDSHAKE)
                return ResponseFrame(text)
            case Stage.WAITING:
                # Bounded: reading is paused, so this is the rest of what was read already.
                self._early.append(text)
                return None
            case Stage.SEALED:
                return self._open(text)
            case _:
                assert_never(self._stage)

    def seal(self, keys: SessionKeys, binding: Binding) -> list[bytes]:
        """Start the sealed session and return the frames that came before its keys."""
        self._channel = SecureChannel(keys, Role.CORE)
        self._binding = binding
        self._stage = Stage.SEALED
        self.connection.release(Hold.HANDSHAKE)
        early, self._early = self._early, []
        return early

    def send_control(self, message: ControlMessage, envelope_id: str, sent_at: str) -> None:
        """Seal a message and put it behind the others.

        Raises:
            PrpError: FRAMES_EXHAUSTED once the key has sealed all it may (R21).
        """
        assert self._channel is not None, "a control message before the session"
        assert self._binding is not None, "a control message before the session"
        plaintext = encode_control(self._binding, message, envelope_id=envelope_id, sent_at=sent_at)
        self.connection.send_text(self._channel.seal(plaintext))

    def forget_keys(self) -> None:
        """Overwrite the keys; nothing can be opened or sealed any more."""
        if self._channel is not None:
            self._channel.wipe()

    def _open(self, text: bytes) -> RunnerMessage:
        assert self._channel is not None, "a sealed stage without keys"
        assert self._binding is not None, "a sealed stage without binding"
        if self._channel.is_exhausted:
            raise PrpError(ErrorCode.FRAMES_EXHAUSTED, "the session needs fresh keys")
        return decode_runner(self._channel.open(text), self._binding)
