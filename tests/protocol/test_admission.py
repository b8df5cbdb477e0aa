"""What is stored surely reaches its receiver: sizes, depth and nodes at their limits."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from protocol.admission import IN_ENVELOPE, IN_WELCOME, Surroundings, admit
from protocol.canonical_json import JsonValue
from protocol.codec import decode_control, decode_runner, encode_control, event_envelope
from protocol.commands import WireCommand, admit_command
from protocol.envelope import Deliver, Welcome
from protocol.errors import ErrorCode, PrpError
from protocol.events import runner_event
from protocol.ids import CommandId, ControllerSeq, RevocationEpoch, SourceSeq
from protocol.limits import (
    BODY_BYTES_MAX,
    JSON_DEPTH_MAX,
    JSON_NODES_MAX,
    SEALED_PLAINTEXT_BYTES_MAX,
)
from tests.protocol.samples import BINDING, IDENTITY, NOW_TEXT


def admitted(body: bytes, around: Surroundings) -> ErrorCode | None:
    try:
        admit(body, around, too_large=ErrorCode.RESULT_TOO_LARGE, invalid=ErrorCode.MESSAGE_INVALID)
    except PrpError as error:
        return error.code
    return None


def test_body_is_returned_parsed() -> None:
    value = admit(
        b'{"a":[1,{}]}',
        IN_WELCOME,
        too_large=ErrorCode.COMMAND_TOO_LARGE,
        invalid=ErrorCode.COMMAND_INVALID,
    )

    assert value == {"a": [1, {}]}


@pytest.mark.parametrize("around", [IN_ENVELOPE, IN_WELCOME])
def test_body_is_judged_at_its_depth_and_among_its_neighbours(around: Surroundings) -> None:
    deepest = JSON_DEPTH_MAX + 1 - around.depth
    longest = JSON_NODES_MAX - around.nodes - 1

    assert admitted(b"[" * deepest + b"]" * deepest, around) is None
    deeper = b"[" * (deepest + 1) + b"]" * (deepest + 1)
    assert admitted(deeper, around) is ErrorCode.RESULT_TOO_LARGE
    assert admitted(b"[0" + b",0" * (longest - 1) + b"]", around) is None
    assert admitted(b"[0" + b",0" * longest + b"]", around) is ErrorCode.RESULT_TOO_LARGE


def test_body_is_judged_by_its_bytes() -> None:
    assert admitted(b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"', IN_ENVELOPE) is None
    longer = b'"' + b"x" * (BODY_BYTES_MAX - 1) + b'"'
    assert admitted(longer, IN_ENVELOPE) is ErrorCode.RESULT_TOO_LARGE


@pytest.mark.parametrize("body", [b'"\\ud800"', b'{"a":1,"a":2}', b"9007199254740992", b"nul"])
def test_body_that_the_receiver_refuses_is_invalid(body: bytes) -> None:
    assert admitted(body, IN_ENVELOPE) is ErrorCode.MESSAGE_INVALID


@pytest.mark.parametrize("around", [IN_ENVELOPE, IN_WELCOME])
def test_body_cannot_close_what_encloses_it(around: Surroundings) -> None:
    zeros = b"0," * (around.nodes - around.depth)

    for body in (b"1]", b"1],[1", b"1,1", b"", b"1],[" + zeros + b"1", b"1]],[[" + zeros + b"1"):
        assert admitted(body, around) is ErrorCode.MESSAGE_INVALID


def largest(fits: Callable[[int], bool]) -> int:
    """The largest size that fits, found by halving."""
    low, high = 1, 1 << 20
    while low + 1 < high:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def event_body(payload: dict[str, JsonValue]) -> bytes | None:
    try:
        return runner_event(
            IDENTITY,
            source_seq=SourceSeq(1),
            event_type="item.delta",
            priority=2,
            payload=payload,
            emitted_at=NOW_TEXT,
        )
    except PrpError as error:
        if error.code is not ErrorCode.EVENT_TOO_LARGE:
            raise
        return None


def nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    return value


PAYLOADS: Final[tuple[Callable[[int], dict[str, JsonValue]], ...]] = (
    lambda size: {"text": "é" * size},
    lambda size: {"list": [0 for _ in range(size)]},
    lambda size: {"deep": nested(min(size, 200))},
)
"""Payloads that grow in bytes, in nodes and in depth."""


@pytest.mark.parametrize("payload", PAYLOADS)
def test_largest_event_that_is_admitted_is_taken_by_the_controller(
    payload: Callable[[int], dict[str, JsonValue]],
) -> None:
    before, after = event_envelope(2, IDENTITY)

    body = event_body(payload(largest(lambda size: event_body(payload(size)) is not None)))

    assert body is not None
    assert len(before + body + after) <= SEALED_PLAINTEXT_BYTES_MAX
    decode_runner(before + body + after, BINDING)


def command_of(payload: object) -> WireCommand:
    return WireCommand(
        schema="paperclip.prp.command.v1",
        command_id=CommandId("c" * 160),
        controller_seq=ControllerSeq(1),
        type="turn.start",
        issued_at=NOW_TEXT,
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def is_admitted(command: WireCommand) -> bool:
    try:
        admit_command(command)
    except PrpError as error:
        if error.code is not ErrorCode.COMMAND_TOO_LARGE:
            raise
        return False
    return True


@pytest.mark.parametrize("payload", PAYLOADS)
def test_largest_command_that_is_admitted_is_taken_from_a_complete_welcome(
    payload: Callable[[int], dict[str, JsonValue]],
) -> None:
    command = command_of(payload(largest(lambda size: is_admitted(command_of(payload(size))))))
    welcome = Welcome(
        selected_version=2,
        connection_lease_id=BINDING.connection_lease_id,
        connection_lease_expires_at_unix_ms=2**53 - 1,
        connection_lease_revocation_epoch=RevocationEpoch(0),
        connection_lease_token="lease_" + "t" * 200,
        connection_lease_expires_at=NOW_TEXT,
        connection_lease_renewal_version=1,
        heartbeat_interval_ms=250,
        lease_binding=msgspec.Raw(msgspec.json.encode(IDENTITY)),
        max_frame_bytes=1 << 20,
        max_batch_events=100,
        acked_source_seq=SourceSeq(2**53 - 1),
        pending_commands=(command,),
    )

    for message, connection in ((welcome, None), (Deliver(command), BINDING)):
        plaintext = encode_control(BINDING, message, envelope_id="e" * 240, sent_at=NOW_TEXT)

        assert len(plaintext) <= SEALED_PLAINTEXT_BYTES_MAX
        received = decode_control(
            plaintext, version=2, identity=IDENTITY, connection=connection
        ).message
        assert received == message
