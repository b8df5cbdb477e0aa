"""Fingerprints, result digests and a warm transition receipt against upstream's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.commands import (
    CommandResult,
    WireCommand,
    admit_command,
    admit_result,
    command_fingerprint,
    decode_command,
    result_digest,
)
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity
from protocol.warm_transition import read_receipt, warm_transition_receipt
from tests.vectors.conftest import load


@pytest.fixture(scope="module")
def commands(prp_vectors: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = load(prp_vectors, "commands")
    return loaded


def wire_command(value: Any) -> WireCommand:
    return decode_command(msgspec.json.encode(value))


def command_result(value: Any) -> CommandResult:
    return msgspec.json.decode(msgspec.json.encode(value), type=CommandResult)


def test_command_fingerprints_equal_upstream(commands: dict[str, Any]) -> None:
    for case in commands["fingerprints"]:
        command = wire_command(case["command"])

        assert command_fingerprint(command) == case["fingerprint"]
        assert command_fingerprint(wire_command_again(command)) == case["fingerprint"]


def wire_command_again(command: WireCommand) -> WireCommand:
    return decode_command(admit_command(command))


def test_command_fingerprint_changes_with_every_member(commands: dict[str, Any]) -> None:
    first = commands["fingerprints"][0]
    changes: list[dict[str, Any]] = [
        {"schema": "paperclip.prp.command.v2"},
        {"commandId": "cmd_2"},
        {"controllerSeq": 8},
        {"type": "session.snapshot"},
        {"issuedAt": "2026-01-02T03:04:05.679Z"},
        {"payload": {"a": None}},
        {"deadlineAt": "2026-01-02T03:04:05.678Z"},
        {"precondition": {"activeTurnId": "turn"}},
    ]

    prints = {
        command_fingerprint(wire_command(first["command"] | change)) for change in [{}, *changes]
    }

    assert len(prints) == len(changes) + 1


def test_result_digest_equals_upstream(commands: dict[str, Any]) -> None:
    for case in commands["resultDigests"]:
        body = admit_result(command_result(case["result"]))

        assert result_digest(body).hex() == case["digest"]
        assert result_digest(msgspec.json.encode(case["result"] | {"extra": 1})) == (
            result_digest(body)
        )


def receipt_of(warm: dict[str, Any]) -> bytes:
    lease = warm["lease"]
    receipt = warm_transition_receipt(
        identity=msgspec.convert(warm["identity"], Identity),
        command=wire_command(warm["command"]),
        result=command_result(warm["result"]),
        old_acked_source_seq=warm["oldAckedSourceSeq"],
        runner_version=warm["runnerVersion"],
        runner_digest=warm["runnerDigest"],
        lease_id=lease["leaseId"],
        lease_expires_at_unix_ms=lease["expiresAtUnixMs"],
        lease_revocation_epoch=lease["revocationEpoch"],
    )
    return msgspec.json.encode(receipt)


def test_warm_transition_receipt_equals_upstream(commands: dict[str, Any]) -> None:
    warm = commands["warmTransition"]

    assert msgspec.json.decode(receipt_of(warm)) == warm["receipt"]


def test_warm_transition_receipt_is_refused_when_any_member_was_changed(
    commands: dict[str, Any],
) -> None:
    receipt = commands["warmTransition"]["receipt"]
    assert msgspec.json.encode(read_receipt(msgspec.json.encode(receipt))) == receipt_of(
        commands["warmTransition"]
    )

    for name, value in receipt.items():
        changed = value + 1 if isinstance(value, int) else "changed"
        with pytest.raises(PrpError) as refusal:
            read_receipt(msgspec.json.encode(receipt | {name: changed}))
        assert refusal.value.code is ErrorCode.MESSAGE_INVALID
