"""Every plaintext of the recorded sessions, through the codec and back."""

import json
from pathlib import Path
from typing import Any, assert_never

import msgspec
import pytest

from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.codec import (
    decode_control,
    decode_runner,
    encode_activated,
    encode_control,
    encode_pong,
    encode_renew,
    encode_result,
    event_envelope,
)
from protocol.commands import command_fingerprint
from protocol.envelope import (
    Binding,
    CommandResultAck,
    Deliver,
    EventMessage,
    LeaseRenew,
    Pong,
    ResultMessage,
    RunnerMessage,
    WarmTransitionActivated,
    Welcome,
)
from protocol.ids import Identity
from protocol.semantic_tools import answers, read_semantic_input, result_command_id
from protocol.warm_transition import read_receipt
from tests.vectors.conftest import TRANSCRIPTS, load


def plaintexts(connection: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [
        (frame["direction"], frame["plaintext"].encode())
        for frame in connection["frames"]
        if "plaintext" in frame
    ]


def binding_of(plaintext: bytes) -> Binding:
    """What the welcome binds a connection to."""
    envelope = json.loads(plaintext)
    identity = msgspec.json.decode(plaintext, type=Identity)
    received = decode_control(
        plaintext, version=envelope["version"], identity=identity, connection=None
    )
    assert isinstance(received.message, Welcome)
    return Binding(
        version=envelope["version"],
        identity=identity,
        connection_id=received.connection_id,
        connection_lease_id=received.message.connection_lease_id,
    )


def encode_runner(message: RunnerMessage, binding: Binding) -> bytes:
    match message:
        case EventMessage():
            before, after = event_envelope(binding.version, binding.identity)
            return before + message.body + after
        case ResultMessage():
            return encode_result(binding.version, binding.identity, message.result)
        case LeaseRenew():
            return encode_renew(binding, message)
        case Pong():
            return encode_pong(binding, message)
        case WarmTransitionActivated():
            return encode_activated(binding, message)
        case _:
            assert_never(message)


def test_recorded_message_survives_the_codec(recorded_connection: dict[str, Any]) -> None:
    (_, welcome), *others = plaintexts(recorded_connection)
    binding = binding_of(welcome)
    assert others

    for direction, plaintext in others:
        if direction == "client_to_core":
            again = encode_runner(decode_runner(plaintext, binding), binding)
        else:
            again = control_again(plaintext, binding, binding)
        assert canonical(again) == canonical(plaintext)
    assert canonical(control_again(welcome, binding, None)) == canonical(welcome)


def control_again(plaintext: bytes, binding: Binding, connection: Binding | None) -> bytes:
    envelope = json.loads(plaintext)
    received = decode_control(
        plaintext, version=binding.version, identity=binding.identity, connection=connection
    )
    assert received.connection_id == binding.connection_id
    return encode_control(
        binding,
        received.message,
        envelope_id=envelope["envelopeId"],
        sent_at=envelope["sentAt"],
    )


def canonical(plaintext: bytes) -> bytes:
    return canonical_bytes(parse_strict(plaintext))


def everything(directory: Path, name: str) -> list[tuple[Binding, object]]:
    """All messages of a transcript in order, each with its connection."""
    messages: list[tuple[Binding, object]] = []
    for connection in load(directory, name)["connections"]:
        (_, welcome), *others = plaintexts(connection)
        binding = binding_of(welcome)
        for direction, plaintext in others:
            if direction == "client_to_core":
                messages.append((binding, decode_runner(plaintext, binding)))
            else:
                received = decode_control(
                    plaintext,
                    version=binding.version,
                    identity=binding.identity,
                    connection=binding,
                )
                messages.append((binding, received.message))
    return messages


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_recorded_redelivery_of_an_event_has_the_digest_of_the_first(
    prp_vectors: Path, name: str
) -> None:
    digests: dict[tuple[str, str], set[bytes]] = {}
    for binding, message in everything(prp_vectors, name):
        if isinstance(message, EventMessage):
            key = (binding.identity.run_id, message.event.source_event_id)
            digests.setdefault(key, set()).add(message.digest)

    assert digests
    assert all(len(found) == 1 for found in digests.values())
    assert len({next(iter(found)) for found in digests.values()}) == len(digests)


@pytest.mark.parametrize("name", ["transcript_pyclient_ts_v1", "transcript_rust_ts_provider_warm"])
def test_recorded_tool_call_is_answered_by_its_own_command(prp_vectors: Path, name: str) -> None:
    messages = everything(prp_vectors, name)
    answered = 0
    for binding, message in messages:
        if not isinstance(message, EventMessage):
            continue
        event = message.event
        if event.event_type != "semantic_tool.input":
            continue
        call = read_semantic_input(parse_strict(bytes(event.payload)), binding.identity)
        answer_id = result_command_id(event.run_id, call.call_id)
        for _, other in messages:
            if isinstance(other, Deliver) and other.command.command_id == answer_id:
                payload = parse_strict(bytes(other.command.payload))
                assert answers(call, event, binding.identity, payload)
                assert answers(call, event, binding.identity, newer(payload, call.input_digest))
                assert not answers(call, event, binding.identity, newer(payload, "sha256:"))
                answered += 1

    assert answered


def newer(payload: JsonValue, digest: str) -> JsonValue:
    assert isinstance(payload, dict)
    return {name: value for name, value in payload.items() if name != "input"} | {
        "inputDigest": digest
    }


def test_recorded_receipt_names_the_command_and_the_result_of_the_recording(
    prp_vectors: Path,
) -> None:
    messages = [message for _, message in everything(prp_vectors, TRANSCRIPTS[2])]
    (ack,) = (
        message
        for message in messages
        if isinstance(message, CommandResultAck) and message.command_type == "run.attach"
    )
    assert isinstance(ack.warm_transition, msgspec.Raw)

    receipt = read_receipt(bytes(ack.warm_transition))

    assert receipt.command_fingerprint in {
        command_fingerprint(message.command) for message in messages if isinstance(message, Deliver)
    }
    assert receipt.result_digest in {
        message.digest.hex() for message in messages if isinstance(message, ResultMessage)
    }
