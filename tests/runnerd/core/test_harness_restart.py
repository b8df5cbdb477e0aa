"""A program that is lost within its turn: started again where its provider allows it."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.envelope import Deliver
from protocol.errors import ErrorCode
from protocol.ids import Generation
from runnerd.core.actions import ReadHarness, ReleaseHarness, StartHarness, TellHarness
from runnerd.core.harness_messages import Concluded, Ready
from runnerd.core.inputs import (
    HarnessSpawned,
    HarnessStartFailed,
    ProcessExit,
    StopRequested,
    TimePassed,
)
from runnerd.core.state import Lifecycle
from tests.runnerd.core.talk import SPEAKING, SUCCESS, Talk, after_restart, talking
from tests.runnerd.core.world import BIRTH, IDENTITY, World, exited

PRINTING: dict[str, JsonValue] = {
    "provider": {"kind": "command", "argv": ["x"], "cwd": "/", "harnessRestartsMax": 2}
}
SECOND = Generation(2)


def test_a_lost_program_is_exited_ready_and_reconciled_under_the_same_ids() -> None:
    world = talking()
    first = len(world.events())
    before = world.durable

    world.lost(9)
    world.feed(HarnessSpawned(SECOND, BIRTH))
    world.say(Ready())

    told = [(e["eventType"], e["priority"], e["payload"]) for e in world.events()[first:]]
    (exit_type, exit_priority, gone), starting, ready, reconciled = told
    assert (exit_type, exit_priority) == ("harness.exited", 0)
    assert isinstance(gone, dict)
    assert (gone["generation"], gone["reason"], gone["recoverable"]) == (1, "harness_lost", True)
    assert gone["processExit"] == {"exitCode": None, "success": False, "signal": 9}
    assert starting == ("harness.starting", 1, {"generation": 2, "driverKind": "jsonl"})
    assert ready == (
        "harness.ready",
        0,
        {"generation": 2, "driverKind": "jsonl", "transport": "stdio_jsonl"},
    )
    assert reconciled == (
        "session.reconciled",
        0,
        {
            "outcome": "same_session_resumed",
            "generation": 2,
            "turnOrdinal": 1,
            "runId": IDENTITY.run_id,
            "normalizedSessionId": IDENTITY.normalized_session_id,
            "turnId": IDENTITY.turn_id,
            "itemId": IDENTITY.item_id,
        },
    )
    assert world.durable.identity == before.identity
    assert world.durable.turns_started == 1
    assert world.durable.turn is not None
    assert (world.durable.turn.ordinal, world.durable.turn.restarts) == (1, 1)


def test_orders_follow_the_new_generation_and_its_birth_comes_before_its_release() -> None:
    world = talking()
    first = len(world.left)

    world.lost()
    assert orders(world, first) == [(StartHarness, 2)]
    world.feed(HarnessSpawned(SECOND, BIRTH))

    assert orders(world, first)[1:] == [(ReleaseHarness, 2), (ReadHarness, 2)]
    [start] = [a for a in world.left[first:] if isinstance(a, StartHarness)]
    assert start.launch_mark == f"{world.durable.state_id}.2"
    assert start.lines_accepted == world.durable.lines_accepted > 0


def orders(world: World, first: int) -> list[tuple[type, Generation]]:
    kinds = (StartHarness, ReleaseHarness, ReadHarness, TellHarness)
    return [(type(a), a.generation) for a in world.left[first:] if isinstance(a, kinds)]


def test_the_new_program_gets_the_same_turn_and_nothing_of_the_old_dialogue() -> None:
    world = Talk().begin(input="do it")
    world.say(Ready())
    world.lost()
    world.feed(HarnessSpawned(SECOND, BIRTH))

    world.say(Ready())

    session, turn = world.take_told()
    assert (session["generation"], session["resumed"]) == (2, True)
    assert turn == {"type": "turn.start", "input": "do it"}


def test_the_start_is_answered_once() -> None:
    world = talking()
    seq = world.durable.last_controller_command_seq
    world.lost()
    world.feed(HarnessSpawned(SECOND, BIRTH))

    [record] = [r for r in world.durable.commands if r.controller_seq == seq]

    assert record.result is not None
    assert msgspec.json.decode(record.result.result)["generation"] == 1


def test_only_so_many_losses_are_made_up_for() -> None:
    world = talking()
    world.lost()
    world.feed(HarnessSpawned(SECOND, BIRTH))
    world.say(Ready())

    terminal = world.ends(exit=ProcessExit(success=False, signal=9))

    assert terminal["reconciliation"]["reason"] == "harness_process_failed"
    assert world.durable.lifecycle is Lifecycle.TERMINAL


ENDS: dict[str, dict[str, Any]] = {
    "a status": {"exit": ProcessExit(exit_code=1, success=False)},
    "success": {"exit": ProcessExit(exit_code=0, success=True)},
    "an unknown end": {"exit": ProcessExit()},
    "a violation": {"violation": ErrorCode.HARNESS_MESSAGE_INVALID},
    "survivors": {"exit": ProcessExit(success=False, signal=9), "survivors": 1},
}


@pytest.mark.parametrize("name", ENDS)
def test_only_a_signal_counts_as_lost(name: str) -> None:
    world = talking()

    world.ends(**ENDS[name])

    assert world.durable.turn is None
    assert world.generation == 1


@pytest.mark.parametrize("command", ["turn.interrupt", "run.cancel"])
def test_a_program_that_is_being_stopped_is_not_started_again(command: str) -> None:
    world = talking()
    world.deliver(command)

    world.lost(15)

    assert world.durable.turn is None
    assert world.durable.run_terminal


def test_a_program_that_had_concluded_is_not_started_again() -> None:
    world = talking()
    world.say(Concluded(SUCCESS))

    world.lost()

    assert world.durable.run_terminal


def test_nothing_is_started_again_while_the_runner_ends() -> None:
    world = talking()
    world.feed(StopRequested(15))

    world.lost()

    assert world.durable.turn is None
    assert "turn.interrupted" in world.event_types()


def test_without_leave_of_the_provider_a_loss_is_the_end() -> None:
    provider = SPEAKING["provider"]
    assert isinstance(provider, dict)
    world = Talk().begin({"provider": {**provider, "harnessRestartsMax": 0}})
    world.say(Ready())

    world.lost()

    assert world.durable.run_terminal
    assert world.generation == 1


def test_a_program_that_only_prints_is_started_again_too() -> None:
    world = World()
    world.connect()
    world.deliver("run.prepare", PRINTING)
    world.deliver("session.open")
    world.start_turn()
    world.lines("one")
    first = len(world.events())

    world.exit(None, 9)
    world.feed(HarnessSpawned(SECOND, BIRTH))
    world.lines("two")

    told = [e["eventType"] for e in world.events()[first:]]
    assert told == [
        "harness.exited",
        "harness.starting",
        "harness.ready",
        "session.reconciled",
        "item.delta",
    ]
    line = world.events()[-1]["payload"]
    assert isinstance(line, dict)
    assert line["lineNumber"] == 2


def test_a_new_program_that_does_not_start_fails_the_turn() -> None:
    world = talking()
    world.lost()

    world.feed(HarnessStartFailed(SECOND, "no such program"))

    assert world.durable.turn is None
    assert world.event_types()[-1] == "turn.failed"
    assert world.durable.run_terminal is False


def test_the_turn_gets_no_more_time_by_a_restart() -> None:
    world = Talk().begin(turnTimeoutMs=10_000)
    world.say(Ready())
    world.later(6_000, TimePassed())
    world.lost()
    world.feed(HarnessSpawned(SECOND, BIRTH))

    world.later(3_999, TimePassed())
    assert world.stops() == []
    world.later(1, TimePassed())

    assert world.stops() == ["timeout"]


@pytest.mark.parametrize("is_spawned", [False, True])
def test_a_runner_that_dies_during_a_restart_interrupts_the_turn_honestly(
    is_spawned: bool,
) -> None:
    world = talking()
    world.lost()
    if is_spawned:
        world.feed(HarnessSpawned(SECOND, BIRTH))

    again = after_restart(world)

    assert again.event_types()[-2:] == ["turn.interrupted", "harness.exited"]
    assert again.generation == 2
    again.control(Deliver(again.command("turn.start")))
    assert again.generation == 3


def test_what_is_said_of_the_old_generation_after_its_end_is_nobodys() -> None:
    world = talking()
    world.lost()
    before = world.durable

    world.feed(exited(Generation(1), 0), HarnessSpawned(Generation(1), BIRTH))

    assert world.durable == before
