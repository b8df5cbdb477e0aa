"""Sealed frames against upstream's, and every frame of the recorded sessions sealed again."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.canonical_json import canonical_bytes
from protocol.credentials import auth_key, credential_id
from protocol.handshake import SessionKeys, client_proof, server_proof, session_keys
from protocol.secrets import Secret
from protocol.secure_channel import (
    Direction,
    Role,
    SecureChannel,
    additional_data,
    frame_text,
    nonce,
)
from tests.vectors.conftest import load

DIRECTIONS = {
    "core_to_client": Direction.CORE_TO_CLIENT,
    "client_to_core": Direction.CLIENT_TO_CORE,
}
SEALING_ROLES = {"core_to_client": Role.CORE, "client_to_core": Role.CLIENT}


@pytest.fixture
def vector_keys(secure_frames_case: dict[str, Any], prp_vectors: Path) -> SessionKeys:
    (handshake,) = (
        case
        for case in load(prp_vectors, "handshake")["cases"]
        if case["name"] == secure_frames_case["handshake"]
    )
    return session_keys(
        auth_key(Secret(handshake["token"])),
        handshake["canonicalChallenge"].encode(),
        handshake["serverProof"],
        handshake["clientProof"],
    )


def test_nonce_additional_data_and_frame_equal_upstream(
    secure_frames_case: dict[str, Any], vector_keys: SessionKeys
) -> None:
    case = secure_frames_case
    direction, counter = DIRECTIONS[case["direction"]], case["counter"]
    key = (
        vector_keys.core_to_client
        if direction is Direction.CORE_TO_CLIENT
        else vector_keys.client_to_core
    )

    unique = nonce(direction, counter)
    data = additional_data(vector_keys.session_id, direction, counter)
    sealed = AESGCM(key.reveal()).encrypt(unique, case["plaintext"].encode(), data)

    assert unique.hex() == case["nonceHex"]
    assert data.hex() == case["aadHex"]
    assert json.loads(frame_text(counter, sealed)) == case["frame"]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("handshake", ["bootstrap_v2_warm", "bootstrap_v1_plain"])
def test_channel_seals_and_opens_the_frames_of_upstream_in_order(
    prp_vectors: Path, handshake: str, direction: str
) -> None:
    (stated,) = (
        case for case in load(prp_vectors, "handshake")["cases"] if case["name"] == handshake
    )
    frames = [
        case
        for case in load(prp_vectors, "secure_frames")["cases"]
        if (case["handshake"], case["direction"]) == (handshake, direction)
    ]
    key = auth_key(Secret(stated["token"]))
    proofs = (stated["canonicalChallenge"].encode(), stated["serverProof"], stated["clientProof"])
    sealing = SEALING_ROLES[direction]
    opening = Role.CORE if sealing is Role.CLIENT else Role.CLIENT
    sealer = SecureChannel(session_keys(key, *proofs), sealing)
    opener = SecureChannel(session_keys(key, *proofs), opening)

    in_order = [case for number, case in enumerate(frames) if case["counter"] == number]

    assert len(in_order) > 1
    for case in in_order:
        sealed = sealer.seal(case["plaintext"].encode())
        assert json.loads(sealed) == case["frame"]
        assert opener.open(json.dumps(case["frame"]).encode()).decode() == case["plaintext"]


def test_every_recorded_frame_is_opened_and_sealed_again_byte_for_byte(
    recorded_connection: dict[str, Any],
) -> None:
    frames = [frame for frame in recorded_connection["frames"] if "text" in frame]
    keys = recorded_keys(recorded_connection["credentialToken"], frames[:3])
    channels = {role: SecureChannel(keys, role) for role in Role}

    assert len(frames) > 3
    for frame in frames[3:]:
        sealing = SEALING_ROLES[frame["direction"]]
        (opening,) = set(Role) - {sealing}
        assert channels[opening].open(frame["text"].encode()).decode() == frame["plaintext"]
        sealed = channels[sealing].seal(frame["plaintext"].encode())
        assert spelled_like(frame["text"], sealed) == frame["text"]


def recorded_keys(token: str, first_frames: list[dict[str, Any]]) -> SessionKeys:
    """Derive the session's keys from the recorded handshake and check its proofs on the way."""
    hello, challenge, response = (json.loads(frame["text"])["payload"] for frame in first_frames)
    key = auth_key(Secret(token))
    proof = challenge.pop("serverProof")
    text = canonical_bytes(challenge)
    assert hello["credentialId"] == credential_id(Secret(token))
    assert proof == server_proof(key, text)
    assert response["clientProof"] == client_proof(key, text, proof)
    return session_keys(key, text, proof, response["clientProof"])


def spelled_like(recorded: str, sealed: bytes) -> str:
    """Return a frame of ours with its members in the order of the recorded sender."""
    members = json.loads(sealed)
    ordered = {name: members[name] for name in json.loads(recorded)}
    assert len(ordered) == len(members)
    return json.dumps(ordered, separators=(",", ":"))
