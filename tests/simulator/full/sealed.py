"""The wire as somebody reads it who knows the tokens: frames, proofs and plaintexts.

It decides which plaintext was sealed under which key and counter. It shares no code with the
product's carrier, handshake and channel, so that a mistake there is seen here.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SCHEMA: Final = b"paperclip.runner.secure-frame.v1"
TO_CLIENT: Final = (b"core_to_client", b"P3S1")
TO_CORE: Final = (b"client_to_core", b"P3C1")
HEAD_END: Final = b"\r\n\r\n"


class SealedFrame(msgspec.Struct):
    """The outer text of a sealed message."""

    counter: int
    ciphertext: str


class Plain(msgspec.Struct):
    """A message, as far as it is looked at; ``payload`` keeps its bytes."""

    kind: str
    payload: msgspec.Raw
    connection_id: str = msgspec.field(name="connectionId", default="")


_SEALED: Final = msgspec.json.Decoder(SealedFrame)
_PLAIN: Final = msgspec.json.Decoder(Plain)


def texts(data: bytes) -> Iterator[bytes]:
    """Yield the text messages in whole WebSocket frames."""
    place = 0
    while place + 2 <= len(data):
        opcode, size = data[place] & 15, data[place + 1] & 127
        masked = data[place + 1] & 128
        place += 2
        if size == 126:
            size, place = int.from_bytes(data[place : place + 2]), place + 2
        elif size == 127:
            size, place = int.from_bytes(data[place : place + 8]), place + 8
        mask = data[place : place + 4] if masked else b""
        place += len(mask)
        body = data[place : place + size]
        place += size
        if opcode == 1:
            yield _unmasked(body, mask) if mask else body


def frame(text: bytes, mask: bytes = b"") -> bytes:
    """Return one text message as a frame; with a mask, as a client sends it."""
    size = len(text)
    bit = 128 if mask else 0
    if size < 126:
        head = bytes((0x81, bit | size))
    elif size < 2**16:
        head = bytes((0x81, bit | 126)) + size.to_bytes(2)
    else:
        head = bytes((0x81, bit | 127)) + size.to_bytes(8)
    return head + mask + (_unmasked(text, mask) if mask else text)


def _unmasked(body: bytes, mask: bytes) -> bytes:
    size = len(body)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(body) ^ int.from_bytes(key)).to_bytes(size)


def plain(text: bytes) -> Plain:
    """Return a message that was decrypted, or one of the handshake."""
    return _PLAIN.decode(text)


# --- the arithmetic of prp-wire 2 and 3 -------------------------------------------------------


def _framed(domain: bytes, *parts: bytes) -> bytes:
    return domain + b"\0" + b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def digest(domain: bytes, *parts: bytes) -> bytes:
    return hashlib.sha256(_framed(domain, *parts)).digest()


def mac(key: bytes, domain: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, _framed(domain, *parts), hashlib.sha256).digest()


def credential_id(token: bytes) -> str:
    """Return the public name of a token's credential."""
    return "sha256:" + digest(b"paperclip-runner-credential-id-v1", token).hex()


class Keys:
    """What both ends derive from one proven handshake."""

    def __init__(self, token: bytes, challenge: bytes, client_proof: str) -> None:
        payload = json.loads(challenge)
        server_proof = payload.pop("serverProof").encode()
        # Every member is ASCII text, a small integer or null, so this is the canonical form.
        canonical = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
        key = digest(b"paperclip-runner-auth-key-v1", token)
        binding = digest(
            b"paperclip-runner-session-binding-v1", canonical, server_proof, client_proof.encode()
        )
        self.expected_proof = mac(
            key, b"paperclip-runner-client-proof-v1", canonical, server_proof
        ).hex()
        self.session_id = b"sha256:" + binding.hex().encode()
        self.key_bytes: dict[tuple[bytes, bytes], bytes] = {
            TO_CLIENT: mac(key, b"paperclip-runner-core-to-client-key-v1", binding),
            TO_CORE: mac(key, b"paperclip-runner-client-to-core-key-v1", binding),
        }
        self._ciphers = {direction: AESGCM(key) for direction, key in self.key_bytes.items()}

    def open(self, direction: tuple[bytes, bytes], text: bytes) -> tuple[int, bytes] | None:
        """Return counter and plaintext of a sealed text, None if it is not of this direction."""
        try:
            sealed = _SEALED.decode(text)
            return sealed.counter, self._decrypt(direction, direction, sealed)
        except (msgspec.MsgspecError, ValueError, InvalidTag):
            return None

    def opens_with_the_other_key(self, direction: tuple[bytes, bytes], text: bytes) -> bool:
        """Tell whether a sealed text of this direction uses the key of the opposite one."""
        other = TO_CORE if direction is TO_CLIENT else TO_CLIENT
        try:
            self._decrypt(direction, other, _SEALED.decode(text))
        except (msgspec.MsgspecError, ValueError, InvalidTag):
            return False
        return True

    def _decrypt(
        self, direction: tuple[bytes, bytes], keyed: tuple[bytes, bytes], sealed: SealedFrame
    ) -> bytes:
        label, prefix = direction
        extra = b"\0".join((SCHEMA, self.session_id, label, b"%d" % sealed.counter))
        nonce = prefix + struct.pack(">Q", sealed.counter)
        return self._ciphers[keyed].decrypt(nonce, bytes.fromhex(sealed.ciphertext), extra)
