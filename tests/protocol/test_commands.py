"""Which commands may be executed, which two are the same, and what a result may say."""

from typing import Any

import msgspec
import pytest

from protocol.commands import (
    COMMAND_TYPES_V1,
    COMMAND_TYPES_V2_ONLY,
    CommandResult,
    admit_command,
    admit_result,
    command_fingerprint,
    decode_command,
    result_digest,
    validate_command,
)
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CommandId, ControllerSeq
from protocol.limits import RESULT_BYTES_MAX
from tests.protocol.samples import COMMAND, RESULT, without

V1 = "paperclip.prp.command.v1"
V2 = "paperclip.prp.command.v2"


def decoded(**changes: Any) -> Any:
    return decode_command(msgspec.json.encode(COMMAND | changes))


def refusal(value: object) -> ErrorCode:
    with pytest.raises(PrpError) as raised:
        decode_command(msgspec.json.encode(value))
    return raised.value.code


def test_every_type_is_taken_with_its_schemas() -> None:
    assert len(COMMAND_TYPES_V1) == 18
    for name in COMMAND_TYPES_V1:
        for schema in (V1, V2):
            validate_command(decoded(type=name, schema=schema))
    for name in COMMAND_TYPES_V2_ONLY:
        validate_command(decoded(type=name, schema=V2))
        assert refusal(COMMAND | {"type": name, "schema": V1}) is ErrorCode.COMMAND_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "paperclip.prp.command.v3"},
        {"schema": ""},
        {"type": "run.away"},
        {"type": ""},
        {"commandId": ""},
        {"commandId": "x" * 161},
        {"commandId": "a\nb"},
        {"commandId": "a\x00"},
        {"commandId": "a\x7f"},
        {"commandId": "a\x85"},
        {"controllerSeq": 0},
        {"controllerSeq": -1},
        {"controllerSeq": 1.0},
        {"controllerSeq": "1"},
        {"controllerSeq": True},
        {"controllerSeq": 2**53},
        {"issuedAt": ""},
        {"issuedAt": "x" * 65},
        {"issuedAt": "é" * 33},
        {"payload": []},
        {"payload": None},
        {"payload": "{}"},
        {"deadlineAt": 5},
        {"precondition": []},
        {"precondition": {"runState": "ready"}},
    ],
)
def test_command_is_invalid_when_a_member_is_wrong(change: dict[str, Any]) -> None:
    assert refusal(COMMAND | change) is ErrorCode.COMMAND_INVALID


def test_command_is_invalid_when_a_member_is_missing() -> None:
    for name in COMMAND:
        assert refusal(without(COMMAND, name)) is ErrorCode.COMMAND_INVALID


def test_command_is_taken_at_its_limits() -> None:
    assert decoded(commandId="é" * 160, issuedAt="é" * 32, controllerSeq=2**53 - 1)
    assert decoded(commandId="any text / with spaces \u2028 😀")
    assert decoded(deadlineAt=None, precondition=None, novel=[1])
    assert decoded(precondition={"runState": [], "activeTurnId": None, "novel": 1})


def test_fingerprint_is_that_of_the_content_whatever_the_spelling() -> None:
    spaced = msgspec.json.format(msgspec.json.encode(dict(reversed(COMMAND.items()))), indent=2)
    same = decoded(payload={"b": 1.0, "a": None})

    assert command_fingerprint(decode_command(spaced)) == command_fingerprint(decoded())
    assert command_fingerprint(decoded(deadlineAt=None, novel=1)) == command_fingerprint(decoded())
    assert command_fingerprint(same) == command_fingerprint(decoded(payload={"a": None, "b": 1}))
    assert command_fingerprint(same) != command_fingerprint(decoded(payload={"b": 1}))


def test_admitted_command_is_what_its_runner_decodes() -> None:
    command = decoded(payload={"text": "é"}, precondition={"runState": ["ready"]})

    assert decode_command(admit_command(command)) == command


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"[]", ErrorCode.COMMAND_INVALID),
        (b'{"a":1,"a":2}', ErrorCode.COMMAND_INVALID),
        (b'{"a":NaN}', ErrorCode.COMMAND_INVALID),
        (b'{"a":', ErrorCode.COMMAND_INVALID),
        (b'{"a":"' + b"x" * 600_000 + b'"}', ErrorCode.COMMAND_TOO_LARGE),
        (b'{"a":' + b"[" * 62 + b"]" * 62 + b"}", ErrorCode.COMMAND_TOO_LARGE),
        (b'{"a":[0' + b",0" * 10_000 + b"]}", ErrorCode.COMMAND_TOO_LARGE),
    ],
)
def test_command_is_not_queued_when_its_runner_would_refuse_it(
    payload: bytes, code: ErrorCode
) -> None:
    command = msgspec.structs.replace(decoded(), payload=msgspec.Raw(payload))

    with pytest.raises(PrpError) as raised:
        admit_command(command)

    assert raised.value.code is code


def result_of(result: bytes) -> CommandResult:
    return CommandResult(
        command_id=CommandId("cmd_1"),
        command_type="turn.start",
        controller_seq=ControllerSeq(1),
        status="completed",
        result=msgspec.Raw(result),
    )


def test_admitted_result_has_its_five_members_in_a_fixed_order() -> None:
    assert admit_result(result_of(b'{"status":"accepted"}')) == msgspec.json.encode(RESULT)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (b"[]", ErrorCode.MESSAGE_INVALID),
        (b"null", ErrorCode.MESSAGE_INVALID),
        (b'{"a":1,"a":2}', ErrorCode.MESSAGE_INVALID),
        (b'{"a":"\\ud800"}', ErrorCode.MESSAGE_INVALID),
        (b'{"a":"' + b"x" * RESULT_BYTES_MAX + b'"}', ErrorCode.RESULT_TOO_LARGE),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", ErrorCode.RESULT_TOO_LARGE),
    ],
)
def test_result_is_not_stored_when_its_controller_would_refuse_it(
    result: bytes, code: ErrorCode
) -> None:
    with pytest.raises(PrpError) as raised:
        admit_result(result_of(result))

    assert raised.value.code is code


def test_result_digest_covers_each_of_the_five_members() -> None:
    others: list[dict[str, Any]] = [
        {"commandId": "cmd_2"},
        {"commandType": "turn.stop"},
        {"controllerSeq": 2},
        {"status": "failed"},
        {"result": {}},
    ]

    digests = {result_digest(msgspec.json.encode(RESULT | other)) for other in [{}, *others]}

    assert len(digests) == len(others) + 1
    assert all(len(digest) == 32 for digest in digests)


@pytest.mark.parametrize("body", [b"[]", b"5", b'{"commandId":"x"}', b"{"])
def test_result_digest_is_refused_when_the_body_is_no_result(body: bytes) -> None:
    with pytest.raises(PrpError) as raised:
        result_digest(body)

    assert raised.value.code in (ErrorCode.MESSAGE_INVALID, ErrorCode.MESSAGE_NOT_JSON)
