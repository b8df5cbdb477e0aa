"""A run on a real disk: left in doubt, decided, resumed and completed, all through its log."""

from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.effect_facts import rules_of
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.journal import RunJournal
from runnerd.runs.operation import Operation, transition
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.records import Durability, OperationEvent, RecordKind, struct_members
from runnerd.runs.resume import decide_resume, prepare_run_resume
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.run_store import OpenRun, RunStore
from runnerd.runs.verification import check_completion
from tests.runnerd.runs.run_script import AT, CONFIG, RUN, Script

CALL = call_identity("main", "s1", "c1")


def store_in(path: Path) -> RunStore:
    return RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), str(path / "runs"))


def entry(number: int, event: dict[str, JsonValue]) -> JsonValue:
    return {
        "eventId": f"e{number}",
        "runId": RUN,
        "sequence": number,
        "timestamp": AT,
        "event": event,
    }


def leave_in_doubt(store: RunStore) -> None:
    """Write a run up to the start of its only effect, and stop there."""
    run = store.open_run(RUN)
    journal = RunJournal(run)
    for record in Script().records:
        journal.append(record.kind, record.payload, timestamp=AT)
    coordinator = EffectCoordinator(RUN)
    call: dict[str, JsonValue] = {
        "type": "tool_call", "agent": "main", "stepId": "s1", "turnId": "t1", "callId": "c1",
        "tool": "write", "args": {"path": "a.md"},
    }  # fmt: skip
    for number, event in enumerate((*coordinator.record(call), coordinator.start(CALL, "write"))):
        journal.admit(entry(number, event), timestamp=AT)
    run.close()


def decide(store: RunStore) -> None:
    run = store.open_run(RUN)
    record = reconcile_effect(
        collect_facts(run.records()),
        "c1",
        DecidedOutcome.COMMITTED,
        decided_by=Decider(kind=DeciderKind.PERSON, name="R. Example"),
        evidence=evidence_of(b"the file is there"),
        decided_at=AT,
    )
    run.append(record, Durability.CRITICAL)
    run.close()


def operate(journal: RunJournal, operation: Operation, event: OperationEvent) -> Operation:
    change = transition(operation, event, event_id=f"x{len(operation.records)}", timestamp=AT)
    assert change.record is not None
    journal.append(RecordKind.OPERATION, struct_members(change.record), timestamp=AT)
    return change.operation


def test_run_in_doubt_is_refused_until_it_is_decided_and_then_completes(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    leave_in_doubt(store)
    before = prepare_run_resume(store.scan(RUN), config_fingerprint=CONFIG)
    decide(store)
    run = store.open_run(RUN)

    decision = prepare_run_resume(run.records(), config_fingerprint=CONFIG)
    assert decision.plan is not None
    operation = resume(run, decision.plan.operation)

    assert before.refusal is not None
    assert before.refusal.code is ErrorCode.UNKNOWN_EFFECT
    assert before.refusal.evidence.sequence == 5
    assert operation.is_terminal
    run.close()
    after = prepare_run_resume(store.scan(RUN), config_fingerprint=CONFIG)
    assert after.refusal is not None
    assert after.refusal.code is ErrorCode.OPERATION_NOT_RESUMABLE
    store.close()


def resume(run: OpenRun, operation: Operation | None) -> Operation:
    """Finish the run as a host would; success is refused before its verification is written."""
    assert operation is not None
    journal = RunJournal(run)
    journal.append(RecordKind.RESUME, {"completedStepIds": [], "resumedAt": AT}, timestamp=AT)
    for event in (OperationEvent.PAUSE, OperationEvent.RESUME):
        operation = operate(journal, operation, event)
    output: dict[str, JsonValue] = {"type": "step_output", "stepId": "s1", "text": "done"}
    journal.admit(entry(9, output), timestamp=AT)
    with pytest.raises(PrpError, match="verification_missing"):
        operate(journal, operation, OperationEvent.COMPLETE)
    facts = collect_facts(run.records())
    completion = check_completion(facts, exit_proven=True, result_valid=True)
    journal.append(RecordKind.VERIFICATION, struct_members(completion.payload), timestamp=AT)
    assert completion.code is None
    return operate(journal, operation, OperationEvent.COMPLETE)


def test_log_of_ours_is_judged_by_our_rules(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    leave_in_doubt(store)
    run = store.open_run(RUN)
    output: dict[str, JsonValue] = {"type": "step_output", "stepId": "s1", "text": "done"}
    RunJournal(run).admit(entry(9, output), timestamp=AT)
    run.close()
    log = store.read(RUN)

    decision = decide_resume(
        collect_facts(log.records), config_fingerprint=CONFIG, rules=rules_of(log.end.log_format)
    )

    assert decision.refusal is not None
    assert decision.refusal.code is ErrorCode.UNKNOWN_EFFECT
    store.close()
