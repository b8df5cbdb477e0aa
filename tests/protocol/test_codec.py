"""What each side takes from the other and what it refuses with which code."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from protocol.base.clock import UnixMs
from protocol.canonical_json import canonical_bytes
from protocol.codec import decode_control, decode_runner, encode_control, event_envelope
from protocol.commands import CommandResult
from protocol.envelope import (
    Ack,
    Deliver,
    EventMessage,
    LeaseRenew,
    Ping,
    Pong,
    Received,
    ResultMessage,
    Revoke,
    WarmTransitionActivated,
    Welcome,
)
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RevocationEpoch, SourceSeq
from tests.protocol.samples import (
    BINDING,
    COMMAND,
    CONTROL_PAYLOADS,
    EVENT,
    IDENTITY,
    RESULT,
    RUNNER_PAYLOADS,
    WELCOME,
    envelope,
    plaintext,
    without,
)

SIX_IDS = tuple(msgspec.to_builtins(IDENTITY))


def control(data: bytes) -> Received:
    return decode_control(data, version=2, identity=IDENTITY, connection=BINDING)


def first_control(data: bytes) -> Received:
    return decode_control(data, version=2, identity=IDENTITY, connection=None)


def runner(data: bytes) -> object:
    return decode_runner(data, BINDING)


def refusal(decode: Callable[[bytes], object], data: bytes) -> ErrorCode:
    with pytest.raises(PrpError) as raised:
        decode(data)
    return raised.value.code


# --- The runner's side ------------------------------------------------------------------------


def test_welcome_names_the_connection_and_carries_its_pending_command() -> None:
    received = first_control(plaintext("welcome", WELCOME))

    assert isinstance(received.message, Welcome)
    assert received.connection_id == "connection_1"
    assert received.sent_at_unix_ms == UnixMs(1_767_323_045_678)
    assert [command.command_id for command in received.message.pending_commands] == ["cmd_1"]
    assert received.message.acked_source_seq is None


def test_welcome_hides_its_token_when_it_is_printed() -> None:
    data = plaintext("welcome", WELCOME | {"connectionLeaseToken": "lease_secret"})

    received = first_control(data)

    assert isinstance(received.message, Welcome)
    assert received.message.connection_lease_token == "lease_secret"
    assert "lease_secret" not in f"{received!r} {received.message!s} {received.message}"


@pytest.mark.parametrize("kind", CONTROL_PAYLOADS)
def test_runner_takes_every_kind_of_control_message(kind: str) -> None:
    received = control(plaintext(kind, CONTROL_PAYLOADS[kind]))

    again = encode_control(BINDING, received.message, envelope_id="e", sent_at="s")
    assert msgspec.json.decode(again) == envelope(
        kind, CONTROL_PAYLOADS[kind], envelopeId="e", sentAt="s"
    )


def test_runner_takes_a_message_that_names_neither_its_envelope_nor_its_time() -> None:
    data = msgspec.json.encode(without(envelope("ack", {"ackedSourceSeq": 4}), "sentAt"))

    assert control(data) == Received(Ack(SourceSeq(4)), BINDING.connection_id, None)


def test_runner_ignores_members_that_it_does_not_know() -> None:
    assert control(plaintext("revoke", {"revocationEpoch": 3, "x": 1}, y=2)).message == (
        Revoke(RevocationEpoch(3))
    )
    assert control(plaintext("ping", [1, None])).message == Ping()
    command = control(plaintext("command", COMMAND | {"novel": {}})).message
    assert isinstance(command, Deliver)
    assert bytes(command.command.payload) == b'{"text":"go"}'


@pytest.mark.parametrize("name", [*SIX_IDS, "connectionId", "connectionLeaseId"])
def test_runner_refuses_an_envelope_of_another_authority(name: str) -> None:
    ack = envelope("ack", {"ackedSourceSeq": 1})

    for broken in (ack | {name: "other"}, ack | {name: None}, without(ack, name)):
        code = refusal(control, msgspec.json.encode(broken))
        expected = {ErrorCode.IDENTITY_MISMATCH}
        if name == "connectionId":
            expected.add(ErrorCode.MESSAGE_INVALID)
        assert code in expected


@pytest.mark.parametrize("version", [1, 3, 2.0, "2", True, None])
def test_both_sides_refuse_another_version(version: object) -> None:
    for decode, kind, payloads in (
        (control, "ack", CONTROL_PAYLOADS),
        (runner, "pong", RUNNER_PAYLOADS),
    ):
        data = plaintext(kind, payloads[kind], version=version)
        assert refusal(decode, data) is ErrorCode.PROTOCOL_VERSION_MISMATCH


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"protocol": "other"}, ErrorCode.MESSAGE_INVALID),
        ({"protocol": None}, ErrorCode.MESSAGE_INVALID),
        ({"kind": None}, ErrorCode.MESSAGE_INVALID),
        ({"kind": 5}, ErrorCode.MESSAGE_INVALID),
        ({"kind": "auth_hello"}, ErrorCode.MESSAGE_UNKNOWN_KIND),
        ({"kind": ""}, ErrorCode.MESSAGE_UNKNOWN_KIND),
    ],
)
def test_both_sides_refuse_what_is_no_message_to_them(
    change: dict[str, Any], code: ErrorCode
) -> None:
    data = msgspec.json.encode(envelope("any", {}) | change)

    assert refusal(control, data) is code
    assert refusal(runner, data) is code


def test_each_side_refuses_the_messages_that_it_sends_itself() -> None:
    for kind, payload in CONTROL_PAYLOADS.items():
        assert refusal(runner, plaintext(kind, payload)) is ErrorCode.MESSAGE_UNKNOWN_KIND
    for kind, payload in RUNNER_PAYLOADS.items():
        assert refusal(control, plaintext(kind, payload)) is ErrorCode.MESSAGE_UNKNOWN_KIND


def test_welcome_is_taken_once_and_first() -> None:
    assert refusal(control, plaintext("welcome", WELCOME)) is ErrorCode.MESSAGE_UNEXPECTED
    for kind, payload in CONTROL_PAYLOADS.items():
        assert refusal(first_control, plaintext(kind, payload)) is ErrorCode.MESSAGE_UNEXPECTED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"selectedVersion": 1}, ErrorCode.PROTOCOL_VERSION_MISMATCH),
        ({"connectionLeaseId": "lease_2"}, ErrorCode.IDENTITY_MISMATCH),
        ({"connectionLeaseExpiresAtUnixMs": "soon"}, ErrorCode.MESSAGE_INVALID),
        ({"connectionLeaseExpiresAtUnixMs": -1}, ErrorCode.MESSAGE_INVALID),
        ({"connectionLeaseToken": 5}, ErrorCode.MESSAGE_INVALID),
        ({"ackedSourceSeq": -1}, ErrorCode.MESSAGE_INVALID),
        ({"pendingCommands": {}}, ErrorCode.MESSAGE_INVALID),
        ({"pendingCommands": [COMMAND | {"type": "run.away"}]}, ErrorCode.COMMAND_INVALID),
        ({"pendingCommands": [5]}, ErrorCode.COMMAND_INVALID),
    ],
)
def test_welcome_is_refused_when_a_member_is_wrong(change: dict[str, Any], code: ErrorCode) -> None:
    assert refusal(first_control, plaintext("welcome", WELCOME | change)) is code


def test_welcome_is_refused_when_it_names_no_connection() -> None:
    for name in ("", "x" * 241, None, 7):
        data = plaintext("welcome", WELCOME, connectionId=name)
        assert refusal(first_control, data) is ErrorCode.MESSAGE_INVALID


@pytest.mark.parametrize("kind", [kind for kind in CONTROL_PAYLOADS if kind != "ping"])
def test_control_message_is_refused_when_a_member_is_missing_or_of_another_type(kind: str) -> None:
    payload = CONTROL_PAYLOADS[kind]
    code = ErrorCode.COMMAND_INVALID if kind == "command" else ErrorCode.MESSAGE_INVALID

    for name in payload:
        assert refusal(control, plaintext(kind, without(payload, name))) is code
        assert refusal(control, plaintext(kind, payload | {name: [1]})) is code
        assert refusal(control, plaintext(kind, payload | {name: None})) is code
    others: list[Any] = [None, [], "x", 1.5]
    for other in others:
        assert refusal(control, plaintext(kind, other)) is code
    assert refusal(control, msgspec.json.encode(without(envelope(kind, 0), "payload"))) is (
        ErrorCode.MESSAGE_INVALID
    )


# --- The controller's side --------------------------------------------------------------------


def test_event_keeps_its_bytes_and_gets_the_digest_of_its_canonical_envelope() -> None:
    body = b'{ "payload" : {"text":"h\\u00f6her"},' + msgspec.json.encode(
        without(EVENT, "payload")
    ).removeprefix(b"{")
    before, after = event_envelope(2, IDENTITY)

    message = runner(before + body + after)

    assert isinstance(message, EventMessage)
    assert message.body == body
    assert message.event.source_event_id == "event_1"
    assert bytes(message.event.payload) == b'{"text":"h\\u00f6her"}'
    plain = before + msgspec.json.encode(EVENT) + after
    assert message.digest == hashlib.sha256(canonical_bytes(msgspec.json.decode(plain))).digest()
    assert runner(plain) == msgspec.structs.replace(
        message,
        event=msgspec.structs.replace(
            message.event, payload=msgspec.Raw(msgspec.json.encode(EVENT["payload"]))
        ),
        body=msgspec.json.encode(EVENT),
    )


def test_event_has_another_digest_when_anything_in_its_envelope_changes() -> None:
    plain = envelope("event", EVENT)
    changes: list[dict[str, Any]] = [
        plain,
        plain | {"connectionId": "connection_2"},
        plain | {"payload": EVENT | {"sourceSeq": 2}},
        plain | {"payload": EVENT | {"payload": {"text": "hoher"}}},
        plain | {"payload": EVENT | {"novel": None}},
    ]

    digests: set[bytes] = set()
    for change in changes:
        message = runner(msgspec.json.encode(change))
        assert isinstance(message, EventMessage)
        digests.add(message.digest)

    assert len(digests) == len(changes)


def test_event_and_result_need_no_connection_in_their_envelope() -> None:
    for kind in ("event", "command_result"):
        bare = without(
            without(envelope(kind, RUNNER_PAYLOADS[kind]), "connectionId"), "connectionLeaseId"
        )
        assert isinstance(runner(msgspec.json.encode(bare)), EventMessage | ResultMessage)


@pytest.mark.parametrize("kind", RUNNER_PAYLOADS)
def test_controller_refuses_an_envelope_of_another_authority(kind: str) -> None:
    good = envelope(kind, RUNNER_PAYLOADS[kind])
    bound = ("connectionId", "connectionLeaseId") if kind not in ("event", "command_result") else ()

    for name in (*SIX_IDS, *bound):
        for broken in (good | {name: "other"}, without(good, name)):
            assert refusal(runner, msgspec.json.encode(broken)) is ErrorCode.IDENTITY_MISMATCH


@pytest.mark.parametrize(
    "name", ["sourceInstanceId", "runId", "normalizedSessionId", "turnId", "itemId"]
)
def test_controller_refuses_an_event_of_another_authority(name: str) -> None:
    assert refusal(runner, plaintext("event", EVENT | {name: "other"})) is (
        ErrorCode.IDENTITY_MISMATCH
    )
    absent = refusal(runner, plaintext("event", without(EVENT, name)))
    required = name in ("sourceInstanceId", "runId")
    assert absent is (ErrorCode.EVENT_INVALID if required else ErrorCode.IDENTITY_MISMATCH)


def test_controller_refuses_an_event_with_the_pointer_of_its_misfit() -> None:
    plan = {"eventType": "plan.updated", "payload": {"schema": "paperclip.plan.updated.v1"}}
    for change, pointer in (
        ({"priority": 3}, "/priority"),
        ({"sourceSeq": 0}, "/sourceSeq"),
        (plan, "/payload"),
        ({"payload": {"channel": "x"}}, "/payload/channel"),
    ):
        with pytest.raises(PrpError) as raised:
            runner(plaintext("event", EVENT | change))
        assert raised.value.code is ErrorCode.EVENT_INVALID
        assert raised.value.message.endswith(f" {pointer}")


def test_controller_refuses_a_sequence_with_a_point() -> None:
    for change in ({"sourceSeq": 1.0}, {"priority": 1.0}, {"schemaVersion": 1.0}):
        assert refusal(runner, plaintext("event", EVENT | change)) is ErrorCode.EVENT_INVALID


def test_controller_refuses_a_tool_call_whose_digest_is_of_another_input() -> None:
    call: dict[str, object] = {
        "schema": "paperclip.prp.semantic_tool.v1",
        "schemaVersion": 1,
        "phase": "input",
        "operationId": "op",
        "callId": "call",
        "correlation": {
            "runId": "run_1",
            "normalizedSessionId": "session_1",
            "turnId": "turn_1",
            "itemId": "item_1",
        },
        "idempotencyKey": None,
        "input": {},
        "content": {
            "digest": f"sha256:{hashlib.sha256(b'{}').hexdigest()}",
            "redactionDisposition": "digest_only",
            "references": [],
        },
    }
    event = EVENT | {"eventType": "semantic_tool.input", "payload": {"semantic_tool": call}}

    assert isinstance(runner(plaintext("event", event)), EventMessage)

    call["input"] = {"a": 1}
    assert refusal(runner, plaintext("event", event)) is ErrorCode.SEMANTIC_DIGEST_MISMATCH
    del call["input"]
    assert refusal(runner, plaintext("event", event)) is ErrorCode.EVENT_INVALID


def test_result_keeps_its_bytes_and_its_digest_covers_five_members() -> None:
    first = runner(plaintext("command_result", RESULT))
    second = runner(plaintext("command_result", dict(reversed((RESULT | {"x": 1}).items()))))

    assert isinstance(first, ResultMessage)
    assert isinstance(second, ResultMessage)
    assert first.body == msgspec.json.encode(RESULT)
    assert first.result == msgspec.json.decode(first.body, type=CommandResult)
    assert first.digest == second.digest
    assert first.digest == hashlib.sha256(canonical_bytes(RESULT)).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"status": "done"},
        {"result": []},
        {"result": None},
        {"controllerSeq": "1"},
        {"commandId": 1},
    ],
)
def test_controller_refuses_a_result_when_a_member_is_wrong(change: dict[str, Any]) -> None:
    assert refusal(runner, plaintext("command_result", RESULT | change)) is (
        ErrorCode.MESSAGE_INVALID
    )


@pytest.mark.parametrize("kind", ["lease_renew", "pong", "warm_transition_activated"])
def test_runner_message_is_refused_when_a_member_is_missing_or_of_another_type(kind: str) -> None:
    payload = RUNNER_PAYLOADS[kind]

    for name in payload:
        for broken in (without(payload, name), payload | {name: [1]}, payload | {name: None}):
            assert refusal(runner, plaintext(kind, broken)) is ErrorCode.MESSAGE_INVALID


def test_controller_takes_a_renewal_a_pong_and_an_activation() -> None:
    assert isinstance(runner(plaintext("lease_renew", RUNNER_PAYLOADS["lease_renew"])), LeaseRenew)
    assert isinstance(runner(plaintext("pong", RUNNER_PAYLOADS["pong"])), Pong)
    assert runner(
        plaintext("warm_transition_activated", RUNNER_PAYLOADS["warm_transition_activated"])
    ) == WarmTransitionActivated("0" * 64)
