"""Peers that know the protocol and break it: each ends its connection by one code, nothing else."""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from controller_mock.storage.store import StoredEvent
from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.commands import WireCommand
from protocol.credentials import auth_key, credential_id
from protocol.envelope import Resume
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import ClientOffer, client_answer, client_hello
from protocol.ids import CommandId, ControllerSeq
from protocol.limits import FRAME_BYTES_MAX
from protocol.secrets import Secret
from tests.controller_mock.runner_client import RunnerClient, event_body, result_of, ticket
from tests.controller_mock.served import Served, eventually, served

Attack = Callable[[RunnerClient], Awaitable[None]]


def offer_of(world: Served, token: Secret) -> ClientOffer:
    return ClientOffer(
        identity=world.config.identity,
        runner_version=world.config.runner_version,
        runner_digest=world.config.runner_digest,
        credential_kind="bootstrap",
        credential_id=credential_id(token),
        client_nonce=secrets.token_hex(32),
        resume=Resume(last_controller_command_seq=0, next_source_event_seq=1, acked_source_seq=0),
    )


def changed_member(frame: bytes, name: str, value: object) -> bytes:
    found = msgspec.json.decode(frame)
    found["payload"][name] = value
    return msgspec.json.encode(found)


# --- before the session -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("credentialId", f"sha256:{'0' * 64}", ErrorCode.CREDENTIAL_UNKNOWN),
        ("runId", "another-run", ErrorCode.IDENTITY_MISMATCH),
        ("itemId", "another-item", ErrorCode.IDENTITY_MISMATCH),
        ("runnerVersion", "9", ErrorCode.ARTIFACT_MISMATCH),
        ("runnerDigest", f"sha256:{'b' * 64}", ErrorCode.ARTIFACT_MISMATCH),
        ("protocolMin", 3, ErrorCode.VERSION_RANGE_EMPTY),
        ("clientNonce", None, ErrorCode.MESSAGE_INVALID),
    ],
)
async def test_hello_that_does_not_fit_is_closed_and_the_ticket_stays_good(
    tmp_path: Path, name: str, value: object, code: ErrorCode
) -> None:
    async with served(tmp_path) as world:
        token = await world.controller.issue_ticket(world.run_id)
        intruder = await world.dial()

        hello = client_hello(offer_of(world, token))
        await intruder.send_text(changed_member(hello, name, value))
        assert await intruder.closed() == []

        assert world.controller.closings() == {code: 1}
        assert (await world.connect(world.config, ticket(token))).acked == 0


@pytest.mark.parametrize("proof", ["0" * 64, "F" * 64, "", "zz"])
async def test_wrong_proof_is_closed_and_the_ticket_stays_good(tmp_path: Path, proof: str) -> None:
    async with served(tmp_path) as world:
        token = await world.controller.issue_ticket(world.run_id)
        intruder = await world.dial()
        offer = offer_of(world, token)

        await intruder.send_text(client_hello(offer))
        challenge = await intruder.receive_text()
        now = Now(UnixMs(0), MonoMs(0))
        answer = client_answer(offer, auth_key(token), challenge, now)
        await intruder.send_text(changed_member(answer.response, "clientProof", proof))
        assert await intruder.closed() == []

        assert world.controller.closings() == {ErrorCode.PROOF_INVALID: 1}
        assert (await world.connect(world.config, ticket(token))).acked == 0


async def test_ticket_is_good_once(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        token = await world.controller.issue_ticket(world.run_id)
        await world.connect(world.config, ticket(token))

        with pytest.raises(PrpError):
            await world.connect(world.config, ticket(token))

        assert world.controller.closings() == {ErrorCode.CREDENTIAL_USED: 1}
        assert world.controller.view(world.run_id).connected


async def test_second_hello_in_place_of_an_answer_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        token = await world.controller.issue_ticket(world.run_id)
        intruder = await world.dial()
        hello = client_hello(offer_of(world, token))

        intruder.put_text(hello)
        intruder.put_text(hello)
        await intruder.flush()
        await intruder.closed()

        assert sum(world.controller.closings().values()) == 1
        assert world.controller.view(world.run_id).connection_count == 0


async def test_events_behind_the_proof_wait_for_the_session(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        token = await world.controller.issue_ticket(world.run_id)
        client = await world.dial()

        await client.authenticate(ticket(token), early=[event_body(world.config, 1)])
        await client.acked_through(1)

        assert world.sequences() == [1]


# --- inside the session -------------------------------------------------------------------


async def plaintext_event(client: RunnerClient) -> None:
    await client.send_text(client.event_plaintext(event_body(client.config, 2)))


async def replayed_frame(client: RunnerClient) -> None:
    sealed = client.seal(client.event_plaintext(event_body(client.config, 2)))
    client.put_text(sealed)
    await client.send_text(sealed)


async def reordered_frames(client: RunnerClient) -> None:
    first = client.seal(client.event_plaintext(event_body(client.config, 2)))
    second = client.seal(client.event_plaintext(event_body(client.config, 3)))
    client.put_text(second)
    await client.send_text(first)


async def flipped_bit(client: RunnerClient) -> None:
    sealed = client.seal(client.event_plaintext(event_body(client.config, 2)))
    digit = b"0" if sealed[-3:-2] != b"0" else b"1"
    await client.send_text(sealed[:-3] + digit + sealed[-2:])


async def too_large(client: RunnerClient) -> None:
    head = bytes([0x81, 0xFF]) + (FRAME_BYTES_MAX + 1).to_bytes(8, "big") + bytes(4)
    await client.send_bytes(head)


def sealed(plaintext: bytes) -> Attack:
    async def attack(client: RunnerClient) -> None:
        await client.send(plaintext)

    return attack


def event_with(**members: object) -> Attack:
    async def attack(client: RunnerClient) -> None:
        event = msgspec.json.decode(event_body(client.config, 2))
        event.update(members)
        await client.send(client.event_plaintext(msgspec.json.encode(event)))

    return attack


async def envelope_of_another_run(client: RunnerClient) -> None:
    envelope = msgspec.json.decode(client.event_plaintext(event_body(client.config, 2)))
    envelope["runId"] = "another-run"
    await client.send(msgspec.json.encode(envelope))


async def envelope_of_another_version(client: RunnerClient) -> None:
    envelope = msgspec.json.decode(client.event_plaintext(event_body(client.config, 2)))
    envelope["version"] = 1
    await client.send(msgspec.json.encode(envelope))


async def unknown_kind(client: RunnerClient) -> None:
    envelope = msgspec.json.decode(client.event_plaintext(event_body(client.config, 2)))
    envelope["kind"] = "ping"
    await client.send(msgspec.json.encode(envelope))


async def gap(client: RunnerClient) -> None:
    await client.send_events([event_body(client.config, 3)])


async def result_of_nothing(client: RunnerClient) -> None:
    command = WireCommand(
        schema="paperclip.prp.command.v1",
        command_id=CommandId("command_nobody_sent"),
        controller_seq=ControllerSeq(7),
        type="turn.start",
        issued_at="2026-01-02T03:04:05.678Z",
        payload=msgspec.Raw(b"{}"),
    )
    await client.send_result(result_of(command))


async def renewal_from_the_future(client: RunnerClient) -> None:
    assert client.credential is not None
    assert client.credential.expires_at_unix_ms is not None
    await client.send_renewal(client.credential.expires_at_unix_ms + 1)


async def renewal_of_another_epoch(client: RunnerClient) -> None:
    assert client.credential is not None
    assert client.credential.expires_at_unix_ms is not None
    await client.send_renewal(client.credential.expires_at_unix_ms, epoch=7)


@pytest.mark.parametrize(
    ("attack", "code", "malformed"),
    [
        (plaintext_event, ErrorCode.FRAME_MALFORMED, 1),
        (replayed_frame, ErrorCode.FRAME_COUNTER_MISMATCH, 1),
        (reordered_frames, ErrorCode.FRAME_COUNTER_MISMATCH, 1),
        (flipped_bit, ErrorCode.FRAME_NOT_AUTHENTIC, 1),
        (too_large, ErrorCode.FRAME_TOO_LARGE, 0),
        (sealed(b"not json"), ErrorCode.MESSAGE_NOT_JSON, 1),
        (sealed(b"[]"), ErrorCode.MESSAGE_INVALID, 0),
        (sealed(b"[" * 50_000 + b"]" * 50_000), ErrorCode.MESSAGE_TOO_LARGE, 0),
        (sealed(b'{"a":1,"a":1}'), ErrorCode.MESSAGE_INVALID, 0),
        (sealed(b'{"a":1e999}'), ErrorCode.MESSAGE_INVALID, 0),
        (sealed(b'"\\udfff"'), ErrorCode.MESSAGE_INVALID, 0),
        (sealed(b"\xc3\x28"), ErrorCode.MESSAGE_NOT_JSON, 1),
        (event_with(eventType="no.such.type"), ErrorCode.EVENT_INVALID, 0),
        (event_with(emittedAt="yesterday"), ErrorCode.EVENT_INVALID, 0),
        (event_with(sourceSeq=0), ErrorCode.EVENT_INVALID, 0),
        (event_with(priority=3), ErrorCode.EVENT_INVALID, 0),
        (event_with(runId="another-run"), ErrorCode.IDENTITY_MISMATCH, 0),
        (envelope_of_another_run, ErrorCode.IDENTITY_MISMATCH, 0),
        (envelope_of_another_version, ErrorCode.PROTOCOL_VERSION_MISMATCH, 0),
        (unknown_kind, ErrorCode.MESSAGE_UNKNOWN_KIND, 0),
        (gap, ErrorCode.EVENT_GAP, 0),
        (result_of_nothing, ErrorCode.COMMAND_RESULT_UNKNOWN, 0),
        (renewal_from_the_future, ErrorCode.LEASE_RENEWAL_REFUSED, 0),
        (renewal_of_another_epoch, ErrorCode.LEASE_RENEWAL_REFUSED, 0),
    ],
)
async def test_breach_inside_the_session_closes_it_and_changes_nothing_else(
    tmp_path: Path, attack: Attack, code: ErrorCode, malformed: int
) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)

        await attack(client)
        await client.closed()
        await eventually(lambda: not world.controller.view(world.run_id).connected)

        assert world.controller.closings() == {code: 1}
        stored = world.store.events(world.run_id, 0, 10)
        assert [event.source_seq for event in stored] in ([1], [1, 2])
        assert world.controller.view(world.run_id).integrity_fault is None
        # The lease is as good as before: an honest reconnect goes on, and its write counts too.
        assert client.credential is not None
        again = await world.connect(client.config, client.credential)
        await again.send_events([event_body(again.config, 2)])
        await again.acked_through(2)
        _, found = world.store.load_run(world.run_id)
        assert found.row.malformed_frames == malformed


async def test_redelivery_with_other_content_latches_the_run(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)
        before = world.store.events(world.run_id, 0, 10)

        await client.send_events([event_body(client.config, 1, priority=1)])
        await client.closed()
        view = await world.controller.wait_for(
            world.run_id, lambda v: v.integrity_fault is not None
        )
        assert client.credential is not None
        again = await world.connect(client.config, client.credential)
        await again.send_events([event_body(again.config, 2)])
        await again.closed()

        assert view.integrity_fault == ErrorCode.EVENT_IDENTITY_CONFLICT
        assert _bodies(world.store.events(world.run_id, 0, 10)) == _bodies(before)
        assert world.controller.closings() == {
            ErrorCode.EVENT_IDENTITY_CONFLICT: 1,
            ErrorCode.INTEGRITY_LATCHED: 1,
        }


def _bodies(events: list[StoredEvent]) -> list[bytes]:
    return [bytes(event.body) for event in events]
