"""A fresh ticket ends the incarnation before it, which is told once the new lease is stored."""

from controller_mock.core.actions import CloseConnection, PutCredential, SendControl
from controller_mock.core.inputs import ConnectionHandle
from protocol.envelope import Superseded
from protocol.errors import ErrorCode
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    challenge_in,
    connected,
    event,
    lease_of,
    ticket_offer,
    welcome_in,
)

SECOND = Secret("second ticket")


def test_replaced_incarnation_is_told_and_closed_after_the_new_lease_is_durable() -> None:
    world = connected()
    world.issue(SECOND)
    offer = ticket_offer(SECOND)
    frame = challenge_in(world.hello(2, offer))

    world.driver.feed(world.answer(2, offer, SECOND, frame), world.now)
    early = world.drain()
    left = world.settle()

    assert early == []
    assert left[:2] == [
        SendControl(
            connection=ConnectionHandle(1), message=Superseded(), envelope_id="superseded_1"
        ),
        CloseConnection(ConnectionHandle(1), ErrorCode.CONNECTION_SUPERSEDED),
    ]
    assert any(isinstance(change, PutCredential) and change.superseded for change in world.written)


def test_nothing_of_the_replaced_incarnation_is_committed_while_the_new_lease_is_written() -> None:
    world = connected()
    world.issue(SECOND)
    offer = ticket_offer(SECOND)
    frame = challenge_in(world.hello(2, offer))
    world.driver.feed(world.answer(2, offer, SECOND, frame), world.now)

    world.driver.feed(world.said(1, event(1)), world.now)
    world.settle()

    assert world.run.durable.acked_source_seq == 0


def test_reconnect_on_the_same_lease_closes_the_older_connection_without_a_word() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))

    left = world.reconnect(2, lease)

    told = [action for action in left if isinstance(action, SendControl)]
    assert not any(isinstance(action.message, Superseded) for action in told)
