"""How a turn ends: every row of the table, and what facts do to proposals."""

from typing import Any

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from protocol.limits import HARNESS_GRACE_MS
from runnerd.core.harness_messages import Asked, Concluded, Proposed
from runnerd.core.inputs import StopRequested, TimePassed
from tests.runnerd.core.talk import FAILURE, RESULT, SUCCESS, Talk, talking
from tests.runnerd.core.world import PREPARE, World, exited

BLOCKED: dict[str, JsonValue] = {
    **RESULT,
    "reportedWorkDisposition": "blocked",
    "blocker": {
        "reasonCode": "waits",
        "owner": {"kind": "user", "name": "Ada"},
        "unblockAction": "decide",
        "scope": "task_wide",
    },
}
KILLED: dict[str, Any] = {"exit": exited(type(World().durable.generation)(1), None, 9).exit}

# What was said, how it was stopped, how it ended -> turn, run, reason, disposition.
ROWS: dict[str, tuple[tuple[Any, ...], str | None, dict[str, Any], tuple[str, str, str, str]]] = {
    "exit 0 and a result": (
        (Proposed(RESULT),),
        None,
        {},
        ("completed", "succeeded", "successful_process_and_result", "done"),
    ),
    "exit 0, no result": ((), None, {}, ("failed", "failed", "semantic_result_missing", "yielded")),
    "exit 0, a proposal is no result": (
        (Concluded(SUCCESS),),
        None,
        {},
        ("failed", "failed", "semantic_result_missing", "yielded"),
    ),
    "non-zero exit overrides a success proposal": (
        (Proposed(RESULT), Concluded(SUCCESS)),
        None,
        {"code": 1},
        ("failed", "failed", "harness_process_failed", "yielded"),
    ),
    "success facts override a failed proposal": (
        (Proposed(RESULT), Concluded(FAILURE)),
        None,
        {},
        ("completed", "succeeded", "successful_process_and_result", "done"),
    ),
    "the result's disposition comes first": (
        (Proposed(BLOCKED), Concluded(SUCCESS)),
        None,
        {},
        ("completed", "succeeded", "successful_process_and_result", "blocked"),
    ),
    "a failure reports the first that is not done": (
        (Proposed(RESULT), Concluded(FAILURE)),
        None,
        {"code": 2},
        ("failed", "failed", "harness_process_failed", "blocked"),
    ),
    "a message that is none": (
        (Proposed(RESULT), Concluded(SUCCESS)),
        None,
        {"violation": ErrorCode.HARNESS_MESSAGE_INVALID},
        ("failed", "failed", "harness_protocol_violation", "yielded"),
    ),
    "a line that is too long": (
        (),
        None,
        {"violation": ErrorCode.HARNESS_LINE_TOO_LONG},
        ("failed", "failed", "harness_protocol_violation", "yielded"),
    ),
    "never ready": (
        (),
        None,
        {"violation": ErrorCode.HARNESS_NOT_READY},
        ("failed", "failed", "harness_not_ready", "yielded"),
    ),
    "interrupted": (
        (Proposed(RESULT),),
        "turn.interrupt",
        {},
        ("interrupted", "cancelled", "turn_interrupted", "yielded"),
    ),
    "stopped": (
        (),
        "turn.stop",
        {"code": 1},
        ("interrupted", "cancelled", "turn_interrupted", "yielded"),
    ),
    "cancelled": (
        (Proposed(RESULT), Concluded(SUCCESS)),
        "run.cancel",
        {},
        ("cancelled", "cancelled", "run_cancelled", "yielded"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_row_of_the_outcome_table(name: str) -> None:
    said, command, end, expected = ROWS[name]
    world = talking()
    if said:
        world.say(*said)
    if command is not None:
        world.deliver(command)

    terminal = world.ends(**end)

    reconciliation = terminal["reconciliation"]
    assert expected == (
        terminal["turnTerminalState"],
        terminal["runTerminalState"],
        reconciliation["reason"],
        terminal["reportedWorkDisposition"],
    )
    assert reconciliation["authority"] == "runner"
    assert reconciliation["semanticResultObserved"] == any(isinstance(s, Proposed) for s in said)
    proposals = [s.proposal for s in said if isinstance(s, Concluded)]
    assert terminal.get("harnessTerminalProposal") == (proposals[0] if proposals else None)
    assert reconciliation["proposalValid"] == bool(proposals)
    assert reconciliation["proposalContradicted"] == any(
        (proposal["turnTerminalState"], proposal["runTerminalState"]) != expected[:2]
        for proposal in proposals
    )
    assert world.event_types()[-3:] == [f"turn.{expected[0]}", "harness.exited", "run.terminal"]


def test_a_killed_program_failed_although_it_proposed_success() -> None:
    world = talking()
    world.conclude()

    assert world.ends(**KILLED)["reconciliation"]["reason"] == "harness_process_failed"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((Proposed(RESULT), Concluded(SUCCESS)), ("succeeded", "harness_ended_after_terminal")),
        ((Proposed(RESULT), Concluded(FAILURE)), ("failed", "harness_ended_after_terminal")),
        ((Concluded(SUCCESS),), ("failed", "semantic_result_missing")),
    ],
)
def test_a_program_that_lingers_is_ended_and_believed_as_far_as_it_showed(
    messages: tuple[Any, ...], expected: tuple[str, str]
) -> None:
    world = talking()
    world.say(*messages)
    world.later(HARNESS_GRACE_MS, TimePassed())

    terminal = world.ends(**KILLED)

    assert (terminal["runTerminalState"], terminal["reconciliation"]["reason"]) == expected


@pytest.mark.parametrize(
    "proposal",
    [{}, {"turnTerminalState": "great"}, {**SUCCESS, "reportedWorkDisposition": 7}],
)
def test_a_proposal_that_says_nothing_is_not_valid(proposal: dict[str, JsonValue]) -> None:
    world = talking()
    world.conclude(proposal)

    reconciliation = world.ends()["reconciliation"]

    assert reconciliation["proposalValid"] is False
    assert reconciliation["reason"] == "successful_process_and_result"


def test_a_turn_that_the_runner_stopped_says_nothing_of_the_run() -> None:
    world = talking()
    world.say(Asked(request_id="ask_1", kind="input", question={}))
    again = stopped(world)

    assert "run.terminal" not in again.event_types()
    assert again.durable.run_terminal is False
    assert again.durable.requests[0].state == "pending"


def stopped(world: Talk) -> Talk:
    world.feed(StopRequested(15))
    world.feed(exited(world.generation, None, 15))
    return world


def test_a_program_that_only_prints_still_succeeds_by_its_status() -> None:
    world = World()
    world.connect()
    world.deliver("run.prepare", PREPARE)
    world.deliver("session.open")
    world.start_turn()

    world.exit(0)

    assert "run.result.proposed" in world.event_types()
    [terminal] = [e["payload"] for e in world.events() if e["eventType"] == "run.terminal"]
    assert isinstance(terminal, dict)
    assert terminal["reconciliation"] == {
        "authority": "runner",
        "reason": "successful_process_and_result",
        "processExit": {"exitCode": 0, "success": True, "signal": None},
        "semanticResultObserved": True,
    }
