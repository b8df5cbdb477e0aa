"""Tests of one connection from the first byte to the end, without a socket."""

import json

import msgspec
import pytest

from protocol.commands import CommandResult
from protocol.envelope import Ack, Deliver, LeaseRenew, Ping, Pong, Revoke, Welcome
from protocol.errors import ErrorCode
from protocol.events import runner_event
from protocol.ids import CommandId, ControllerSeq, LeaseId, RevocationEpoch, SourceSeq
from protocol.secrets import Secret
from runnerd.core.inputs import Connected, ControlReceived
from runnerd.io.link import Phase
from tests.runnerd.io.links import Pair, offer
from tests.runnerd.peer import (
    IDENTITY,
    LEASE_ID,
    LEASE_TOKEN,
    Authority,
    Tamper,
    command,
    unix_ms,
)


def event(seq: int) -> bytes:
    return runner_event(
        IDENTITY,
        source_seq=SourceSeq(seq),
        event_type="workspace.ready",
        priority=1,
        payload={},
        emitted_at="2026-01-02T03:04:05.678Z",
    )


def leased() -> Authority:
    """Return an authority whose ticket is used and whose lease is good."""
    return Authority(ticket_is_used=True, lease_expires_at_unix_ms=unix_ms() + 30_000)


# --- Handshake ------------------------------------------------------------------------------


def test_link_is_welcomed_when_both_ends_hold_the_ticket() -> None:
    pair = Pair().welcomed()

    connected = pair.facts[0]
    assert isinstance(connected, Connected)
    assert connected.lease_token == Secret(LEASE_TOKEN)
    assert connected.welcome.connection_lease_token is None
    assert connected.binding == pair.link.binding
    assert connected.binding.connection_id == "connection_1"
    assert connected.binding.connection_lease_id == LEASE_ID
    assert connected.sent_at_unix_ms is not None
    assert abs(connected.sent_at_unix_ms - unix_ms()) < 60_000


def test_link_reconnects_on_its_lease_and_gets_no_token() -> None:
    authority = leased()
    offered = offer("lease", lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms)

    pair = Pair(offered, authority).welcomed()

    connected = pair.facts[0]
    assert isinstance(connected, Connected)
    assert connected.lease_token is None
    assert not pair.link.credential_spent


def test_link_tells_no_fact_before_the_last_byte_of_the_welcome() -> None:
    whole = Pair()
    while whole.peer.binding is None:
        whole.peer.feed(b"".join(whole.link.outgoing()))
        if whole.peer.binding is None:
            whole.feed_raw(whole.peer.outgoing())
    welcome = whole.peer.outgoing()

    for index in range(len(welcome)):
        assert whole.facts == []
        whole.feed_raw(welcome[index : index + 1])

    assert [type(fact) for fact in whole.facts] == [Connected]


def test_messages_behind_the_welcome_in_the_same_bytes_are_told_in_order() -> None:
    pair = Pair()
    while pair.peer.binding is None:
        pair.peer.feed(b"".join(pair.link.outgoing()))
        if pair.peer.binding is None:
            pair.feed_raw(pair.peer.outgoing())
    pair.peer.say(Ping())
    pair.peer.say(Revoke(RevocationEpoch(2)))

    pair.exchange()

    assert [type(fact) for fact in pair.facts] == [Connected, ControlReceived, ControlReceived]
    assert pair.messages() == [Ping(), Revoke(RevocationEpoch(2))]


@pytest.mark.parametrize(
    "name",
    [
        *("credentialId", "credentialKind", "clientNonce", "serverNonce", "runnerInstanceId"),
        *("environmentLeaseId", "runId", "normalizedSessionId", "turnId", "itemId"),
        *("runnerVersion", "runnerDigest", "selectedVersion", "credentialExpiresAtUnixMs"),
        *("credentialExpiresAt", "revocationEpoch", "serverProof"),
    ],
)
def test_altered_challenge_gets_no_answer_and_leaves_the_ticket_unspent(name: str) -> None:
    def altered(frame: bytes) -> bytes:
        message = json.loads(frame)
        value = message["payload"][name]
        message["payload"][name] = value + 1 if isinstance(value, int) else value + "0"
        return json.dumps(message).encode()

    pair = Pair(tamper=Tamper(challenge=altered))

    pair.exchange()

    assert pair.link.failure in (ErrorCode.CHALLENGE_ALTERED, ErrorCode.PROOF_INVALID)
    assert len(pair.peer.texts) == 1, "the hello, and no response"
    assert not pair.link.credential_spent
    assert not pair.authority.ticket_is_used
    assert pair.facts == []


def test_challenge_of_a_controller_without_the_ticket_gets_no_answer() -> None:
    pair = Pair(authority=Authority(ticket=Secret("bootstrap_another")))
    # An impostor answers any hello as if it held the credential.
    pair.peer.claims_every_credential = True

    pair.exchange()

    assert pair.link.failure is ErrorCode.PROOF_INVALID
    assert len(pair.peer.texts) == 1
    assert not pair.link.credential_spent


def test_connection_closed_before_the_proof_leaves_the_ticket_unspent() -> None:
    pair = Pair(tamper=Tamper(hello=lambda hello: False))

    pair.exchange()

    assert pair.link.failure is ErrorCode.CONNECTION_LOST
    assert not pair.link.credential_spent


def test_connection_closed_after_the_proof_may_have_spent_the_ticket() -> None:
    pair = Pair(tamper=Tamper(response=lambda response: False))

    pair.exchange()

    assert pair.link.failure is ErrorCode.CONNECTION_LOST
    assert pair.link.credential_spent


def test_proof_that_never_left_has_not_spent_the_ticket() -> None:
    pair = Pair()
    while pair.link.phase is not Phase.WELCOME:
        pair.peer.feed(b"".join(pair.link.outgoing()))
        pair.feed_raw(pair.peer.outgoing())

    pair.link.end()

    assert not pair.link.credential_spent


def test_lease_is_never_spent() -> None:
    authority = leased()
    offered = offer("lease", lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms)
    pair = Pair(offered, authority, Tamper(response=lambda response: False))

    pair.exchange()

    assert pair.link.failure is ErrorCode.CONNECTION_LOST
    assert not pair.link.credential_spent


def test_lease_that_moved_is_refused_unless_a_renewal_is_outstanding() -> None:
    authority = leased()
    known = authority.lease_expires_at_unix_ms - 1000

    refused = Pair(offer("lease", lease_expires_at_unix_ms=known), authority)
    refused.exchange()
    accepted = Pair(
        offer("lease", lease_expires_at_unix_ms=known, renewal_outstanding=True), authority
    )
    accepted.exchange()

    assert refused.link.failure is ErrorCode.CHALLENGE_ALTERED
    assert accepted.link.phase is Phase.OPEN


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"connection_lease_token": None}, ErrorCode.MESSAGE_INVALID),
        ({"connection_lease_token": ""}, ErrorCode.MESSAGE_INVALID),
        ({"connection_lease_expires_at_unix_ms": 1}, ErrorCode.CREDENTIAL_EXPIRED),
        ({"connection_lease_id": LeaseId("lease_2")}, ErrorCode.IDENTITY_MISMATCH),
        ({"selected_version": 1}, ErrorCode.PROTOCOL_VERSION_MISMATCH),
    ],
)
def test_bad_welcome_after_a_bootstrap_may_have_spent_the_ticket(
    change: dict[str, object], code: ErrorCode
) -> None:
    def changed(welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, **change)

    pair = Pair(tamper=Tamper(welcome=changed))

    pair.exchange()

    assert pair.link.failure is code
    assert pair.link.credential_spent
    assert pair.facts == []


def test_welcome_with_a_token_is_refused_on_a_lease() -> None:
    authority = leased()
    offered = offer("lease", lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms)

    def granting(welcome: Welcome) -> Welcome:
        return msgspec.structs.replace(welcome, connection_lease_token="lease_other")

    pair = Pair(offered, authority, Tamper(welcome=granting))

    pair.exchange()

    assert pair.link.failure is ErrorCode.MESSAGE_INVALID


# --- Session --------------------------------------------------------------------------------


def test_what_the_runner_sends_arrives_in_order() -> None:
    pair = Pair().welcomed()
    result = CommandResult(
        command_id=CommandId("command_1"),
        command_type="session.open",
        controller_seq=ControllerSeq(1),
        status="completed",
        result=msgspec.Raw(b"{}"),
    )
    renewal = LeaseRenew(
        connection_lease_expires_at_unix_ms=pair.authority.lease_expires_at_unix_ms,
        connection_lease_revocation_epoch=RevocationEpoch(1),
    )

    pair.link.send_event(event(1))
    pair.link.send_result(result)
    pair.link.send_event(event(2))
    pair.link.send_renewal(renewal)
    pair.link.send_pong(Pong(lifecycle="ready", acked_source_seq=SourceSeq(0), outbox_bytes=0))
    pair.exchange()

    assert [message.body for message in pair.authority.events] == [event(1), event(2)]
    assert [message.result.command_id for message in pair.authority.results] == ["command_1"]
    assert pair.authority.renewals == [renewal]
    assert pair.authority.refusals == []
    assert pair.messages()[:2] == [Ack(SourceSeq(1)), Ack(SourceSeq(2))]


def test_what_the_controller_says_is_told_with_its_clock() -> None:
    pair = Pair().welcomed()
    wanted = command(1, "session.open", {"a": [1, None, "ü"]})

    pair.peer.say(Deliver(wanted))
    pair.exchange()

    (received,) = [fact for fact in pair.facts if isinstance(fact, ControlReceived)]
    assert isinstance(received.message, Deliver)
    assert bytes(received.message.command.payload) == bytes(wanted.payload)
    assert received.connection_id == "connection_1"
    assert received.sent_at_unix_ms is not None


def test_websocket_ping_is_answered_and_asked() -> None:
    pair = Pair().welcomed()

    pair.feed_raw(b"\x89\x03abc")
    answer = b"".join(pair.link.outgoing())
    pair.link.ask_for_life()
    question = b"".join(pair.link.outgoing())

    assert answer[0] == 0x8A
    assert len(answer) == 2 + 4 + 3, "masked, with the same payload"
    assert question[0] == 0x89
    assert pair.link.failure is None


def test_failed_link_says_and_hears_nothing_more() -> None:
    pair = Pair().welcomed()
    pair.peer.say(Ping())
    good = pair.peer.outgoing()
    pair.link.fail(ErrorCode.PEER_TIMEOUT)

    pair.feed_raw(good)
    pair.link.send_event(event(1))
    pair.link.fail(ErrorCode.CONNECTION_LOST)

    assert pair.messages() == []
    assert pair.link.outgoing() == []
    assert pair.link.failure is ErrorCode.PEER_TIMEOUT


def test_nothing_secret_shows_in_what_is_told() -> None:
    pair = Pair().welcomed()

    assert LEASE_TOKEN not in repr(pair.facts)
