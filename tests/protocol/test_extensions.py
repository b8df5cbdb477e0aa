"""Recovery cursor and owner epoch: offered, bound into both proofs, and judged after them."""

from typing import Any

import msgspec
import pytest

from protocol.envelope import OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from protocol.extensions import check_owner
from protocol.handshake import (
    Challenge,
    ClientOffer,
    client_answer,
    client_hello,
    read_hello,
    server_challenge,
    server_verify,
)
from tests.protocol.handshake_world import (
    BOOTSTRAP,
    KEY,
    LEASE,
    NOW,
    Change,
    changed,
    code_of,
    facts_of,
    signed_again,
)

OWNER = OwnerEpoch(owner_epoch=5, owner_id="a" * 32)
EXTENSIONS = (
    "recoveryCursorVersion",
    "recoveryAckedSourceSeq",
    "ownerEpochVersion",
    "ownerEpoch",
    "ownerId",
)


def challenged(offer: ClientOffer = LEASE, owner: OwnerEpoch | None = OWNER) -> Challenge:
    return server_challenge(read_hello(client_hello(offer)), facts_of(offer), KEY, "nonce", owner)


def payload_of(frame: bytes) -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.json.decode(frame)["payload"]
    return payload


@pytest.mark.parametrize("offer", [BOOTSTRAP, LEASE])
def test_both_extensions_are_in_the_challenge_and_both_ends_get_the_same_keys(
    offer: ClientOffer,
) -> None:
    challenge = challenged(offer)
    answer = client_answer(offer, KEY, challenge.frame, NOW)

    stated = payload_of(challenge.frame)
    assert [stated[name] for name in EXTENSIONS] == [1, 7, 1, 5, "a" * 32]
    assert all(name.encode() in challenge.text for name in EXTENSIONS)
    assert (answer.owner, challenge.recovery_cursor) == (OWNER, 7)
    assert server_verify(challenge, KEY, answer.response) == answer.keys


def test_hello_without_the_offers_gets_neither() -> None:
    hello = changed(
        client_hello(LEASE),
        lambda m: [
            m["payload"].pop(name) for name in ("recoveryCursorVersion", "ownerEpochVersion")
        ],
    )

    challenge = server_challenge(read_hello(hello), facts_of(LEASE), KEY, "nonce", OWNER)

    assert not set(EXTENSIONS) & set(payload_of(challenge.frame))
    assert challenge.recovery_cursor is None
    assert client_answer(LEASE, KEY, challenge.frame, NOW).owner is None


@pytest.mark.parametrize("name", EXTENSIONS)
def test_member_that_a_relay_takes_away_or_changes_breaks_the_challenge(name: str) -> None:
    frame = challenged().frame

    changes: tuple[Change, ...] = (
        lambda m: m["payload"].pop(name),
        lambda m: m["payload"].update({name: "b" * 32 if name == "ownerId" else 6}),
    )
    for change in changes:
        code = code_of(lambda: client_answer(LEASE, KEY, changed(frame, change), NOW))  # noqa: B023
        assert code in (ErrorCode.CHALLENGE_ALTERED, ErrorCode.PROOF_INVALID)


def test_member_that_a_relay_adds_breaks_the_proof() -> None:
    frame = challenged(owner=None).frame
    added = {"ownerEpochVersion": 1, "ownerEpoch": 9, "ownerId": "b"}

    code = code_of(
        lambda: client_answer(LEASE, KEY, changed(frame, lambda m: m["payload"].update(added)), NOW)
    )

    assert code is ErrorCode.PROOF_INVALID


@pytest.mark.parametrize(
    "members",
    [
        {"recoveryAckedSourceSeq": 6},
        {"recoveryAckedSourceSeq": 8},
        {"recoveryCursorVersion": 2},
        {"ownerEpochVersion": 2},
        {"ownerEpoch": 0},
        {"ownerEpoch": -1},
        {"ownerId": ""},
        {"ownerId": "x" * 65},
    ],
)
def test_signed_members_that_cannot_be_are_refused(members: dict[str, Any]) -> None:
    frame = signed_again(challenged().frame, lambda payload: payload.update(members))

    code = code_of(lambda: client_answer(LEASE, KEY, frame, NOW))

    assert code is ErrorCode.CHALLENGE_ALTERED


@pytest.mark.parametrize("resume", [None, 7, {}, {"ackedSourceSeq": "7"}, {"ackedSourceSeq": -1}])
def test_claim_that_is_no_cursor_is_no_claim(resume: object) -> None:
    hello = changed(client_hello(LEASE), lambda m: m["payload"].update(resume=resume))

    challenge = server_challenge(read_hello(hello), facts_of(LEASE), KEY, "nonce", OWNER)

    assert challenge.recovery_cursor is None
    assert "recoveryCursorVersion" not in payload_of(challenge.frame)


@pytest.mark.parametrize(
    ("obeyed", "owner", "is_obeyed"),
    [
        (None, None, True),
        (None, OWNER, True),
        (OWNER, OWNER, True),
        (OWNER, OwnerEpoch(owner_epoch=6, owner_id="b"), True),
        (OWNER, OwnerEpoch(owner_epoch=4, owner_id="a" * 32), False),
        (OWNER, OwnerEpoch(owner_epoch=5, owner_id="b"), False),
        (OWNER, None, False),
    ],
)
def test_earlier_start_or_another_of_the_same_number_is_not_obeyed(
    obeyed: OwnerEpoch | None, owner: OwnerEpoch | None, is_obeyed: bool
) -> None:
    offer = msgspec.structs.replace(BOOTSTRAP, obeyed_owner=obeyed)
    frame = challenged(offer, owner).frame

    if is_obeyed:
        check_owner(obeyed, owner)
        assert client_answer(offer, KEY, frame, NOW).owner == owner
        return
    with pytest.raises(PrpError) as refused:
        client_answer(offer, KEY, frame, NOW)
    assert refused.value.code is ErrorCode.OWNER_EPOCH_SUPERSEDED


def test_owner_is_judged_only_after_the_proof() -> None:
    offer = msgspec.structs.replace(BOOTSTRAP, obeyed_owner=OWNER)
    frame = challenged(offer, OwnerEpoch(owner_epoch=1, owner_id="c")).frame

    forged = changed(frame, lambda m: m["payload"].update(serverProof="0" * 64))

    assert code_of(lambda: client_answer(offer, KEY, forged, NOW)) is ErrorCode.PROOF_INVALID
