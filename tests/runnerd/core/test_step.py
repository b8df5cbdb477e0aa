"""Any input in any state: never an exception, and the invariants hold after each step."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.envelope import (
    Ack,
    CommandResultAck,
    Deliver,
    LeaseRenewed,
    Ping,
    Revoke,
    WarmTransitionActivatedAck,
)
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, ControllerSeq, Generation, RevocationEpoch, SourceSeq
from runnerd.core import state_codec, step
from runnerd.core.actions import SendEvent, SendPong
from runnerd.core.inputs import (
    ConnectFailed,
    ConnectionLost,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    Input,
    OrphanSettled,
    Started,
    StopRequested,
    TimePassed,
    WriteFailed,
)
from runnerd.core.outbox import outbox_bytes
from runnerd.core.state import Durable, Lifecycle, Runner
from tests.runnerd.core.world import BIRTH, IDENTITY, PREPARE, SETTINGS, World, exited

COMMANDS = (
    "run.prepare",
    "run.attach",
    "session.open",
    "session.close",
    "session.snapshot",
    "turn.start",
    "turn.steer",
    "turn.interrupt",
    "run.cancel",
    "runner.drain",
    "runner.suspend",
    "runner.shutdown",
)


def every_input(world: World) -> list[Input]:
    """One of each input that can reach a runner, valid and stale ones, for the present state."""
    generation = world.durable.generation
    stale = Generation(generation + 5)
    connection = world.binding.connection_id
    newest = world.durable.next_source_seq - 1
    next_seq = ControllerSeq(world.durable.last_controller_command_seq + 1)
    return [
        Started(),
        Started(OrphanSettled(generation, "gone")),
        world.welcome(),
        world.welcome(bootstrap=False),
        world.welcome(lease_ms=0),
        ConnectFailed(code=ErrorCode.PEER_TIMEOUT),
        ConnectFailed(code=ErrorCode.PROOF_INVALID, credential_spent=True),
        ConnectionLost(connection, ErrorCode.FRAME_MALFORMED),
        ConnectionLost(ConnectionId("connection_999"), ErrorCode.CONNECTION_LOST),
        *(
            world.received(
                Deliver(
                    world.command(
                        name,
                        PREPARE if name == "run.prepare" else None,
                        controller_seq=next_seq,
                        command_id=f"id_{name}_{next_seq}",
                    )
                )
            )
            for name in COMMANDS
        ),
        world.received(Ack(SourceSeq(newest))),
        world.received(Ack(SourceSeq(0))),
        world.received(Ack(SourceSeq(newest + 1))),
        world.received(
            LeaseRenewed(
                previous_expires_at_unix_ms=1,
                connection_lease_expires_at_unix_ms=2,
                connection_lease_revocation_epoch=RevocationEpoch(0),
            )
        ),
        world.received(Revoke(RevocationEpoch(1))),
        world.received(Revoke(RevocationEpoch(0))),
        world.received(Ping()),
        world.received(WarmTransitionActivatedAck("x")),
        world.received(
            CommandResultAck(
                command_id="x", command_type="runner.shutdown", controller_seq=1, status="completed"
            )
        ),
        world.received(world.welcome().welcome),
        HarnessSpawned(generation, BIRTH),
        HarnessSpawned(stale, BIRTH),
        HarnessStartFailed(generation, "no"),
        HarnessOutput(generation, ("a", "\0\u2028")),
        HarnessOutput(stale, ("a",)),
        exited(generation, 0),
        exited(generation, None, 9),
        exited(stale),
        StopRequested(15),
        StopRequested(15, count=2),
        TimePassed(),
    ]


def history(name: str) -> World:
    world = World()
    if name == "new":
        return world
    world.connect()
    if name in ("prepared", "starting", "running", "stopping", "ended"):
        world.prepare()
    if name == "starting":
        world.control(Deliver(world.command("turn.start")))
    if name in ("running", "stopping", "ended"):
        world.start_turn()
    match name:
        case "stopping":
            world.deliver("run.cancel")
        case "ended":
            world.exit()
        case "draining":
            world.deliver("runner.drain")
        case "shutting_down":
            world.deliver("runner.shutdown")
        case "revoked":
            world.control(Revoke(RevocationEpoch(1)))
        case "stopped_by_signal":
            world.feed(StopRequested(15))
        case "disconnected":
            world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
        case "lease_over":
            world.later(30_000, TimePassed())
        case _:
            assert name in ("ready", "prepared", "starting", "running")
    return world


HISTORIES = (
    "new",
    "ready",
    "prepared",
    "starting",
    "running",
    "stopping",
    "ended",
    "draining",
    "shutting_down",
    "revoked",
    "stopped_by_signal",
    "disconnected",
    "lease_over",
)
INPUTS = len(every_input(World()))


def assert_invariants(before: Durable, runner: Runner) -> None:
    after = runner.durable
    assert after.acked_source_seq >= before.acked_source_seq
    assert after.next_source_seq >= before.next_source_seq
    assert after.last_controller_command_seq >= before.last_controller_command_seq
    assert after.generation >= before.generation
    assert after.lines_accepted >= before.lines_accepted
    assert not (before.run_terminal and not after.run_terminal)
    assert [e.source_seq for e in after.outbox] == list(
        range(after.acked_source_seq + 1, after.next_source_seq)
    )
    assert runner.live.outbox_bytes == outbox_bytes(after.outbox, IDENTITY)
    assert after.peak_outbox_bytes >= runner.live.outbox_bytes
    kept = {
        entry.source_seq: bytes(entry.body)
        for entry in before.outbox
        if entry.source_seq <= runner.live.frozen_through or entry.priority < 2
    }
    assert all(kept.get(e.source_seq, bytes(e.body)) == bytes(e.body) for e in after.outbox)
    assert state_codec.load(state_codec.encode(after), SETTINGS) == after
    step.next_deadline(runner)


@pytest.mark.parametrize("number", range(INPUTS))
@pytest.mark.parametrize("name", HISTORIES)
def test_every_input_in_every_state_keeps_the_invariants(name: str, number: int) -> None:
    world = history(name)
    before = world.durable

    world.driver.feed(every_input(world)[number], world.now)

    assert_invariants(before, world.runner)
    world.settle()


@given(st.lists(st.tuples(st.integers(0, INPUTS), st.integers(0, 9_000)), max_size=40))
def test_any_sequence_of_inputs_keeps_the_invariants(moves: list[tuple[int, int]]) -> None:
    world = World()
    for number, pause_ms in moves:
        before = world.durable
        world.mono += pause_ms
        if number == INPUTS:
            if world.driver.next_write() is not None:
                world.driver.write_failed()
                world.driver.feed(WriteFailed(errno=28), world.now)
        else:
            world.driver.feed(every_input(world)[number], world.now)
        assert_invariants(before, world.runner)
        if pause_ms % 2:
            world.settle()


@given(st.lists(st.integers(0, INPUTS - 1), max_size=30))
def test_bytes_of_a_sequence_number_never_change(moves: list[int]) -> None:
    world = World()
    for number in moves:
        world.driver.feed(every_input(world)[number], world.now)
        world.settle()

    sent: dict[int, bytes] = {}
    for action in world.left:
        if isinstance(action, SendEvent):
            assert sent.setdefault(action.source_seq, action.body) == action.body


def test_pong_reports_lifecycle_and_cursor() -> None:
    world = history("draining")
    world.ack()

    [pong] = [a.pong for a in world.control(Ping()) if isinstance(a, SendPong)]

    assert msgspec.to_builtins(pong) == {
        "lifecycle": Lifecycle.DRAINING.value,
        "ackedSourceSeq": 1,
        "outboxBytes": 0,
    }


def test_one_write_serves_a_batch_of_inputs() -> None:
    world = history("running")
    writes = world.writes

    world.feed(*(HarnessOutput(world.durable.generation, (f"line {n}",)) for n in range(10)))

    assert world.writes == writes + 1


def test_replayed_history_gives_the_same_state_and_actions() -> None:
    first, second = history("ended"), history("ended")

    assert first.left == second.left
    assert first.durable == second.durable
