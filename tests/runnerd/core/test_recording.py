"""What waits for the log of the run: calls, answers and the next program, never the reverse."""

import msgspec
import pytest

from protocol.base.clock import MonoMs
from protocol.envelope import CommandResultAck, Deliver
from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import STORAGE_RETRY_MS
from runnerd.core.actions import Exit, RecordCancel, RecordFacts, SendEvent, StartHarness
from runnerd.core.harness_messages import Asked, Diagnosed
from runnerd.core.inputs import (
    CancelRecorded,
    FactsRecorded,
    HarnessMessages,
    HarnessStartFailed,
    StopRequested,
    TimePassed,
)
from runnerd.core.run_fact import CallFact, EffectWord, RequestFact, RunFact
from runnerd.core.verdict import CANCELLED, Recorded, Verdict
from tests.runnerd.core.talk import Talk, after_restart, called, said
from tests.runnerd.core.world import SETTINGS, exited

LOGGED = msgspec.structs.replace(SETTINGS, keeps_run_log=True)


def logged() -> Talk:
    return Talk(settings=LOGGED).ready()


def calling() -> Talk:
    world = logged()
    world.call()
    return world


def stage_call(world: Talk) -> None:
    """Feed a call without a write: it is staged and on no disk."""
    world.driver.feed(HarnessMessages(world.generation, (called(),)), world.now)


def due(world: Talk) -> tuple[RunFact, ...]:
    """Return what the last order names."""
    orders = [action for action in world.left if isinstance(action, RecordFacts)]
    return orders[-1].facts if orders else ()


def record(world: Talk) -> Talk:
    world.feed(FactsRecorded(facts=due(world)))
    return world


def refuse(world: Talk, fault: ErrorCode) -> Talk:
    world.feed(FactsRecorded(facts=due(world), fault=fault))
    return world


def inputs_sent(world: Talk) -> int:
    return len(world.payloads("semantic_tool.input"))


def test_a_call_leaves_only_after_it_is_recorded_as_begun() -> None:
    world = calling()

    [fact] = due(world)
    assert isinstance(fact, CallFact)
    assert (fact.call_id, fact.operation_id, fact.effect) == ("call_1", "create_task", None)
    assert inputs_sent(world) == 0

    record(world)

    assert inputs_sent(world) == 1


def test_what_is_recorded_was_durable_before() -> None:
    world = logged()
    stage_call(world)

    assert world.driver.next_action() is None
    world.settle()

    assert due(world)


def test_events_before_the_call_do_not_wait_and_those_behind_it_do() -> None:
    world = logged()
    sent = len(world.events())
    world.say(Asked(request_id="ask_1", kind="input", question={"q": 1}))
    world.call()
    assert len(world.events()) == sent + 1

    world.call("call_2")
    world.feed(FactsRecorded(facts=tuple(f for f in _open(world) if "call_2" not in str(f))))

    assert inputs_sent(world) == 1
    assert [p["semantic_tool"]["callId"] for p in world.payloads("semantic_tool.input")] == [
        "call_1"
    ]


def _open(world: Talk) -> set[RunFact]:
    return set(world.runner.live.recording)


@pytest.mark.parametrize(
    ("result", "effect"),
    [
        ({"isError": False}, "committed"),
        ({"isError": True}, "unknown"),
        ({"isError": True, "result": {"outcome": "denied"}}, "not_started"),
        ({"isError": True, "result": {"outcome": "failed"}}, "unknown"),
        ({"isError": True, "result": {"effect": "not_started"}}, "not_started"),
        ({"isError": True, "result": {"effect": "committed"}}, "committed"),
        ({"isError": True, "result": {"effect": "surely"}}, "unknown"),
        # A result that is no error has happened, whatever it says of itself.
        ({"isError": False, "result": {"effect": "not_started"}}, "committed"),
    ],
)
def test_a_result_is_recorded_with_its_effect_before_the_program_is_told(
    result: dict[str, object], effect: EffectWord
) -> None:
    world = record(calling())

    world.answer(**result)

    [fact] = due(world)
    assert isinstance(fact, CallFact)
    assert (fact.effect, fact.is_error) == (effect, result["isError"])
    assert fact.result_digest is not None
    assert world.take_told() == []

    record(world)

    [line] = world.take_told()
    assert line["type"] == "semantic_tool.result"


def test_an_answer_is_recorded_with_its_decision_before_the_program_is_told() -> None:
    world = logged()
    world.say(Asked(request_id="ask_1", kind="permission", question={"q": 1}))
    [asked] = due(world)
    assert isinstance(asked, RequestFact)
    assert (asked.request_id, asked.kind, asked.decision) == ("ask_1", "permission", None)
    record(world)

    world.resolve(resolution={"decision": "deny"})

    [answered] = due(world)
    assert isinstance(answered, RequestFact)
    assert answered.decision == "deny"
    assert world.take_told() == []
    assert [line["resolution"] for line in record(world).take_told()] == [{"decision": "deny"}]


@pytest.mark.parametrize(
    ("resolution", "decision"),
    [
        ({"allow": True}, "approved"),
        ({"allow": False}, "denied"),
        ({"text": "the second"}, "answered"),
        ({"decision": "x" * 65}, "answered"),
        ({"decision": "a\nb"}, "answered"),
        ({"decision": ["deny"]}, "answered"),
        ({"decision": "Bearer abcdefghijklmnop"}, "Bearer [REDACTED]"),
    ],
)
def test_a_decision_is_one_short_word_of_the_answer(
    resolution: dict[str, object], decision: str
) -> None:
    world = logged()
    world.say(Asked(request_id="ask_1", kind="permission", question={"q": 1}))
    record(world)

    world.resolve(resolution=resolution)

    [fact] = due(world)
    assert isinstance(fact, RequestFact)
    assert fact.decision == decision


def test_most_steps_order_nothing_again() -> None:
    world = record(calling())
    orders = [action for action in world.left if isinstance(action, RecordFacts)]

    world.say(*[Diagnosed("note", "text")] * 5)
    world.feed(TimePassed())

    assert [a for a in world.left if isinstance(a, RecordFacts)] == orders


def test_a_disk_that_refuses_is_tried_again_and_the_call_waits_so_long() -> None:
    world = refuse(calling(), ErrorCode.DURABILITY_BARRIER_FAILED)
    orders = len([a for a in world.left if isinstance(a, RecordFacts)])
    assert inputs_sent(world) == 0
    assert world.stops() == []

    world.mono = MonoMs(world.mono + STORAGE_RETRY_MS)
    world.feed(TimePassed())

    assert len([a for a in world.left if isinstance(a, RecordFacts)]) == orders + 1
    record(world)
    assert inputs_sent(world) == 1


def test_a_log_that_takes_nothing_ends_the_turn_by_name() -> None:
    world = refuse(calling(), ErrorCode.RUN_STATE_CORRUPT)

    assert world.stops() == ["unrecorded"]
    payload = world.ends(143)
    assert payload["runTerminalState"] == "failed"
    assert payload["reconciliation"]["reason"] == "durability_barrier_failed"


def test_an_order_that_may_be_lost_is_given_again() -> None:
    world = logged()
    stage_call(world)
    world.write_fails()
    assert due(world) == ()

    world.mono = MonoMs(world.mono + STORAGE_RETRY_MS)
    world.feed(TimePassed())

    assert due(world) != ()


def test_a_lost_program_is_started_again_when_its_calls_have_their_results() -> None:
    world = record(calling())
    first = len(world.left)

    world.lost()
    assert [a for a in world.left[first:] if isinstance(a, StartHarness)] == []
    world.answer()

    assert [type(a) for a in world.left[first:] if isinstance(a, RecordFacts | StartHarness)] == [
        RecordFacts,
        StartHarness,
    ]
    assert world.durable.generation == Generation(2)


def test_a_cancel_does_not_wait_for_a_result_that_may_never_come() -> None:
    world = record(calling())
    world.lost()

    assert said(world.deliver("run.cancel"))[0] == "completed"
    # The log refuses another attempt, and nothing of it has run.
    world.feed(HarnessStartFailed(Generation(2), "unknown_effect"))

    [payload] = world.payloads("run.terminal")
    assert payload["runTerminalState"] == "cancelled"


def test_a_restarted_runner_records_an_open_call_before_it_leaves() -> None:
    world = calling()
    assert inputs_sent(world) == 0

    again = after_restart(world)

    assert [type(f) for f in due(again)] == [CallFact]
    assert [a for a in again.left if isinstance(a, SendEvent)] != []
    assert inputs_sent(again) == 0
    assert inputs_sent(record(again)) == 1


def cancelled_between_turns() -> Talk:
    world = logged()
    world.feed(StopRequested(15))
    world.feed(exited(world.generation, 143))
    again = after_restart(world)
    again.deliver("run.cancel")
    return again


def test_a_run_that_is_cancelled_while_nothing_runs_is_told_when_its_log_says_so() -> None:
    world = cancelled_between_turns()
    orders = [action for action in world.left if isinstance(action, RecordCancel)]
    assert (len(orders), world.payloads("run.terminal")) == (1, [])
    assert world.durable.run_terminal

    recorded = Recorded(
        verdict=Verdict(outcome=CANCELLED),
        snapshot={"schemaVersion": 1},
        snapshot_bytes=19,
        snapshot_sha256="0" * 64,
    )
    world.feed(CancelRecorded(recorded))
    world.feed(CancelRecorded(recorded))

    [payload] = world.payloads("run.terminal")
    assert payload["runTerminalState"] == "cancelled"
    assert payload["snapshot"] == {"schemaVersion": 1}


def test_a_cancelled_run_is_told_also_when_its_log_takes_nothing() -> None:
    world = cancelled_between_turns()

    world.feed(CancelRecorded(None))

    [payload] = world.payloads("run.terminal")
    assert "snapshot" not in payload


def test_a_cancelled_run_that_nobody_was_told_of_is_recorded_after_a_restart() -> None:
    world = cancelled_between_turns()

    again = after_restart(world)

    assert [a for a in again.left if isinstance(a, RecordCancel)] != []
    again.feed(CancelRecorded(None))
    assert len(again.payloads("run.terminal")) == 1


def test_an_end_waits_for_the_record_of_a_cancel() -> None:
    world = cancelled_between_turns()

    result = world.deliver("runner.shutdown")
    world.ack()
    world.control(
        CommandResultAck(
            command_id=result.command_id,
            controller_seq=result.controller_seq,
            command_type=result.command_type,
            status=result.status,
        )
    )
    assert not any(isinstance(action, Exit) for action in world.left)

    world.feed(CancelRecorded(None))
    world.ack()

    assert len(world.payloads("run.terminal")) == 1
    assert world.left[-1] == Exit(None)


def test_without_a_log_nothing_waits() -> None:
    world = Talk().ready()

    world.call()

    assert due(world) == ()
    assert inputs_sent(world) == 1


def test_a_question_that_is_open_waits_for_the_next_program_to_be_there() -> None:
    """Whether the log takes another attempt is said by its beginning, and by nothing before."""
    world = logged()
    world.say(Asked(request_id="ask_1", kind="input", question={"q": 1}))
    record(world)
    world = after_restart(world)
    world.left.clear()

    world.control(Deliver(world.command("turn.start")))
    assert not due(world)
    assert any(isinstance(action, StartHarness) for action in world.left)
    world.feed(HarnessStartFailed(world.generation, reason="run_state_corrupt: line 3"))

    assert [payload["reason"] for payload in world.payloads("turn.failed")] == [
        "harness_start_failed"
    ]
    assert not world.payloads("run.terminal")


@pytest.mark.parametrize("fault", [ErrorCode.RUN_STATE_CORRUPT, ErrorCode.RUN_STATE_LOCKED])
def test_a_log_that_refuses_a_decision_ends_no_turn_that_has_not_begun(fault: ErrorCode) -> None:
    world = after_restart(record(calling()))
    world.left.clear()
    world.answer()
    facts = due(world)
    assert facts
    world.control(Deliver(world.command("turn.start")))

    world.feed(FactsRecorded(facts=facts, fault=fault))

    assert world.durable.turn is not None
    assert world.durable.turn.intent is None
