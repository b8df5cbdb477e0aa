"""Planning holds what is open, not what was: counted in objects, not in time."""

import gc
from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import capability_event, resolve_capability
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.resume import decide_resume
from runnerd.runs.run_facts import RunFacts
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event
from tests.runnerd.runs.run_script import AT, CONFIG, RUN, Script

STEPS, OPEN_CALLS = 10, 5
RECORDS = 100_000
NOT_DATA = (type, ModuleType, FunctionType)


def long_log(records: int) -> Iterator[RunRecord]:
    """Yield a log of ten completed steps and one open one, whatever its length."""
    yield from Script().records
    count = len(Script().records)
    coordinator = EffectCoordinator(RUN)
    for step in range(STEPS):
        for event in _step(coordinator, f"s{step}", count, records * (step + 1) // STEPS):
            count += 1
            yield _record(count, event)
    for number in range(OPEN_CALLS):
        for event in _begun(coordinator, "open", number)[:3]:
            count += 1
            yield _record(count, event)


def _step(
    coordinator: EffectCoordinator, step: str, count: int, until: int
) -> Iterator[dict[str, JsonValue]]:
    number = 0
    while count < until - 20:
        for event in _whole_call(coordinator, step, number):
            count += 1
            yield event
        number += 1
    while count < until - 1:
        count += 1
        yield {"type": "text_delta", "delta": "x"}
    yield {"type": "step_output", "stepId": step, "agent": "main", "text": "done"}


def _begun(coordinator: EffectCoordinator, step: str, number: int) -> list[dict[str, JsonValue]]:
    call = call_identity("main", step, f"c{number}")
    events = [*coordinator.record(capability_event(call, resolve_capability("write")))]
    events += coordinator.record(
        {
            "type": "tool_call",
            "agent": "main",
            "stepId": step,
            "turnId": "t1",
            "callId": call.call_id,
            "tool": "write",
            "args": {"path": f"{step}-{number}.md", "text": "x" * 100},
        }
    )
    return [*events, coordinator.start(call, "write")]


def _whole_call(
    coordinator: EffectCoordinator, step: str, number: int
) -> Iterator[dict[str, JsonValue]]:
    call = call_identity("main", step, f"c{number}")
    yield from _begun(coordinator, step, number)
    yield from coordinator.record(
        {
            "type": "tool_result",
            "agent": "main",
            "stepId": step,
            "callId": call.call_id,
            "tool": "write",
            "isError": False,
        }
    )
    results: dict[Phase, dict[str, JsonValue]] = {
        Phase.STARTED_DURABLE: {"effectState": "started"},
        Phase.OBSERVED: {"executionOutcome": "returned", "effectState": "committed"},
    }
    for phase in Phase:
        yield lifecycle_event(call, "write", phase, result=results.get(phase))


def _record(sequence: int, event: dict[str, JsonValue]) -> RunRecord:
    entry: JsonValue = {
        "eventId": f"e{sequence}",
        "runId": RUN,
        "sequence": sequence,
        "timestamp": AT,
        "event": event,
    }
    return RunRecord(
        run_id=RUN, sequence=sequence, timestamp=AT, kind=RecordKind.EVENT, payload=entry
    )


def facts_of(records: int) -> RunFacts:
    facts = RunFacts()
    for record in long_log(records):
        facts.apply(record)
    facts.close()
    return facts


def held_by(root: object) -> int:
    """Return how many objects can be reached from ``root``, texts and numbers included."""
    seen = {id(root): root}
    waiting = [root]
    while waiting:
        for held in gc.get_referents(waiting.pop()):
            if id(held) not in seen and not isinstance(held, NOT_DATA):
                seen[id(held)] = held
                waiting.append(held)
    return len(seen)


@pytest.fixture(scope="module")
def long_run() -> RunFacts:
    return facts_of(RECORDS)


def test_facts_of_a_long_log_hold_no_more_than_those_of_a_short_one(long_run: RunFacts) -> None:
    short = facts_of(1_000)

    # Numbers above 256 are objects of their own: a few for each step and open call.
    assert held_by(long_run) <= held_by(short) + 5 * (STEPS + OPEN_CALLS)


def test_plan_of_a_long_log_is_whole(long_run: RunFacts) -> None:
    decision = decide_resume(long_run, config_fingerprint=CONFIG)

    assert long_run.record_count == RECORDS + OPEN_CALLS * 3
    assert len(decision.steps) == STEPS
    assert sum(step.settled_effects for step in decision.steps) > 5_000
    assert len(decision.effects) == OPEN_CALLS
    assert len(long_run.calls.effects) == OPEN_CALLS
