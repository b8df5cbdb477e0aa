"""The welcome, pings and deadlines."""

import msgspec

from controller_mock.core.actions import CloseConnection, Publish, Reply, SendControl
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, PongRequested, TimePassed
from controller_mock.core.state import new_run
from controller_mock.core.step import next_deadline
from controller_mock.core.view import view
from protocol.envelope import Ping, Pong, WarmTransitionActivated
from protocol.errors import ErrorCode
from protocol.ids import SourceSeq
from tests.controller_mock.core.world import (
    CONFIG,
    IDENTITY,
    START,
    TICKET,
    World,
    challenge_in,
    closes_in,
    connected,
    event,
    lease_of,
    ticket_offer,
    told,
    welcome_in,
)

FIRST = ConnectionHandle(1)
PONG = Pong(lifecycle="active", acked_source_seq=SourceSeq(0), outbox_bytes=12)


def test_the_welcome_has_every_member_that_upstream_sends() -> None:
    world = connected()

    welcome = welcome_in(world.sent)

    assert msgspec.to_builtins(
        msgspec.structs.replace(welcome, lease_binding=msgspec.UNSET, connection_lease_token=None)
    ) == {
        "selectedVersion": 2,
        "heartbeatIntervalMs": 250,
        "connectionLeaseRenewalVersion": 1,
        "connectionLeaseId": "lease-1",
        "connectionLeaseExpiresAt": "2023-11-14T22:13:50.000Z",
        "connectionLeaseExpiresAtUnixMs": START.unix_ms + 30_000,
        "connectionLeaseRevocationEpoch": 0,
        "maxFrameBytes": 1_048_576,
        "maxBatchEvents": 100,
        "ackedSourceSeq": 0,
    }
    assert isinstance(welcome.lease_binding, msgspec.Raw)
    assert msgspec.json.decode(welcome.lease_binding) == {
        "runnerInstanceId": IDENTITY.runner_instance_id,
        "environmentLeaseId": IDENTITY.environment_lease_id,
        "runId": IDENTITY.run_id,
        "normalizedSessionId": IDENTITY.normalized_session_id,
        "protocolVersion": 2,
    }


def test_the_welcome_names_the_cursor_only_once_its_events_are_durable() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.driver.feed(world.said(1, event(1)), world.now)
    left = world.reconnect(2, lease)

    assert welcome_in(left).acked_source_seq == 1
    assert world.driver.committed.durable.acked_source_seq == 1


def test_a_ping_is_sent_and_its_pong_is_shown_while_the_connection_lasts() -> None:
    world = connected()
    request = world.request()

    left = world.feed(PongRequested(request))
    answered = world.say(1, PONG)

    assert left == [
        SendControl(connection=FIRST, message=Ping(), envelope_id=f"ping_{request}"),
        Reply(request=request),
    ]
    assert answered == [Publish()]
    shown = view(world.driver.committed, world.driver.staged)
    assert (shown.runner_lifecycle, shown.runner_outbox_bytes) == ("active", 12)
    world.feed(ConnectionLost(FIRST))
    assert view(world.driver.committed, world.driver.staged).runner_lifecycle is None


def test_a_ping_never_overtakes_a_welcome_that_waits_for_the_store() -> None:
    world = World()
    world.issue()
    offer = ticket_offer()
    frame = challenge_in(world.hello(1, offer))
    world.driver.feed(world.answer(1, offer, TICKET, frame), world.now)
    world.driver.feed(PongRequested(world.request()), world.now)

    assert world.drain() == []

    sent = [found.envelope_id for found in world.settle() if isinstance(found, SendControl)]
    assert sent == ["welcome_1", "ping_2"]


def test_a_ping_is_refused_when_nobody_is_connected() -> None:
    world = World()
    request = world.request()

    left = world.feed(PongRequested(request))

    assert left == [Reply(request=request, code=ErrorCode.CONNECTION_LOST)]


def test_a_warm_transition_that_nobody_offered_closes() -> None:
    world = connected()

    left = world.say(1, WarmTransitionActivated("f" * 64))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.MESSAGE_UNEXPECTED)]


def test_a_lost_connection_is_published_only_when_it_was_the_session() -> None:
    world = connected()

    assert world.feed(ConnectionLost(ConnectionHandle(7))) == []
    assert world.feed(ConnectionLost(FIRST)) == [Publish()]
    assert world.feed(ConnectionLost(FIRST)) == []
    assert next_deadline(world.run) is None


def test_an_open_challenge_is_closed_at_its_deadline() -> None:
    world = World()
    world.issue(ttl_ms=60_000)
    world.hello(1, ticket_offer())
    assert next_deadline(world.run) == START.mono_ms + 5_000
    world.pass_time(4_999)
    assert world.feed(TimePassed()) == []
    world.pass_time(1)

    left = world.feed(TimePassed())

    assert left == [CloseConnection(FIRST, ErrorCode.CHALLENGE_STALE)]
    assert next_deadline(world.run) is None


def test_a_challenge_ends_with_its_ticket_when_that_is_sooner() -> None:
    world = World()
    world.issue(ttl_ms=1_500)
    world.hello(1, ticket_offer())

    assert next_deadline(world.run) == START.mono_ms + 1_500


def test_no_deadline_is_left_behind_when_time_has_passed() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    world.issue(ttl_ms=60_000)
    world.hello(2, ticket_offer())
    world.reconnect(3, lease)
    while (deadline := next_deadline(world.run)) is not None:
        world.pass_time(deadline - world.now.mono_ms)
        assert closes_in(world.feed(TimePassed()))

    assert world.run.live.session is None
    assert world.run.live.handshakes == ()


def test_a_new_run_is_shown_as_nothing_yet() -> None:
    run = new_run(CONFIG)

    shown = view(run, run)

    assert shown.identity == IDENTITY
    assert (shown.connected, shown.connection_count, shown.acked_source_seq) == (False, 0, 0)
    assert (shown.revoked, shown.ended_by, shown.lease_id) == (False, None, None)


def test_the_view_shows_durable_facts_only_once_they_are_committed() -> None:
    world = connected()
    world.driver.feed(world.said(1, event(1)), world.now)
    world.driver.feed(world.requested(), world.now)

    staged = view(world.driver.committed, world.driver.staged)
    world.settle()
    committed = view(world.driver.committed, world.driver.staged)

    assert (staged.acked_source_seq, staged.last_controller_seq, staged.open_commands) == (0, 0, 0)
    assert (committed.acked_source_seq, committed.open_commands) == (1, 1)
    assert committed.outstanding_command_id == "command_prp_00000001"
    assert committed.outstanding_command_type == "turn.start"
    assert staged.connected
    assert (staged.protocol_version, staged.connection_number) == (2, 1)
    assert staged.lease_id == "lease-1"


def test_a_run_for_version_one_speaks_it_when_more_is_offered() -> None:
    config = msgspec.structs.replace(CONFIG, protocol_max=1)
    world = World(new_run(config))
    world.issue()

    left = world.bootstrap()

    assert welcome_in(left).selected_version == 1


def test_a_lease_keeps_its_version_when_it_reconnects() -> None:
    world = World()
    world.issue()
    offer = msgspec.structs.replace(ticket_offer(), protocol_max=1)
    frame = challenge_in(world.hello(1, offer))
    welcome = welcome_in(world.feed(world.answer(1, offer, TICKET, frame)))

    again = welcome_in(world.reconnect(2, lease_of(1, welcome)))

    assert (welcome.selected_version, again.selected_version) == (1, 1)
