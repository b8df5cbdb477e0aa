"""An end that the run's log has holds, whatever came between its record and its telling (D9)."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.ids import Generation
from protocol.limits import SNAPSHOT_EVENT_BYTES_MAX
from runnerd.core import state_codec
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import HarnessExited, OrphanSettled, Started, StopRequested
from runnerd.core.state import Lifecycle
from runnerd.core.turns import judge
from runnerd.core.verdict import Outcome, Recorded, Verdict
from tests.runnerd.core.world import SETTINGS, World, exited

DONE = Verdict(
    outcome=Outcome(
        turn_state="completed", run_state="succeeded", reason="successful_process_and_result"
    )
)
UNRECORDED = Verdict(
    outcome=Outcome(turn_state="failed", run_state="failed", reason="run_state_failed")
)
SNAPSHOT: dict[str, JsonValue] = {"schemaVersion": 1}
DIGEST = "ab" * 32


def working() -> World:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()
    return world


def recorded(
    world: World, verdict: Verdict, *, size: int = 20, code: int | None = 0, sig: int | None = None
) -> HarnessExited:
    return msgspec.structs.replace(
        exited(world.durable.generation, code, sig),
        recorded=Recorded(
            verdict=verdict,
            snapshot=None if verdict.outcome is None else SNAPSHOT,
            snapshot_bytes=size,
            snapshot_sha256=DIGEST,
        ),
    )


def terminal(world: World) -> dict[str, Any]:
    [payload] = [
        event["payload"] for event in world.events() if event["eventType"] == "run.terminal"
    ]
    assert isinstance(payload, dict)
    return payload


def test_run_carries_its_snapshot_and_the_digest_of_it() -> None:
    world = working()

    world.feed(recorded(world, DONE))

    payload = terminal(world)
    assert payload["snapshot"] == SNAPSHOT
    assert payload["snapshotDigest"] == "sha256:" + DIGEST
    assert payload["snapshotBytes"] == 20


@pytest.mark.parametrize("size", [SNAPSHOT_EVENT_BYTES_MAX + 1, 1 << 30])
def test_snapshot_that_does_not_fit_an_event_is_named_by_its_digest(size: int) -> None:
    world = working()

    world.feed(recorded(world, DONE, size=size))

    payload = terminal(world)
    assert "snapshot" not in payload
    assert (payload["snapshotDigest"], payload["snapshotBytes"]) == ("sha256:" + DIGEST, size)


def test_exit_status_0_is_no_success_when_the_log_could_not_keep_it() -> None:
    world = working()

    world.feed(recorded(world, UNRECORDED))

    payload = terminal(world)
    assert payload["runTerminalState"] == "failed"
    assert payload["reconciliation"]["reason"] == "run_state_failed"


def test_success_that_was_not_proven_leaves_the_run_to_another_turn() -> None:
    world = working()

    world.feed(recorded(world, Verdict(reason="verification_missing")))

    assert "run.terminal" not in world.event_types()
    [interrupted] = [e for e in world.events() if e["eventType"] == "turn.interrupted"]
    assert isinstance(interrupted["payload"], dict)
    assert interrupted["payload"]["reason"] == "verification_missing"
    assert not world.durable.run_terminal


@pytest.mark.parametrize("code", [0, 1])
def test_stop_between_record_and_telling_changes_nothing(code: int) -> None:
    world = working()
    judged = judge(world.runner, exited(world.durable.generation, code))
    assert judged is not None
    world.feed(StopRequested(15))

    world.feed(recorded(world, judged, code=code))

    assert terminal(world)["runTerminalState"] == ("succeeded" if code == 0 else "failed")


def test_restart_that_was_recorded_is_an_interruption_once_the_runner_stops() -> None:
    world = World()
    world.connect()
    world.deliver(
        "run.prepare",
        {"provider": {"kind": "command", "argv": ["x"], "cwd": "/", "harnessRestartsMax": 1}},
    )
    world.deliver("session.open")
    world.start_turn()
    judged = judge(world.runner, exited(world.durable.generation, None, 9))
    assert judged is not None
    assert judged.restarts
    world.feed(StopRequested(15))

    left = world.feed(recorded(world, judged, code=None, sig=9))

    assert [action for action in left if isinstance(action, StartHarness)] == []
    assert "run.terminal" not in world.event_types()
    assert "turn.interrupted" in world.event_types()


def test_judgement_is_what_the_end_becomes_when_nothing_comes_between() -> None:
    for code, sig in ((0, None), (3, None), (None, 9), (None, None)):
        plain, logged = working(), working()
        end = exited(plain.durable.generation, code, sig)
        judged = judge(logged.runner, end)
        assert judged is not None

        plain.feed(end)
        logged.feed(msgspec.structs.replace(end, recorded=Recorded(verdict=judged)))

        assert logged.events() == plain.events()


def test_end_of_another_generation_is_nobody_s() -> None:
    world = working()

    assert judge(world.runner, exited(Generation(7))) is None


def test_end_that_an_earlier_process_recorded_is_told_by_the_next_one() -> None:
    before = working()
    end = recorded(before, DONE)
    assert before.stored is not None
    durable = state_codec.load(before.stored, SETTINGS)
    orphan = OrphanSettled(before.durable.generation, "gone")

    again = World(durable, started=Started(orphan, end))
    again.connect()

    assert "turn.interrupted" not in again.event_types()
    assert terminal(again)["snapshot"] == SNAPSHOT
    assert again.durable.lifecycle is Lifecycle.TERMINAL
    assert again.durable.turn is None
