"""Proofs and session keys against upstream's."""

import json
from pathlib import Path
from typing import Any

import msgspec

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.canonical_json import canonical_bytes
from protocol.credentials import auth_key, credential_id
from protocol.envelope import AuthHello, Resume
from protocol.handshake import (
    Challenge,
    ClientOffer,
    CredentialFacts,
    SessionKeys,
    client_answer,
    client_proof,
    read_hello,
    server_challenge,
    server_proof,
    server_verify,
    session_keys,
)
from protocol.ids import Identity, LeaseId
from protocol.secrets import Secret
from protocol.secure_channel import Role, SecureChannel
from tests.vectors.conftest import load


def assert_keys(keys: SessionKeys, case: dict[str, Any]) -> None:
    assert keys.session_id == case["sessionId"]
    assert keys.core_to_client.reveal().hex() == case["coreToClientKeyHex"]
    assert keys.client_to_core.reveal().hex() == case["clientToCoreKeyHex"]


def test_proofs_and_keys_of_a_challenge_equal_upstream(handshake_case: dict[str, Any]) -> None:
    case = handshake_case
    key = auth_key(Secret(case["token"]))
    text = canonical_bytes(case["challenge"])

    assert text.decode() == case["canonicalChallenge"]
    assert server_proof(key, text) == case["serverProof"]
    assert client_proof(key, text, case["serverProof"]) == case["clientProof"]
    assert_keys(session_keys(key, text, case["serverProof"], case["clientProof"]), case)


def test_both_roles_reach_the_keys_of_upstream_when_no_extension_is_offered(
    prp_vectors: Path,
) -> None:
    plain = [
        case
        for case in load(prp_vectors, "handshake")["cases"]
        if "warmTransitionVersion" not in case["challenge"]
    ]

    assert plain
    for case in plain:
        run_both_roles(case)


def test_recorded_handshake_is_verified_by_the_controller(
    recorded_connection: dict[str, Any],
) -> None:
    sent = [frame["text"].encode() for frame in recorded_connection["frames"][:3]]
    key = auth_key(Secret(recorded_connection["credentialToken"]))
    payload = json.loads(sent[1])["payload"]
    proof = payload.pop("serverProof")

    hello = read_hello(sent[0])
    challenge = Challenge(
        frame=sent[1],
        text=canonical_bytes(payload),
        server_proof=proof,
        selected_version=payload["selectedVersion"],
        client_nonce=hello.client_nonce,
        server_nonce=payload["serverNonce"],
        credential_id=hello.credential_id,
    )
    keys = server_verify(challenge, key, sent[2])

    first = recorded_connection["frames"][3]
    channel = SecureChannel(keys, Role.CLIENT)
    assert channel.open(first["text"].encode()).decode() == first["plaintext"]


def run_both_roles(case: dict[str, Any]) -> None:
    stated = case["challenge"]
    identity = msgspec.convert(stated, type=Identity)
    token = Secret(case["token"])
    facts = CredentialFacts(
        kind=stated["credentialKind"],
        credential_id=credential_id(token),
        identity=identity,
        runner_version=stated["runnerVersion"],
        runner_digest=stated["runnerDigest"],
        expires_at_unix_ms=stated["credentialExpiresAtUnixMs"],
        revocation_epoch=stated["revocationEpoch"],
        lease_id=stated["credentialLeaseId"],
    )
    offer = ClientOffer(
        identity=identity,
        runner_version=facts.runner_version,
        runner_digest=facts.runner_digest,
        credential_kind=facts.kind,
        credential_id=facts.credential_id,
        client_nonce=stated["clientNonce"],
        resume=Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0),
        protocol_max=stated["selectedVersion"],
        lease_id=LeaseId(facts.lease_id) if facts.lease_id else None,
    )
    hello = AuthHello(
        credential_id=facts.credential_id,
        client_nonce=offer.client_nonce,
        protocol_min=1,
        protocol_max=offer.protocol_max,
        runner_version=facts.runner_version,
        runner_digest=facts.runner_digest,
        **msgspec.structs.asdict(identity),
    )
    before_expiry = Now(UnixMs(facts.expires_at_unix_ms - 1), MonoMs(0))

    challenge = server_challenge(hello, facts, auth_key(token), stated["serverNonce"])
    answer = client_answer(offer, auth_key(token), challenge.frame, before_expiry)

    assert challenge.text.decode() == case["canonicalChallenge"]
    assert challenge.server_proof == case["serverProof"]
    assert case["clientProof"].encode() in answer.response
    assert_keys(answer.keys, case)
    assert_keys(server_verify(challenge, auth_key(token), answer.response), case)
