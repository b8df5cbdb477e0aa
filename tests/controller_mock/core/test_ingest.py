"""Order, replay and the integrity latch."""

import msgspec
import pytest

from controller_mock.core.actions import (
    CloseConnection,
    CountRedelivery,
    PutEvent,
    PutRun,
    SendControl,
)
from controller_mock.core.digest_window import window_of
from controller_mock.core.inputs import (
    ConnectionHandle,
    IntegrityConflictFound,
    MessageReceived,
    MessageRefused,
)
from controller_mock.core.state import Run
from protocol.canonical_json import JsonValue
from protocol.envelope import Ack, EventMessage
from protocol.errors import ErrorCode
from protocol.events import runner_event
from protocol.ids import SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    IDENTITY,
    START,
    World,
    closes_in,
    connected,
    digest_of,
    event,
    event_message,
    lease_of,
    messages_in,
    told,
    welcome_in,
)

FIRST = ConnectionHandle(1)


def _refused(code: ErrorCode) -> MessageRefused:
    return MessageRefused(FIRST, code)


def test_the_next_event_is_stored_and_acknowledged_when_it_arrives() -> None:
    world = connected()
    world.written.clear()
    message = event(1)

    left = world.say(1, message)

    assert left == [SendControl(connection=FIRST, message=Ack(SourceSeq(1)), envelope_id="ack_1")]
    put, row = world.written
    assert put == PutEvent(
        source_seq=SourceSeq(1),
        source_event_id="event_runner-1_0000000000000001",
        event_type="item.delta",
        priority=2,
        digest=message.digest,
        body=message.body,
        received_at_unix_ms=START.unix_ms,
        connection_number=1,
    )
    assert isinstance(row, PutRun)
    assert row.acked_source_seq == 1


def test_acks_name_each_event_when_many_share_a_commit() -> None:
    world = connected()
    for seq in (1, 2, 3):
        world.driver.feed(_received(event(seq)), world.now)
    assert world.drain() == []

    left = world.settle()

    assert messages_in(left) == [Ack(SourceSeq(seq)) for seq in (1, 2, 3)]
    assert [change.source_seq for change in world.written if isinstance(change, PutEvent)] == [
        1,
        2,
        3,
    ]


def test_a_gap_closes_and_stores_nothing_when_an_event_is_skipped() -> None:
    world = connected()
    world.say(1, event(1))
    before = world.run.durable

    left = world.say(1, event(3))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.EVENT_GAP)]
    assert world.run.durable == before
    assert world.run.live.session is None


def test_a_repeated_event_is_counted_and_acknowledged_with_the_cursor_when_it_is_equal() -> None:
    world = connected()
    world.say(1, event(1))
    world.say(1, event(2))
    world.written.clear()

    left = world.say(1, event(1))

    assert messages_in(left) == [Ack(SourceSeq(2))]
    counted, row = world.written
    assert counted == CountRedelivery(SourceSeq(1))
    assert isinstance(row, PutRun)
    assert (row.acked_source_seq, row.replay_deliveries) == (2, 1)


def test_a_repeated_event_latches_the_fault_when_it_differs() -> None:
    world = connected()
    welcome = welcome_in(world.sent)
    world.say(1, event(1))

    left = world.say(1, event(1, "another"))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.EVENT_IDENTITY_CONFLICT)]
    assert world.driver.committed.durable.integrity_fault == "event_identity_conflict"
    world.reconnect(2, lease_of(1, welcome))
    for message in (event(1), event(2)):
        left = world.say(2, message)
        assert messages_in(left) == []
    assert world.run.durable.acked_source_seq == 1


def test_an_event_is_refused_while_the_fault_is_latched() -> None:
    world = connected()
    welcome = welcome_in(world.sent)
    world.feed(_refused(ErrorCode.SEMANTIC_DIGEST_MISMATCH))
    world.reconnect(2, lease_of(1, welcome))

    left = world.say(2, event(1))

    assert closes_in(left) == [CloseConnection(ConnectionHandle(2), ErrorCode.INTEGRITY_LATCHED)]
    assert world.run.durable.acked_source_seq == 0


def test_the_latch_keeps_its_first_fault_when_another_follows() -> None:
    world = connected()
    welcome = welcome_in(world.sent)
    world.feed(_refused(ErrorCode.SEMANTIC_DIGEST_MISMATCH))
    world.reconnect(2, lease_of(1, welcome))

    world.feed(IntegrityConflictFound(SourceSeq(7)))
    world.feed(MessageRefused(ConnectionHandle(2), ErrorCode.SEMANTIC_DIGEST_MISMATCH))

    assert world.run.durable.integrity_fault == "semantic_digest_mismatch"


def test_an_event_is_too_old_to_judge_when_its_digest_is_no_longer_held() -> None:
    world = connected()
    world.say(1, event(1))
    run = world.run
    durable = msgspec.structs.replace(
        run.durable,
        acked_source_seq=SourceSeq(4),
        digests=window_of(SourceSeq(3), digest_of(3) + digest_of(4)),
    )
    world = World(Run(run.config, run.revision, durable, run.live))

    left = world.say(1, event(2))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.EVENT_WINDOW_EXCEEDED)]
    assert world.run.durable == durable


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_the_first_terminal_event_decides_the_run_when_several_arrive(state: str) -> None:
    world = connected()

    world.say(1, _terminal(1, state))
    world.say(1, _terminal(2, "failed"))

    assert world.run.durable.run_terminal_state == state
    (*_, row) = world.written
    assert isinstance(row, PutRun)
    assert row.run_terminal_state == state


def test_a_malformed_frame_is_counted_without_a_write_of_its_own() -> None:
    world = connected()
    world.written.clear()

    left = world.feed(_refused(ErrorCode.FRAME_NOT_AUTHENTIC))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.FRAME_NOT_AUTHENTIC)]
    assert world.run.durable.malformed_frames == 1
    assert world.written == []
    world.issue(Secret("another"))
    assert world.driver.committed.durable.malformed_frames == 1


def test_a_refused_message_changes_nothing_durable_when_it_was_authentic() -> None:
    world = connected()
    before = world.run.durable

    left = world.feed(_refused(ErrorCode.EVENT_INVALID))

    assert told(left) == [CloseConnection(FIRST, ErrorCode.EVENT_INVALID)]
    assert world.run.durable == before


def test_a_digest_mismatch_latches_nothing_when_the_lease_is_over() -> None:
    world = connected()
    world.pass_time(30_000)

    left = world.feed(_refused(ErrorCode.SEMANTIC_DIGEST_MISMATCH))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.CREDENTIAL_EXPIRED)]
    assert world.run.durable.integrity_fault is None


def test_a_stranger_latches_nothing_when_its_frame_is_refused() -> None:
    world = connected()
    stranger = ConnectionHandle(9)

    left = world.feed(MessageRefused(stranger, ErrorCode.SEMANTIC_DIGEST_MISMATCH))

    assert told(left) == [CloseConnection(stranger, ErrorCode.SEMANTIC_DIGEST_MISMATCH)]
    assert world.run.live.session is not None
    assert world.run.durable.integrity_fault is None


def test_an_id_conflict_in_the_store_latches_and_is_durable_when_it_is_told() -> None:
    world = connected()

    left = world.feed(IntegrityConflictFound(SourceSeq(2)))

    assert closes_in(left) == [CloseConnection(FIRST, ErrorCode.EVENT_IDENTITY_CONFLICT)]
    assert world.driver.committed.durable.integrity_fault == "event_identity_conflict"


def _received(message: EventMessage) -> MessageReceived:
    return MessageReceived(FIRST, message)


def _terminal(seq: int, state: str) -> EventMessage:
    payload: dict[str, JsonValue] = {
        "schema": "paperclip.prp.terminal.v1",
        "turnTerminalState": "completed",
        "runTerminalState": state,
        "reportedWorkDisposition": "done",
    }
    return event_message(
        runner_event(
            IDENTITY,
            source_seq=SourceSeq(seq),
            event_type="run.terminal",
            priority=0,
            payload=payload,
            emitted_at="2026-01-02T03:04:05.678Z",
        )
    )
