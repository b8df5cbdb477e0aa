"""Tickets, proofs and who is let in."""

import msgspec
import pytest

from controller_mock.core.actions import (
    CloseConnection,
    OpenChannel,
    Publish,
    PutCredential,
    Reply,
    SendControl,
)
from controller_mock.core.inputs import ConnectionHandle, HelloReceived, TicketIssued
from protocol.credentials import auth_key, credential_id
from protocol.envelope import AuthHello
from protocol.errors import ErrorCode
from protocol.handshake import ClientOffer, client_answer, client_hello, read_hello
from protocol.limits import CREDENTIALS_MAX
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    IDENTITY,
    START,
    TICKET,
    World,
    challenge_in,
    closes_in,
    connected,
    event,
    lease_of,
    lease_offer,
    lease_token,
    renewal,
    reply_in,
    response_received,
    ticket_offer,
    told,
    welcome_in,
)

FIRST, SECOND = ConnectionHandle(1), ConnectionHandle(2)


def test_a_ticket_is_stored_before_its_caller_hears_of_it() -> None:
    world = World()
    issued = TicketIssued(
        request=world.request(),
        credential_id=credential_id(TICKET),
        auth_key=auth_key(TICKET),
        ttl_ms=5_000,
    )
    world.driver.feed(issued, world.now)
    assert world.drain() == []

    left = world.settle()

    assert left == [Reply(request=issued.request)]
    assert world.written == [
        PutCredential(
            credential_id=credential_id(TICKET),
            kind="bootstrap",
            auth_key=auth_key(TICKET),
            expires_at_unix_ms=START.unix_ms + 5_000,
            revocation_epoch=0,
        )
    ]


@pytest.mark.parametrize("ttl_ms", [-1, 0, 60_001])
def test_a_ticket_is_refused_when_its_life_is_out_of_range(ttl_ms: int) -> None:
    world = World()

    left = world.issue(ttl_ms=ttl_ms)

    assert reply_in(left).code is ErrorCode.USAGE_INVALID
    assert world.run.durable.credentials == ()


@pytest.mark.parametrize("used", [False, True])
def test_a_ticket_is_refused_when_its_token_is_known_already(used: bool) -> None:
    world = World()
    world.issue()
    if used:
        world.bootstrap()
    before = world.run

    left = world.issue()

    assert reply_in(left).code is ErrorCode.CREDENTIAL_USED
    assert world.run == before


def test_a_proven_ticket_buys_a_lease_and_is_used_up() -> None:
    world = World()
    world.issue()
    world.written.clear()

    left = world.bootstrap()

    opened, sent, published = left
    assert isinstance(opened, OpenChannel)
    assert opened.binding.connection_id == "connection_1"
    assert opened.binding.version == 2
    assert isinstance(sent, SendControl)
    assert sent.envelope_id == "welcome_1"
    assert published == Publish()
    welcome = welcome_in(left)
    assert welcome.connection_lease_token == str(lease_token(1).reveal(), "utf-8")
    assert welcome.connection_lease_expires_at_unix_ms == START.unix_ms + 30_000
    assert welcome.acked_source_seq == 0
    assert welcome.pending_commands == ()
    assert welcome.warm_transition_version is None
    ticket, lease = (change for change in world.written if isinstance(change, PutCredential))
    assert (ticket.kind, ticket.used) == ("bootstrap", True)
    assert (lease.kind, lease.lease_id, lease.lease_version) == ("lease", "lease-1", 2)
    assert lease.credential_id == credential_id(lease_token(1))


def test_a_welcome_waits_for_the_lease_when_the_store_is_slow() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    frame = challenge_in(world.hello(1, offer))
    world.driver.feed(world.answer(1, offer, TICKET, frame), world.now)

    assert world.drain() == []
    assert world.driver.committed.durable.lease is None

    assert [type(action) for action in world.settle()] == [OpenChannel, SendControl, Publish]


def test_a_used_ticket_opens_nothing_when_it_comes_again() -> None:
    world = connected()

    left = world.hello(2, ticket_offer())

    assert told(left) == [CloseConnection(SECOND, ErrorCode.CREDENTIAL_USED)]
    assert world.run.live.session is not None


def test_the_first_valid_proof_wins_when_two_race_for_one_ticket() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    first = challenge_in(world.hello(1, offer))
    second = challenge_in(world.hello(2, offer))

    won = world.feed(world.answer(2, offer, TICKET, second))
    lost = world.feed(world.answer(1, offer, TICKET, first))

    assert welcome_in(won).connection_lease_id == "lease-2"
    assert told(lost) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_USED)]
    assert world.run.durable.connection_count == 1


def test_two_proofs_of_one_ticket_have_one_winner_when_neither_is_committed_yet() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    first = challenge_in(world.hello(1, offer))
    second = challenge_in(world.hello(2, offer))
    world.driver.feed(world.answer(1, offer, TICKET, first), world.now)
    world.driver.feed(world.answer(2, offer, TICKET, second), world.now)

    left = world.settle()

    assert welcome_in(left).connection_lease_id == "lease-1"
    assert closes_in(left) == [CloseConnection(SECOND, ErrorCode.CREDENTIAL_USED)]


def test_a_false_proof_leaves_the_ticket_usable() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    frame = challenge_in(world.hello(1, offer))
    answer = client_answer(offer, auth_key(TICKET), frame, world.now).response
    forged = msgspec.json.decode(answer)
    forged["payload"]["clientProof"] = "0" * 64

    left = world.feed(response_received(1, msgspec.json.encode(forged)))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.PROOF_INVALID)]
    assert welcome_in(world.bootstrap(2)).connection_lease_id == "lease-2"


def test_a_response_closes_when_no_challenge_is_open() -> None:
    world = World()

    left = world.feed(response_received(1, b"{}"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.MESSAGE_UNEXPECTED)]


def test_a_response_that_is_no_json_closes_with_a_code() -> None:
    world = World()
    world.issue()
    world.hello(1, ticket_offer())

    left = world.feed(response_received(1, b"\xff{"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.MESSAGE_NOT_JSON)]


@pytest.mark.parametrize("stage", ["challenged", "session"])
def test_a_second_hello_closes_the_connection(stage: str) -> None:
    world = World()
    world.issue()
    if stage == "session":
        world.bootstrap()
    else:
        world.hello(1, ticket_offer())

    left = world.hello(1, ticket_offer())

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.MESSAGE_UNEXPECTED)]
    assert world.run.live.session is None
    assert world.run.live.handshakes == ()


def test_a_challenge_is_over_after_five_seconds() -> None:
    world = World()
    world.issue(ttl_ms=60_000)
    offer = ticket_offer()
    frame = challenge_in(world.hello(1, offer))
    world.pass_time(5_000)

    left = world.feed(world.answer(1, offer, TICKET, frame))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CHALLENGE_STALE)]
    assert welcome_in(world.bootstrap(2)).connection_lease_id == "lease-2"


@pytest.mark.parametrize(("local_ms", "wall_ms"), [(5_000, 5_000), (5_000, 0), (0, 5_000)])
def test_a_ticket_is_over_when_either_clock_says_so(local_ms: int, wall_ms: int) -> None:
    world = World()
    world.issue(ttl_ms=5_000)
    world.pass_time(local_ms, wall_ms)

    left = world.hello(1, ticket_offer())

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_EXPIRED)]


def test_a_ticket_is_good_until_just_before_its_end() -> None:
    world = World()
    world.issue(ttl_ms=5_000)
    world.pass_time(4_999)

    assert challenge_in(world.hello(1, ticket_offer()))


def test_an_unknown_credential_closes() -> None:
    world = World()

    left = world.hello(1, ticket_offer(Secret("nobody's")))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_UNKNOWN)]


@pytest.mark.parametrize("name", sorted(msgspec.structs.asdict(IDENTITY)))
def test_a_hello_of_another_identity_closes_and_the_ticket_stays_good(name: str) -> None:
    world = World()
    world.issue()
    hello = msgspec.structs.replace(_hello(ticket_offer()), **{name: "another"})

    left = world.feed(HelloReceived(connection=FIRST, hello=hello, server_nonce="n"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.IDENTITY_MISMATCH)]
    assert welcome_in(world.bootstrap(2)).connection_lease_id == "lease-2"


@pytest.mark.parametrize("name", ["runner_version", "runner_digest"])
def test_a_hello_of_another_artifact_closes(name: str) -> None:
    world = World()
    world.issue()
    hello = msgspec.structs.replace(_hello(ticket_offer()), **{name: "another"})

    left = world.feed(HelloReceived(connection=FIRST, hello=hello, server_nonce="n"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.ARTIFACT_MISMATCH)]


@pytest.mark.parametrize(("low", "high"), [(2, 1), (3, 9), (-1, 0)])
def test_a_hello_without_a_common_version_closes(low: int, high: int) -> None:
    world = World()
    world.issue()
    hello = msgspec.structs.replace(_hello(ticket_offer()), protocol_min=low, protocol_max=high)

    left = world.feed(HelloReceived(connection=FIRST, hello=hello, server_nonce="n"))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.VERSION_RANGE_EMPTY)]


def test_a_lease_reconnects_without_a_token_and_closes_the_older_connection() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))

    left = world.reconnect(2, lease)

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.CONNECTION_SUPERSEDED)]
    welcome = welcome_in(left)
    assert welcome.connection_lease_token is None
    assert welcome.connection_lease_id == lease.lease_id
    assert world.run.live.session is not None
    assert world.run.live.session.number == 2


def test_a_superseded_connection_is_not_listened_to_any_more() -> None:
    world = connected()
    world.reconnect(2, lease_of(1, welcome_in(world.sent)))
    before = world.run

    left = world.say(1, event(1))

    assert left == []
    assert world.run == before


def test_a_newer_bootstrap_ends_the_older_lease() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    fresh = Secret("a fresh ticket")
    world.issue(fresh)
    world.written.clear()

    left = world.bootstrap(2, fresh)
    refused = world.hello(3, lease_offer(lease))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.CONNECTION_SUPERSEDED)]
    ended = [change for change in world.written if isinstance(change, PutCredential)][1]
    assert (ended.lease_id, ended.superseded) == (lease.lease_id, True)
    assert told(refused) == [CloseConnection(ConnectionHandle(3), ErrorCode.CREDENTIAL_REVOKED)]


def test_a_lease_is_challenged_with_its_stored_expiry_only_once_that_is_durable() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.pass_time(10_000)
    offer = lease_offer(lease, renewal_outstanding=True)
    world.driver.feed(renewal(1, lease.expires_at_unix_ms), world.now)
    hello = HelloReceived(connection=SECOND, hello=_hello(offer), server_nonce="n")
    world.driver.feed(hello, world.now)
    assert world.drain() == []

    left = world.settle()

    frame = msgspec.json.decode(challenge_in(left))
    assert frame["payload"]["credentialExpiresAtUnixMs"] == START.unix_ms + 40_000


def test_a_challenge_is_stale_when_its_lease_was_renewed_meanwhile() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    offer = lease_offer(lease)
    frame = challenge_in(world.hello(2, offer))
    world.pass_time(1_000)
    world.feed(renewal(1, lease.expires_at_unix_ms))

    left = world.feed(world.answer(2, offer, lease.token, frame))

    assert told(left) == [CloseConnection(SECOND, ErrorCode.CHALLENGE_STALE)]


def test_old_credentials_are_forgotten_when_there_are_too_many() -> None:
    world = World()
    tokens = [Secret(f"ticket {number}") for number in range(CREDENTIALS_MAX + 1)]
    for token in tokens:
        world.issue(token)

    forgotten = world.hello(1, ticket_offer(tokens[0]))

    assert told(forgotten) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_UNKNOWN)]
    assert challenge_in(world.hello(2, ticket_offer(tokens[1])))
    held = world.run.durable.credentials
    assert len(held) == CREDENTIALS_MAX
    assert set(world.run.live.deadlines) == {credential.credential_id for credential in held}


def _hello(offer: ClientOffer) -> AuthHello:
    return read_hello(client_hello(offer))
