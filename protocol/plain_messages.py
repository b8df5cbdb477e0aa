"""The three messages that cross the wire before a session has keys.

It decides their shape and spelling. It refuses to judge what they claim: that is
`handshake`.
"""

from typing import Final, TypeVar

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.envelope import PROTOCOL_NAME, AuthHello
from protocol.errors import ErrorCode, PrpError
from protocol.limits import HANDSHAKE_FRAME_BYTES_MAX

HELLO: Final = "auth_hello"
CHALLENGE: Final = "auth_challenge"
RESPONSE: Final = "auth_response"

PayloadT = TypeVar("PayloadT")


class ChallengePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Payload of `auth_challenge`; an extension's members are there if the hello offered it.

    Source: prp-wire 3.2 and 12, `extensions`.
    """

    credential_id: str
    credential_kind: str
    client_nonce: str
    server_nonce: str
    runner_instance_id: str
    environment_lease_id: str
    run_id: str
    normalized_session_id: str
    turn_id: str
    item_id: str
    runner_version: str
    runner_digest: str
    selected_version: int
    credential_lease_id: str | None
    credential_expires_at: str
    credential_expires_at_unix_ms: int
    revocation_epoch: int
    server_proof: str
    recovery_cursor_version: int | msgspec.UnsetType = msgspec.UNSET
    recovery_acked_source_seq: int | msgspec.UnsetType = msgspec.UNSET
    owner_epoch_version: int | msgspec.UnsetType = msgspec.UNSET
    owner_epoch: int | msgspec.UnsetType = msgspec.UNSET
    owner_id: str | msgspec.UnsetType = msgspec.UNSET


class ResponsePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Payload of `auth_response`. Source: prp-wire 3.3."""

    credential_id: str
    client_nonce: str
    server_nonce: str
    client_proof: str


class _HelloFrame(msgspec.Struct, frozen=True):
    payload: AuthHello


def challenge_text(challenge: ChallengePayload) -> bytes:
    """Return what both proofs cover: the challenge without its proof, as canonical JSON.

    Only the members known here count: one that a sender adds without signing it is
    ignored, and one that it signs breaks the proof.
    """
    members = msgspec.to_builtins(challenge)
    del members["serverProof"]
    return canonical_bytes(members)


def write_plain(kind: str, version: int, payload: msgspec.Struct) -> bytes:
    """Return the frame text of one message."""
    return msgspec.json.encode(
        {"protocol": PROTOCOL_NAME, "version": version, "kind": kind, "payload": payload}
    )


def read_plain(frame: bytes, kind: str, payload_type: type[PayloadT]) -> tuple[int, PayloadT]:
    """Read a message that must be of ``kind``; return its envelope's version and payload.

    Raises:
        PrpError: ``message_unexpected`` for another kind, else ``message_*`` for anything
            that is not such a message.
    """
    version, payload = _open(frame, kind)
    try:
        return version, msgspec.convert(payload, type=payload_type)
    except msgspec.ValidationError as error:
        raise PrpError(ErrorCode.MESSAGE_INVALID, str(error)) from None


def read_plain_hello(frame: bytes) -> tuple[int, AuthHello]:
    """Read a hello, whose undecoded members are kept as they were sent; errors as above."""
    version, _ = _open(frame, HELLO)
    try:
        return version, msgspec.json.decode(frame, type=_HelloFrame).payload
    except msgspec.DecodeError as error:
        raise PrpError(ErrorCode.MESSAGE_INVALID, str(error)) from None


def _open(frame: bytes, kind: str) -> tuple[int, JsonValue]:
    # The sender is not known yet, so it gets less of our time than a session's peer.
    if len(frame) > HANDSHAKE_FRAME_BYTES_MAX:
        raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(frame)} bytes instead of {kind}")
    message = parse_strict(frame)
    if not isinstance(message, dict) or message.get("protocol") != PROTOCOL_NAME:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "not a message of this protocol")
    if message.get("kind") != kind:
        raise PrpError(ErrorCode.MESSAGE_UNEXPECTED, f"instead of {kind}")
    version = message.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "version")
    return version, message.get("payload")
