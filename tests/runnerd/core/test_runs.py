"""Whole short runs of the core: turns, restarts and what a controller sees of them."""

import msgspec
import pytest

from protocol.envelope import Deliver, LeaseRenewed
from protocol.errors import ErrorCode
from protocol.ids import Generation, RevocationEpoch
from protocol.limits import OUTBOX_PAUSE_BYTES
from runnerd.core import step
from runnerd.core.actions import (
    Dial,
    ForgetHarness,
    ReadHarness,
    ReleaseHarness,
    SendEvent,
    SendResult,
    StartHarness,
    StopHarness,
)
from runnerd.core.inputs import (
    ConnectionLost,
    HarnessSpawned,
    HarnessStartFailed,
    OrphanSettled,
    TimePassed,
)
from runnerd.core.state import Lifecycle
from tests.runnerd.core.world import BIRTH, World, connected, members, restarted, running


def test_turn_that_outlives_its_explicit_timeout_is_ended_as_failed() -> None:
    world = connected()
    world.prepare()
    world.control(Deliver(world.command("turn.start", {"turnTimeoutMs": 5_000})))
    world.feed(HarnessSpawned(Generation(1), BIRTH))

    assert step.next_deadline(world.runner) == world.mono + 5_000
    early = world.later(4_999, TimePassed())
    due = world.later(1, TimePassed())

    assert not [action for action in early if isinstance(action, StopHarness)]
    assert [a.intent for a in due if isinstance(a, StopHarness)] == ["timeout"]
    world.exit(None, 15)
    payload = world.events()[-1]["payload"]
    assert isinstance(payload, dict)
    assert (payload["runTerminalState"], payload["turnTerminalState"]) == ("failed", "failed")


def test_quiet_turn_without_a_timeout_is_never_ended_by_time() -> None:
    world = running()

    for _ in range(4 * 60 * 24):
        world.later(14_000, TimePassed())
        world.later(1_000, TimePassed())
        lease = world.runner.live.lease
        assert lease is not None
        world.control(
            LeaseRenewed(
                previous_expires_at_unix_ms=lease.expires_at_unix_ms,
                connection_lease_expires_at_unix_ms=world.now.unix_ms + 30_000,
                connection_lease_revocation_epoch=RevocationEpoch(0),
            )
        )

    assert world.durable.turn is not None
    assert not world.exits()


@pytest.mark.parametrize("timeout_ms", [-1, 1.5, True, "1", None, 10**15])
def test_timeout_that_is_no_duration_is_refused(timeout_ms: object) -> None:
    world = connected()
    world.prepare()

    result = world.deliver("turn.start", msgspec.to_builtins({"turnTimeoutMs": timeout_ms}))

    assert members(result)["code"] == "turn_invalid"
    assert world.durable.turn is None


def test_new_runner_is_on_disk_before_it_dials() -> None:
    world = World()

    assert world.stored is not None
    assert [type(action) for action in world.left] == [Dial]


def test_run_ends_with_one_terminal_event_after_its_lines_when_the_program_succeeds() -> None:
    world = running()
    world.lines("one", "two")

    world.exit(0)

    assert world.event_types() == [
        "workspace.ready",
        "session.started",
        "turn.accepted",
        "harness.starting",
        "turn.started",
        "harness.ready",
        "item.started",
        "item.delta",
        "item.delta",
        "item.completed",
        "run.result.proposed",
        "turn.completed",
        "harness.exited",
        "run.terminal",
    ]
    assert [event["sourceSeq"] for event in world.events()] == list(range(1, 15))
    assert world.durable.lifecycle is Lifecycle.TERMINAL
    assert isinstance(world.left[-1], ForgetHarness)


@pytest.mark.parametrize(
    ("command", "code", "turn_state", "run_state", "reason"),
    [
        (None, 0, "completed", "succeeded", "successful_process_and_result"),
        (None, 3, "failed", "failed", "harness_process_failed"),
        ("turn.interrupt", 0, "interrupted", "cancelled", "turn_interrupted"),
        ("turn.stop", 1, "interrupted", "cancelled", "turn_interrupted"),
        ("run.cancel", None, "cancelled", "cancelled", "run_cancelled"),
    ],
)
def test_terminal_event_says_what_the_outcome_table_says(
    command: str | None, code: int | None, turn_state: str, run_state: str, reason: str
) -> None:
    world = running()
    if command is not None:
        assert world.deliver(command).status == "completed"

    world.exit(code)

    terminal = world.events()[-1]
    payload = terminal["payload"]
    assert isinstance(payload, dict)
    assert terminal["eventType"] == "run.terminal"
    assert payload["turnTerminalState"] == turn_state
    assert payload["runTerminalState"] == run_state
    reconciliation = payload["reconciliation"]
    assert isinstance(reconciliation, dict)
    assert reconciliation["reason"] == reason


def test_program_is_released_only_after_its_birth_is_on_disk() -> None:
    world = connected()
    world.prepare()

    world.start_turn()

    orders = [a for a in world.left if isinstance(a, StartHarness | ReleaseHarness | ReadHarness)]
    assert [type(order) for order in orders] == [StartHarness, ReleaseHarness, ReadHarness]
    assert world.driver.committed.durable.turn is not None
    assert world.driver.committed.durable.turn.birth is not None


def test_turn_start_result_precedes_the_events_of_the_started_turn() -> None:
    world = running()

    kinds = [
        action.result.command_type
        if isinstance(action, SendResult)
        else world.durable.outbox[action.source_seq - 1].event_type
        for action in world.left
        if isinstance(action, SendResult | SendEvent)
    ]
    assert kinds.index("turn.start") < kinds.index("turn.started")


def test_failed_start_ends_the_turn_without_effect_and_another_turn_may_follow() -> None:
    world = connected()
    world.prepare()
    world.control(Deliver(world.command("turn.start")))

    actions = world.feed(HarnessStartFailed(Generation(1), "no such program"))

    [result] = [action.result for action in actions if isinstance(action, SendResult)]
    assert result.status == "failed"
    assert members(result) == {
        "code": "harness_start_failed",
        "message": "no such program",
        "logicalEffectCount": 0,
    }
    assert world.event_types()[-1] == "turn.failed"
    world.start_turn()
    assert world.durable.generation == 2


def test_reading_waits_for_room_and_goes_on_after_the_acknowledgement() -> None:
    world = running()
    long_line = "x" * 60_000

    while world.runner.live.outbox_bytes + len(long_line) < OUTBOX_PAUSE_BYTES:
        world.lines(long_line)
    actions = world.lines(long_line)

    assert not [action for action in actions if isinstance(action, ReadHarness)]
    actions = world.ack()
    assert [type(action) for action in actions] == [ReadHarness]


def test_lines_that_fit_no_outbox_fail_the_turn_and_are_not_counted() -> None:
    small = msgspec.structs.replace(
        World().settings, max_outbox_bytes=80_000, p0_reserve_bytes=30_000
    )
    world = World(settings=small)
    world.connect()
    world.prepare()
    world.start_turn()

    actions = world.lines("short", "x" * 60_000)

    assert [a.intent for a in actions if isinstance(a, StopHarness)] == ["overflow"]
    assert world.durable.lines_accepted == 1
    world.exit(None, 15)
    payload = world.events()[-1]["payload"]
    assert isinstance(payload, dict)
    assert payload["runTerminalState"] == "failed"


def test_restart_reports_an_orphaned_turn_as_interrupted_and_the_run_goes_on() -> None:
    world = running()
    world.lines("one")
    world.ack()

    again = restarted(world, OrphanSettled(Generation(1), "ended"))
    again.connect(acked=world.durable.acked_source_seq)

    assert again.event_types() == ["runner.reconciled", "turn.interrupted", "harness.exited"]
    again.start_turn()
    [start] = [action for action in again.left if isinstance(action, StartHarness)]
    assert (start.generation, start.turn_ordinal, start.lines_accepted) == (2, 2, 1)
    again.lines("two")
    again.exit(0)
    assert again.event_types().count("run.terminal") == 1


def test_surviving_orphan_blocks_every_new_turn() -> None:
    world = running()

    again = restarted(world, OrphanSettled(Generation(1), "survived"))
    again.connect()

    assert again.event_types()[-1] == "harness.diagnostic"
    assert members(again.deliver("turn.start"))["code"] == "harness_survived"


def test_pending_turn_start_is_indeterminate_after_a_restart_and_never_run_again() -> None:
    world = connected()
    world.prepare()
    command = world.command("turn.start")
    world.control(Deliver(command))
    assert world.durable.turn is not None

    again = restarted(world, OrphanSettled(Generation(1), "gone"))
    again.connect()
    actions = again.control(Deliver(command))

    [result] = [action.result for action in actions if isinstance(action, SendResult)]
    assert result.status == "indeterminate"
    assert members(result) == {"code": "execution_indeterminate", "logicalEffectCount": None}
    assert not [action for action in again.left if isinstance(action, StartHarness)]


def test_restarts_alone_add_one_reconciled_event() -> None:
    world = connected()

    once = restarted(world)
    twice = restarted(once)

    assert [entry.event_type for entry in twice.durable.outbox] == ["runner.reconciled"]
    assert twice.durable.reconnect_count == 2


def test_lost_connection_keeps_the_turn_and_sends_unacknowledged_events_again() -> None:
    world = running()
    world.lines("one")
    before = [action for action in world.left if isinstance(action, SendEvent)]

    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    world.later(400, TimePassed())
    actions = world.connect(bootstrap=False, acked=2)

    again = [action for action in actions if isinstance(action, SendEvent)]
    assert [(a.source_seq, a.body) for a in again] == [
        (a.source_seq, a.body) for a in before if a.source_seq > 2
    ]
    assert world.durable.turn is not None


def test_lines_become_durable_while_there_is_no_connection() -> None:
    world = running()
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    world.lines("offline")

    assert world.driver.committed.durable.lines_accepted == 1
