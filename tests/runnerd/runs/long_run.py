"""A run as long as wanted, of ten completed steps and one open one, as records or as a file.

It decides what stands in it. It refuses to know what is measured with it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import capability_event, resolve_capability
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.run_file import run_file_name
from runnerd.runs.run_log import LogFormat, encode_line, spell_record
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event
from tests.runnerd.runs.run_script import AT, RUN, Script

STEPS: Final = 10
OPEN_CALLS: Final = 5


def long_log(records: int) -> Iterator[RunRecord]:
    """Yield that many records, and the few of the calls that are open."""
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


def write_long_log(folder: Path, records: int) -> int:
    """Make the file of such a run in a private folder and return its size."""
    chain = b""
    path = folder / run_file_name(RUN)
    path.touch(mode=0o600)
    with path.open("wb") as file:
        for record in long_log(records):
            line = encode_line(spell_record(record), LogFormat.CHAINED, chain)
            chain = line.chain
            file.write(line.line)
    return path.stat().st_size


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
