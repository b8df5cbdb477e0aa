"""Renewal, expiry and revocation."""

import pytest

from controller_mock.core.actions import (
    CloseConnection,
    PutCredential,
    PutRun,
    Reply,
    SendControl,
)
from controller_mock.core.inputs import ConnectionHandle, RevokeRequested, TimePassed
from controller_mock.core.leases import FLUSH_WAIT_MS
from controller_mock.core.step import next_deadline
from protocol.envelope import Ack, LeaseRenewed, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch, SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    START,
    TICKET,
    World,
    challenge_in,
    closes_in,
    connected,
    event,
    lease_of,
    lease_offer,
    messages_in,
    renewal,
    reply_in,
    result,
    ticket_offer,
    told,
    welcome_in,
)

FIRST, SECOND = ConnectionHandle(1), ConnectionHandle(2)
EXPIRES = START.unix_ms + 30_000


def test_a_renewal_extends_the_lease_from_now_and_is_stored_first() -> None:
    world = connected()
    world.written.clear()
    world.pass_time(15_000)
    world.driver.feed(renewal(1, EXPIRES), world.now)
    assert world.drain() == []

    left = world.settle()

    assert left == [
        SendControl(
            connection=FIRST,
            message=LeaseRenewed(
                previous_expires_at_unix_ms=EXPIRES,
                connection_lease_expires_at_unix_ms=EXPIRES + 15_000,
                connection_lease_revocation_epoch=RevocationEpoch(0),
            ),
            envelope_id=f"lease_renewed_{EXPIRES}",
        )
    ]
    (put,) = world.written
    assert isinstance(put, PutCredential)
    assert put.expires_at_unix_ms == EXPIRES + 15_000


def test_a_renewal_is_answered_with_the_same_extension_when_it_is_repeated() -> None:
    world = connected()
    world.pass_time(15_000)
    first = messages_in(world.feed(renewal(1, EXPIRES)))
    world.pass_time(5_000)
    world.written.clear()

    again = messages_in(world.feed(renewal(1, EXPIRES)))

    assert again == first
    assert world.written == []


@pytest.mark.parametrize(
    ("expires", "epoch"), [(EXPIRES + 1, 0), (0, 0), (-1, 0), (EXPIRES, 1), (EXPIRES, -1)]
)
def test_a_renewal_closes_when_it_names_a_later_expiry_or_another_epoch(
    expires: int, epoch: int
) -> None:
    world = connected()

    left = world.feed(renewal(1, expires, epoch))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.LEASE_RENEWAL_REFUSED)]
    assert world.run.durable.lease is not None
    assert world.run.durable.lease.expires_at_unix_ms == EXPIRES


def test_a_renewal_never_shortens_the_lease_when_the_wall_clock_was_set_back() -> None:
    world = connected()
    world.pass_time(1_000, wall_ms=-3_600_000)

    (answer,) = messages_in(world.feed(renewal(1, EXPIRES)))

    assert isinstance(answer, LeaseRenewed)
    assert answer.connection_lease_expires_at_unix_ms == EXPIRES
    world.pass_time(29_999, wall_ms=0)
    assert messages_in(world.say(1, event(1))) == [Ack(SourceSeq(1))]
    world.pass_time(1, wall_ms=0)
    assert closes_in(world.say(1, event(2))) == [
        CloseConnection(FIRST, ErrorCode.CREDENTIAL_EXPIRED)
    ]


@pytest.mark.parametrize("command", ["runner.suspend", "runner.shutdown"])
def test_a_renewal_goes_unanswered_when_a_terminal_command_is_out(command: str) -> None:
    world = connected(command)

    left = world.feed(renewal(1, EXPIRES))

    assert left == []


@pytest.mark.parametrize(
    ("local_ms", "wall_ms"), [(30_000, 30_000), (30_000, 0), (0, 30_000), (40_000, -9_999)]
)
def test_a_message_closes_when_the_lease_is_over_on_either_clock(
    local_ms: int, wall_ms: int
) -> None:
    for message in (event(1), renewal(1, EXPIRES).message):
        world = connected()
        world.pass_time(local_ms, wall_ms)
        before = world.run.durable

        left = world.say(1, message)

        assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_EXPIRED)]
        assert world.run.durable == before


def test_an_expired_lease_opens_no_connection() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.pass_time(30_000)

    left = world.hello(2, lease_offer(lease))

    assert closes_in(left) == [CloseConnection(SECOND, ErrorCode.CREDENTIAL_EXPIRED)]


def test_the_connection_is_closed_at_the_end_of_its_lease_when_it_is_silent() -> None:
    world = connected()
    deadline = next_deadline(world.run)
    assert deadline == START.mono_ms + 30_000

    world.pass_time(29_999)
    assert world.feed(TimePassed()) == []
    world.pass_time(1)
    left = world.feed(TimePassed())

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_EXPIRED)]
    assert next_deadline(world.run) is None


def test_a_revocation_is_durable_before_anyone_is_told() -> None:
    world = connected()
    world.written.clear()
    request = world.request()
    world.driver.feed(RevokeRequested(request), world.now)
    assert world.drain() == []

    left = world.settle()

    assert told(left) == [
        SendControl(connection=FIRST, message=Revoke(RevocationEpoch(1)), envelope_id="revoke_1"),
        Reply(request=request),
    ]
    lease, row = world.written
    assert isinstance(lease, PutCredential)
    assert (lease.kind, lease.revoked) == ("lease", True)
    assert isinstance(row, PutRun)
    assert row.revocation_epoch == 1


def test_a_revoked_runner_may_flush_but_gets_nothing_when_it_is_connected() -> None:
    world = connected("turn.start")
    command = world.run.durable.open_commands[0].command
    world.feed(RevokeRequested(world.request()))
    world.pass_time(FLUSH_WAIT_MS - 1)

    assert messages_in(world.say(1, event(1))) == [Ack(SourceSeq(1))]
    assert messages_in(world.say(1, result(command))) == []
    assert world.run.durable.open_commands == ()
    assert world.feed(renewal(1, EXPIRES)) == []


def test_a_revoked_connection_is_closed_when_its_time_to_flush_is_over() -> None:
    world = connected()
    world.feed(RevokeRequested(world.request()))
    assert next_deadline(world.run) == world.now.mono_ms + FLUSH_WAIT_MS
    world.pass_time(FLUSH_WAIT_MS)

    left = world.feed(TimePassed())

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_REVOKED)]
    assert next_deadline(world.run) is None


def test_a_message_closes_when_the_time_to_flush_is_over() -> None:
    world = connected()
    world.feed(RevokeRequested(world.request()))
    world.pass_time(FLUSH_WAIT_MS)

    left = world.say(1, event(1))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_REVOKED)]
    assert world.run.durable.acked_source_seq == 0


def test_a_revocation_ends_the_lease_and_unused_tickets() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    unused = Secret("unused")
    world.issue(unused)
    world.feed(RevokeRequested(world.request()))

    by_lease = world.hello(2, lease_offer(lease))
    by_ticket = world.hello(3, ticket_offer(unused))

    assert told(by_lease) == [CloseConnection(SECOND, ErrorCode.CREDENTIAL_REVOKED)]
    assert told(by_ticket) == [CloseConnection(ConnectionHandle(3), ErrorCode.CREDENTIAL_REVOKED)]


def test_an_open_challenge_is_lost_when_the_run_is_revoked() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    (challenge,) = world.hello(1, offer)
    world.feed(RevokeRequested(world.request()))

    left = world.feed(world.answer(1, offer, TICKET, challenge_in([challenge])))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_REVOKED)]


def test_a_ticket_issued_after_the_revocation_may_only_deliver() -> None:
    world = connected("turn.start")
    world.say(1, event(1))
    world.feed(RevokeRequested(world.request()))
    fresh = Secret("to deliver")
    world.issue(fresh)

    welcome = welcome_in(world.bootstrap(2, fresh))

    assert welcome.connection_lease_revocation_epoch == 1
    assert welcome.pending_commands == ()
    assert welcome.acked_source_seq == 1
    assert messages_in(world.say(2, event(2))) == [Ack(SourceSeq(2))]
    assert reply_in(world.queue()).code is ErrorCode.RUNNER_REVOKED
    again = lease_of(2, welcome)
    assert welcome_in(world.reconnect(3, again)).pending_commands == ()


def test_a_second_revocation_changes_nothing() -> None:
    world = connected()
    world.feed(RevokeRequested(world.request()))
    before = world.run

    left = world.feed(RevokeRequested(world.request()))

    assert told(left) == [reply_in(left)]
    assert reply_in(left).code is None
    assert world.run == before


def test_a_revocation_needs_no_connection() -> None:
    world = World()

    left = world.feed(RevokeRequested(world.request()))

    assert reply_in(left).code is None
    assert messages_in(left) == []
    assert world.driver.committed.durable.revocation_epoch == 1
