"""Receipts of a warm transition and the authority that an attach hands over to."""

from typing import Any

import msgspec
import pytest

from protocol.commands import CommandResult, WireCommand, decode_command
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity, LeaseId, RevocationEpoch, SourceSeq
from protocol.warm_transition import (
    WarmTransitionReceipt,
    next_authority,
    read_receipt,
    warm_transition_receipt,
)
from tests.protocol.samples import COMMAND, IDENTITY, RESULT, without

NEXT: dict[str, Any] = msgspec.to_builtins(IDENTITY) | {"runId": "run_2", "turnId": "turn_2"}
CONNECTION = {"mode": "connect", "connectUrl": "ws://127.0.0.1:1/x"}


def attach(authority: Any) -> WireCommand:
    payload = {} if authority is None else {"paperclipNextAuthority": authority}
    return decode_command(msgspec.json.encode(COMMAND | {"type": "run.attach", "payload": payload}))


def receipt(command: WireCommand) -> WarmTransitionReceipt:
    return warm_transition_receipt(
        identity=IDENTITY,
        command=command,
        result=msgspec.json.decode(msgspec.json.encode(RESULT), type=CommandResult),
        old_acked_source_seq=SourceSeq(4),
        runner_version="1",
        runner_digest="sha256:" + "0" * 64,
        lease_id=LeaseId("lease_1"),
        lease_expires_at_unix_ms=5,
        lease_revocation_epoch=RevocationEpoch(0),
    )


def test_attach_without_an_authority_stays_in_its_run() -> None:
    assert next_authority(attach(None), IDENTITY) is None
    with pytest.raises(PrpError) as raised:
        receipt(attach(None))
    assert raised.value.code is ErrorCode.COMMAND_INVALID


def test_attach_hands_over_to_another_run_of_the_same_session() -> None:
    authority = next_authority(attach({"identity": NEXT, "connection": CONNECTION}), IDENTITY)

    assert authority is not None
    assert authority.identity == msgspec.convert(NEXT, Identity)
    assert msgspec.json.decode(authority.connection) == CONNECTION


@pytest.mark.parametrize(
    "authority",
    [
        5,
        {},
        {"identity": NEXT},
        {"connection": CONNECTION},
        {"identity": NEXT | {"runId": 5}, "connection": CONNECTION},
        {"identity": NEXT | {"runId": ""}, "connection": CONNECTION},
        {"identity": NEXT | {"turnId": "a b"}, "connection": CONNECTION},
        {"identity": NEXT | {"runId": "run_1"}, "connection": CONNECTION},
        {"identity": NEXT | {"runnerInstanceId": "runner_2"}, "connection": CONNECTION},
        {"identity": NEXT | {"environmentLeaseId": "envlease_2"}, "connection": CONNECTION},
        {"identity": NEXT | {"normalizedSessionId": "session_2"}, "connection": CONNECTION},
    ],
)
def test_attach_is_invalid_when_its_authority_is_none(authority: object) -> None:
    with pytest.raises(PrpError) as raised:
        next_authority(attach(authority), IDENTITY)

    assert raised.value.code is ErrorCode.COMMAND_INVALID


def test_receipt_survives_the_wire_in_any_spelling() -> None:
    made = receipt(attach({"identity": NEXT, "connection": CONNECTION}))
    body = msgspec.json.encode(made)
    value = msgspec.json.decode(body)

    assert read_receipt(body) == made
    spaced = msgspec.json.format(msgspec.json.encode(dict(reversed(value.items()))), indent=1)
    assert read_receipt(spaced).transition_id == made.transition_id
    for broken in (without(value, "leaseId"), value | {"novel": 1}, [value], None):
        with pytest.raises(PrpError) as raised:
            read_receipt(msgspec.json.encode(broken))
        assert raised.value.code is ErrorCode.MESSAGE_INVALID
