"""Each end proves the capability to the other, and nothing altered passes."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.credentials import auth_key
from protocol.envelope import ProtocolVersion
from protocol.errors import ErrorCode
from protocol.handshake import (
    ClientOffer,
    client_answer,
    client_hello,
    read_hello,
    server_challenge,
    server_verify,
)
from protocol.ids import Identity
from protocol.limits import NONCE_LENGTH_MAX
from protocol.secrets import Secret
from tests.protocol.handshake_world import (
    BOOTSTRAP,
    EXPIRY,
    IDENTITY,
    KEY,
    LEASE,
    NOW,
    Change,
    challenge_for,
    changed,
    code_of,
    facts_of,
    signed_again,
)


def answer_code(offer: ClientOffer, frame: bytes, now: Now = NOW) -> ErrorCode:
    return code_of(lambda: client_answer(offer, KEY, frame, now))


@pytest.mark.parametrize("offer", [BOOTSTRAP, LEASE])
@pytest.mark.parametrize("version", [1, 2])
def test_both_ends_reach_the_same_keys_at_the_selected_version(
    offer: ClientOffer, version: ProtocolVersion
) -> None:
    offer = msgspec.structs.replace(offer, protocol_max=version)
    challenge = challenge_for(offer, version)

    answer = client_answer(offer, KEY, challenge.frame, NOW)

    assert answer.selected_version == challenge.selected_version == version
    assert answer.credential_expires_at_unix_ms == EXPIRY
    assert answer.keys == server_verify(challenge, KEY, answer.response)
    assert answer.keys.core_to_client != answer.keys.client_to_core


def test_hello_says_what_the_offer_says() -> None:
    message = json.loads(client_hello(LEASE))

    assert message == {
        "protocol": "paperclip.runner",
        "version": 2,
        "kind": "auth_hello",
        "payload": {
            "credentialId": LEASE.credential_id,
            "credentialKind": "lease",
            "clientNonce": "5d" * 32,
            "protocolMin": 1,
            "protocolMax": 2,
            "runnerInstanceId": "runner_1",
            "environmentLeaseId": "envlease_1",
            "runId": "run_1",
            "normalizedSessionId": "session_1",
            "turnId": "turn_1",
            "itemId": "item_1",
            "runnerVersion": "1.2.3",
            "runnerDigest": "sha256:" + "ab" * 32,
            "resume": {
                "lastControllerCommandSeq": 3,
                "nextSourceEventSeq": 9,
                "ackedSourceSeq": 7,
            },
            "recoveryCursorVersion": 1,
            "ownerEpochVersion": 1,
        },
    }


def test_no_frame_holds_the_token_or_its_key() -> None:
    challenge = challenge_for(LEASE)
    answer = client_answer(LEASE, KEY, challenge.frame, NOW)

    for frame in (client_hello(LEASE), challenge.frame, answer.response):
        assert b"s3cret" not in frame
        assert KEY.reveal().hex().encode() not in frame


def test_lease_keeps_its_version_when_a_newer_one_is_offered() -> None:
    assert challenge_for(LEASE, version=1).selected_version == 1


# --- The runner's checks ------------------------------------------------------------------


@pytest.mark.parametrize(
    "member",
    [
        "credentialId",
        "credentialKind",
        "clientNonce",
        "runnerInstanceId",
        "environmentLeaseId",
        "runId",
        "normalizedSessionId",
        "turnId",
        "itemId",
        "runnerVersion",
        "runnerDigest",
        "credentialLeaseId",
    ],
)
@pytest.mark.parametrize("alter", [changed, signed_again])
def test_challenge_that_repeats_the_offer_wrongly_gets_no_answer(
    member: str, alter: Callable[..., bytes]
) -> None:
    def change(message: dict[str, Any]) -> None:
        message.get("payload", message)[member] = "other"

    frame = alter(challenge_for(LEASE).frame, change)

    assert answer_code(LEASE, frame) == ErrorCode.CHALLENGE_ALTERED


@pytest.mark.parametrize("nonce", ["", "n" * (NONCE_LENGTH_MAX + 1)])
def test_server_nonce_is_neither_empty_nor_long(nonce: str) -> None:
    frame = signed_again(challenge_for(LEASE).frame, lambda p: p.update(serverNonce=nonce))

    assert answer_code(LEASE, frame) == ErrorCode.CHALLENGE_ALTERED


def test_proof_of_another_capability_gets_no_answer() -> None:
    frame = challenge_for(LEASE).frame
    other = auth_key(Secret("lease_2"))

    assert code_of(lambda: client_answer(LEASE, other, frame, NOW)) == ErrorCode.PROOF_INVALID


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("serverNonce", "another"),
        ("credentialExpiresAt", "2030-01-01T00:00:00.000Z"),
        ("credentialExpiresAtUnixMs", EXPIRY + 1),
        ("revocationEpoch", 5),
        ("serverProof", "ab" * 32),
        ("serverProof", ""),
        ("serverProof", "é"),
    ],
)
def test_member_that_the_proof_does_not_cover_gets_no_answer(member: str, value: object) -> None:
    frame = changed(challenge_for(LEASE).frame, lambda m: m["payload"].update({member: value}))

    assert answer_code(LEASE, frame) == ErrorCode.PROOF_INVALID


def test_upper_case_proof_gets_no_answer() -> None:
    def shout(message: dict[str, Any]) -> None:
        message["payload"]["serverProof"] = message["payload"]["serverProof"].upper()

    assert answer_code(LEASE, changed(challenge_for(LEASE).frame, shout)) == ErrorCode.PROOF_INVALID


def test_unsigned_unknown_member_is_ignored_and_a_signed_one_is_not() -> None:
    frame = challenge_for(LEASE).frame

    client_answer(LEASE, KEY, changed(frame, lambda m: m["payload"].update(later=1)), NOW)

    signed = signed_again(frame, lambda payload: payload.update(later=1))
    assert answer_code(LEASE, signed) == ErrorCode.PROOF_INVALID


@pytest.mark.parametrize("selected", [0, 1, 3])
def test_version_that_was_not_offered_gets_no_answer(selected: int) -> None:
    offer = msgspec.structs.replace(BOOTSTRAP, protocol_min=2)
    frame = signed_again(challenge_for(offer).frame, lambda p: p.update(selectedVersion=selected))

    assert answer_code(offer, frame) == ErrorCode.CHALLENGE_ALTERED
    assert (
        answer_code(offer, changed(frame, lambda m: m.update(version=selected)))
        == ErrorCode.CHALLENGE_ALTERED
    )


@pytest.mark.parametrize("offer", [BOOTSTRAP, LEASE])
def test_expired_credential_gets_no_answer(offer: ClientOffer) -> None:
    late = Now(UnixMs(EXPIRY), MonoMs(0))

    assert answer_code(offer, challenge_for(offer).frame, late) == ErrorCode.CHALLENGE_STALE


@pytest.mark.parametrize(
    ("moved_ms", "renewal_outstanding", "is_answered"),
    [(0, False, True), (0, True, True), (1, True, True), (1, False, False), (-1, True, False)],
)
def test_lease_expiry_moves_only_forward_and_only_with_a_renewal_outstanding(
    moved_ms: int, renewal_outstanding: bool, is_answered: bool
) -> None:
    offer = msgspec.structs.replace(LEASE, renewal_outstanding=renewal_outstanding)
    frame = signed_again(
        challenge_for(offer).frame,
        lambda payload: payload.update(credentialExpiresAtUnixMs=EXPIRY + moved_ms),
    )
    early = Now(UnixMs(EXPIRY - 10), MonoMs(0))

    if is_answered:
        answer = client_answer(offer, KEY, frame, early)
        assert answer.credential_expires_at_unix_ms == EXPIRY + moved_ms
    else:
        assert answer_code(offer, frame, early) == ErrorCode.CHALLENGE_ALTERED


@pytest.mark.parametrize("epoch", [3, 5])
def test_other_revocation_epoch_of_a_lease_gets_no_answer(epoch: int) -> None:
    frame = signed_again(challenge_for(LEASE).frame, lambda p: p.update(revocationEpoch=epoch))

    assert answer_code(LEASE, frame) == ErrorCode.CHALLENGE_ALTERED


# --- The controller's checks ----------------------------------------------------------------


def hello_code(change: Change) -> ErrorCode:
    hello = changed(client_hello(LEASE), change)
    return code_of(
        lambda: server_challenge(read_hello(hello), facts_of(LEASE), KEY, "server nonce")
    )


@pytest.mark.parametrize("name", msgspec.structs.asdict(IDENTITY))
def test_hello_of_another_identity_is_refused(name: str) -> None:
    member = msgspec.structs.fields(Identity)[list(Identity.__struct_fields__).index(name)]

    code = hello_code(lambda m: m["payload"].update({member.encode_name: "other"}))

    assert code == ErrorCode.IDENTITY_MISMATCH


def test_hello_with_a_transition_that_nobody_began_is_refused() -> None:
    code = hello_code(lambda m: m["payload"].update(warmTransitionId="ab"))

    assert code == ErrorCode.IDENTITY_MISMATCH


@pytest.mark.parametrize("member", ["runnerVersion", "runnerDigest"])
def test_hello_of_another_artifact_is_refused(member: str) -> None:
    code = hello_code(lambda m: m["payload"].update({member: "other"}))

    assert code == ErrorCode.ARTIFACT_MISMATCH


@pytest.mark.parametrize(("low", "high"), [(3, 9), (2, 1), (0, 0), (1, 1)])
def test_hello_whose_range_lacks_the_version_of_the_lease_is_refused(low: int, high: int) -> None:
    code = hello_code(lambda m: m["payload"].update(protocolMin=low, protocolMax=high))

    assert code == ErrorCode.VERSION_RANGE_EMPTY


@pytest.mark.parametrize(
    "members",
    [
        {"credentialKind": "other"},
        {"warmTransitionVersion": 7},
        {"warmTransitionId": 7},
        {"warmTransitionVersion": 1, "recoveryCursorVersion": 2, "unknown": {}},
        {"recoveryCursorVersion": "1", "ownerEpochVersion": True},
        {"resume": None},
        {"clientNonce": ""},
    ],
)
def test_members_that_no_peer_checks_change_nothing(members: dict[str, Any]) -> None:
    hello = changed(client_hello(LEASE), lambda m: m["payload"].update(members))

    challenge = server_challenge(read_hello(hello), facts_of(LEASE), KEY, "server nonce")

    stated = json.loads(challenge.frame)["payload"]
    assert stated["credentialKind"] == "lease"
    assert not {"warmTransitionVersion", "ownerEpochVersion", "unknown"} & set(stated)
    offered = {**json.loads(hello)["payload"]}
    is_cursor_offered = offered["recoveryCursorVersion"] == 1 and offered["resume"] is not None
    assert ("recoveryCursorVersion" in stated) == is_cursor_offered


@pytest.mark.parametrize("version", [0, 3])
def test_hello_with_a_version_that_does_not_exist_is_refused(version: int) -> None:
    code = hello_code(lambda m: m.update(version=version))

    assert code == ErrorCode.PROTOCOL_VERSION_MISMATCH


def test_hello_with_an_endless_nonce_is_refused() -> None:
    code = hello_code(lambda m: m["payload"].update(clientNonce="n" * (NONCE_LENGTH_MAX + 1)))

    assert code == ErrorCode.MESSAGE_INVALID


def response_code(change: Change, key: Secret = KEY) -> ErrorCode:
    challenge = challenge_for(LEASE)
    answer = client_answer(LEASE, KEY, challenge.frame, NOW)
    return code_of(lambda: server_verify(challenge, key, changed(answer.response, change)))


@pytest.mark.parametrize("member", ["credentialId", "clientNonce", "serverNonce"])
def test_answer_to_another_challenge_is_refused(member: str) -> None:
    code = response_code(lambda m: m["payload"].update({member: "other"}))

    assert code == ErrorCode.CHALLENGE_ALTERED


def test_answer_at_another_version_is_refused() -> None:
    assert response_code(lambda m: m.update(version=1)) == ErrorCode.CHALLENGE_ALTERED


@pytest.mark.parametrize("proof", ["", "ab" * 32, "AB" * 32, "é"])
def test_wrong_client_proof_is_refused(proof: str) -> None:
    code = response_code(lambda m: m["payload"].update(clientProof=proof))

    assert code == ErrorCode.PROOF_INVALID


def test_upper_case_client_proof_is_refused() -> None:
    def shout(message: dict[str, Any]) -> None:
        message["payload"]["clientProof"] = message["payload"]["clientProof"].upper()

    assert response_code(shout) == ErrorCode.PROOF_INVALID


def test_client_proof_under_another_key_is_refused() -> None:
    assert response_code(lambda m: None, auth_key(Secret("x"))) == ErrorCode.PROOF_INVALID
