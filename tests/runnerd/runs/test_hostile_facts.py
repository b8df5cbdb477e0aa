"""Records of any content, in any order: a verdict or a code, never a traceback."""

from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.effect_facts import ResumeRules
from runnerd.runs.event_types import KNOWN_EVENTS
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.projection import project_run
from runnerd.runs.receipts import project_receipts
from runnerd.runs.records import OperationEvent, RecordKind, RunRecord
from runnerd.runs.resume import has_unsafe_call
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event, project_lifecycles
from runnerd.runs.verification import check_completion
from tests.runnerd.runs.run_script import AT, RUN, Script, in_step, resumed

WORDS = st.sampled_from(
    ["", "main", "s1", "c1", "write", "read", RUN, f"{RUN}:s1:c1", f"{RUN}:c1", "started",
     "committed", "not_started", "unknown", "pending", "accepted", "applied", "effect_reconciled",
     "completed", "skipped", "honoured", "\ud800", "a" * 64, AT, *Phase]
)  # fmt: skip
NAMES = st.sampled_from(
    ["type", "agent", "stepId", "callId", "turnId", "tool", "args", "idempotencyKey", "status",
     "binding", "capability", "recoveryDisposition", "resolution", "phase", "result", "reason",
     "attempt", "attemptId", "previousReceiptId", "text", "inputId", "approvalId", "outcome",
     "effectState", "executionOutcome", "externalKey", "controlId", "effectId", "decidedBy",
     "evidence", "operation", "metrics", "checkpointId", "runId", "version", "sequence"]
)  # fmt: skip
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=True)
    | st.integers(2**63, 2**64)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=8,
)


def event_of(kind: str, members: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {**members, "type": kind}


EVENTS = st.builds(
    event_of,
    st.sampled_from([*sorted(KNOWN_EVENTS), "mystery", ""]),
    st.dictionaries(NAMES, JSON, max_size=8),
)


def entry(event: JsonValue) -> JsonValue:
    return {"eventId": "e", "runId": RUN, "sequence": 1, "timestamp": AT, "event": event}


RECORDS = st.tuples(st.just(RecordKind.EVENT), EVENTS.map(entry) | JSON) | st.tuples(
    st.sampled_from(RecordKind), JSON
)


@given(
    begun=st.booleans(),
    payloads=st.lists(RECORDS, max_size=8),
    numbers=st.lists(st.integers(-1, 12), max_size=3),
)
def test_any_log_gets_a_verdict(
    begun: bool, payloads: list[tuple[RecordKind, JsonValue]], numbers: list[int]
) -> None:
    script = Script(begun=begun)
    for kind, payload in payloads:
        script.add(kind, payload)
    for number in numbers:
        script.records.append(
            RunRecord(run_id=RUN, sequence=number, timestamp=AT, kind=RecordKind.RESUME)
        )

    for rules in ResumeRules:
        decision = resumed(script, rules=rules)
        assert (decision.plan is None) == (decision.refusal is not None)
    facts = collect_facts(script.records)
    completion = check_completion(facts, exit_proven=True, result_valid=True)
    assert (completion.code is None) == (not completion.doubts)
    with suppress(PrpError):
        project_run(script.records)


def whole_run() -> list[RunRecord]:
    script = Script()
    call = in_step("c1")
    script.bound(call, "started", "committed")
    for phase in Phase:
        script.told(lifecycle_event(call, "pay", phase))
    script.output("s1")
    script.bound(in_step("c2", "s2"), "started")
    script.operate(OperationEvent.PAUSE, "loop_paused")
    return script.records


WHOLE_RUN = whole_run()


@given(data=st.data())
def test_log_with_changed_members_gets_a_verdict(data: st.DataObject) -> None:
    records = list(WHOLE_RUN)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(records) - 1))
        payload = changed(data, payload_of(records[place]), 4)
        records[place] = msgspec.structs.replace(records[place], payload=payload)

    for rules in ResumeRules:
        decision = resumed(records, rules=rules)
        assert (decision.plan is None) == (decision.refusal is not None)


def payload_of(record: RunRecord) -> JsonValue:
    return None if isinstance(record.payload, msgspec.UnsetType) else record.payload


def changed(data: st.DataObject, value: JsonValue, depth: int) -> JsonValue:
    """Return the value with one member at some depth replaced, taken away or added."""
    if not isinstance(value, dict) or depth == 0 or not value:
        return data.draw(JSON)
    name = data.draw(st.sampled_from([*value, "extra"]))
    if name in value and data.draw(st.booleans()):
        return {key: item for key, item in value.items() if key != name}
    return {**value, name: changed(data, value.get(name), depth - 1)}


@given(st.lists(EVENTS, max_size=6))
def test_any_events_get_a_verdict(events: list[dict[str, JsonValue]]) -> None:
    has_unsafe_call(events, RUN)
    for project in (project_receipts, project_lifecycles):
        with suppress(PrpError):
            project(events)


@given(st.lists(EVENTS | st.none(), max_size=6))
def test_coordinator_takes_any_events(events: list[dict[str, JsonValue] | None]) -> None:
    coordinator = EffectCoordinator(RUN)
    recorded: list[dict[str, JsonValue]] = []
    for event in events:
        with suppress(PrpError):
            if event is None:
                recorded.append(coordinator.start(call_identity("main", "s1", "c1"), "write"))
            else:
                recorded += coordinator.record(event)

    recorded += coordinator.close_open()

    assert coordinator.close_open() == ()
