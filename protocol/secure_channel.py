"""Sealed frames of one session: AES-256-GCM with one counter per direction.

It decides which frame is the next genuine one. It refuses to know what a plaintext says
and what is done about a frame that is not genuine.
"""

import binascii
import enum
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.canonical_json import parse_strict
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import SessionKeys
from protocol.limits import FRAMES_PER_KEY_MAX, SEALED_PLAINTEXT_BYTES_MAX, TAG_BYTES

FRAME_SCHEMA: Final = "paperclip.runner.secure-frame.v1"

_HEAD: Final = b'{"schema":"%s","counter":%%d,"ciphertext":"' % FRAME_SCHEMA.encode()
_TAIL: Final = b'"}'
_NONCE: Final = struct.Struct(">4sQ")


class Role(enum.Enum):
    """The end of the session that a channel belongs to."""

    CLIENT = "client"
    """The runner."""
    CORE = "core"
    """The controller."""


class Direction(enum.Enum):
    """Who seals: its name in the additional data, and the first four bytes of its nonces."""

    CORE_TO_CLIENT = (b"core_to_client", b"P3S1")
    CLIENT_TO_CORE = (b"client_to_core", b"P3C1")

    @property
    def label(self) -> bytes:
        """The name that the additional data carries."""
        return self.value[0]

    @property
    def nonce_prefix(self) -> bytes:
        """The bytes that keep both directions' nonces apart."""
        return self.value[1]


def nonce(direction: Direction, counter: int) -> bytes:
    """Return the 12-byte nonce of a frame. Source: prp-wire 4."""
    return _NONCE.pack(direction.nonce_prefix, counter)


def additional_data(session_id: str, direction: Direction, counter: int) -> bytes:
    """Return what the tag covers besides the plaintext. Source: prp-wire 4."""
    return _additional_prefix(session_id, direction) + b"%d" % counter


def frame_text(counter: int, sealed: bytes) -> bytes:
    """Return the text of a frame around its ciphertext and tag."""
    return b"".join((_HEAD % counter, binascii.hexlify(sealed), _TAIL))


class SecureChannel:
    """Seals and opens the frames of one connection, each direction in strict order."""

    def __init__(
        self, keys: SessionKeys, role: Role, *, frames_max: int = FRAMES_PER_KEY_MAX
    ) -> None:
        self._keys = keys
        self._frames_max = frames_max
        outgoing, incoming = Direction.CLIENT_TO_CORE, Direction.CORE_TO_CLIENT
        seal_key, open_key = keys.client_to_core, keys.core_to_client
        if role is Role.CORE:
            outgoing, incoming = incoming, outgoing
            seal_key, open_key = open_key, seal_key
        self._sealer: AESGCM | None = AESGCM(seal_key.reveal())
        self._opener: AESGCM | None = AESGCM(open_key.reveal())
        self._seal_prefixes = (outgoing.nonce_prefix, _additional_prefix(keys.session_id, outgoing))
        self._open_prefixes = (incoming.nonce_prefix, _additional_prefix(keys.session_id, incoming))
        self._frames_sealed = 0
        self._frames_opened = 0

    @property
    def frames_sealed(self) -> int:
        """Frames sealed so far: the counter of the next one."""
        return self._frames_sealed

    @property
    def frames_opened(self) -> int:
        """Frames opened so far: the counter that the next one must have."""
        return self._frames_opened

    @property
    def is_exhausted(self) -> bool:
        """True when a key of this session may serve no further frame (R21): reconnect."""
        return max(self._frames_sealed, self._frames_opened) >= self._frames_max

    def seal(self, plaintext: bytes) -> bytes:
        """Return the text of the next outgoing frame; each call uses up one counter.

        Args:
            plaintext: JSON in UTF-8.

        Raises:
            PrpError: ``message_too_large`` above `SEALED_PLAINTEXT_BYTES_MAX`;
                ``frames_exhausted`` if the key has served its number of frames.
        """
        assert self._sealer is not None, "the channel was wiped"
        if len(plaintext) > SEALED_PLAINTEXT_BYTES_MAX:
            raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(plaintext)} bytes to seal")
        counter = self._frames_sealed
        if counter >= self._frames_max:
            raise PrpError(ErrorCode.FRAMES_EXHAUSTED, "sealing")
        nonce_prefix, additional_prefix = self._seal_prefixes
        sealed = self._sealer.encrypt(
            _NONCE.pack(nonce_prefix, counter), plaintext, additional_prefix + b"%d" % counter
        )
        self._frames_sealed = counter + 1
        return frame_text(counter, sealed)

    def open(self, frame: bytes) -> bytes:
        """Return the plaintext of the next incoming frame.

        Raises:
            PrpError: ``message_not_json`` or another ``message_*`` if the frame is not JSON
                that may stand on the wire; ``frame_malformed`` if it is no secure frame;
                ``frame_counter_mismatch`` for a replay, a gap or a reordered frame;
                ``frame_not_authentic`` if the tag does not fit; ``frames_exhausted``.
                Counters have not moved, and the connection is to be ended (R21).

        Source: prp-wire 4.
        """
        assert self._opener is not None, "the channel was wiped"
        counter = self._frames_opened
        if counter >= self._frames_max:
            raise PrpError(ErrorCode.FRAMES_EXHAUSTED, "opening")
        sealed = _sealed_bytes(frame, counter)
        nonce_prefix, additional_prefix = self._open_prefixes
        try:
            plaintext = self._opener.decrypt(
                _NONCE.pack(nonce_prefix, counter), sealed, additional_prefix + b"%d" % counter
            )
        except InvalidTag:
            raise PrpError(ErrorCode.FRAME_NOT_AUTHENTIC, f"frame {counter}") from None
        self._frames_opened = counter + 1
        return plaintext

    def wipe(self) -> None:
        """Overwrite the session's keys and let go of the ciphers; the channel is of no more use."""
        self._sealer = self._opener = None
        self._keys.core_to_client.wipe()
        self._keys.client_to_core.wipe()


def _additional_prefix(session_id: str, direction: Direction) -> bytes:
    return b"%s\0%s\0%s\0" % (FRAME_SCHEMA.encode(), session_id.encode(), direction.label)


def _sealed_bytes(frame: bytes, counter: int) -> bytes:
    """Return ciphertext and tag of a frame that claims to be number ``counter``."""
    head = _HEAD % counter
    if frame.startswith(head) and frame.endswith(_TAIL):
        # The spelling of our own frames and of upstream's controller needs no parser: between
        # head and tail only hex passes.
        text = frame[len(head) : -len(_TAIL)]
    else:
        text = _ciphertext_of(frame, counter)
    try:
        sealed = binascii.unhexlify(text)
    except ValueError:
        raise PrpError(ErrorCode.FRAME_MALFORMED, "the ciphertext is not hex") from None
    if len(sealed) < TAG_BYTES or binascii.hexlify(sealed) != text:
        raise PrpError(ErrorCode.FRAME_MALFORMED, "the ciphertext is short or not lower-case hex")
    return sealed


def _ciphertext_of(frame: bytes, counter: int) -> bytes:
    members = parse_strict(frame)
    if not isinstance(members, dict) or members.get("schema") != FRAME_SCHEMA:
        raise PrpError(ErrorCode.FRAME_MALFORMED, "not a secure frame")
    claimed, ciphertext = members.get("counter"), members.get("ciphertext")
    if not isinstance(claimed, int) or isinstance(claimed, bool) or not isinstance(ciphertext, str):
        raise PrpError(ErrorCode.FRAME_MALFORMED, "counter or ciphertext")
    if claimed != counter:
        raise PrpError(ErrorCode.FRAME_COUNTER_MISMATCH, f"{claimed} instead of {counter}")
    return ciphertext.encode()
