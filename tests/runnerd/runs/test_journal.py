"""The journal: numbers, what comes too late, what is poisoned, and no success unproven."""

import errno
import os
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.journal import RunJournal, durability_of
from runnerd.runs.memory_log import MemoryLog
from runnerd.runs.operation import accept_operation, transition
from runnerd.runs.records import (
    Durability,
    OperationEvent,
    RecordKind,
    RunRecord,
    VerificationPayload,
    struct_members,
)
from runnerd.runs.run_writer import Acknowledgement, Boundary
from tests.runnerd.runs.logs import NOW, RUN, store_in

CRITICAL, ORDINARY = Durability.CRITICAL, Durability.ORDINARY
PASSED = VerificationPayload(
    exit_proven=True, result_valid=True, receipts_settled=True, no_unsafe_call=True
)
COMPLETE: JsonValue = {"event": "COMPLETE"}


class Ledger(MemoryLog):
    """A log in memory that passes for a file, for tests of what is admitted."""

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        return super().append(record, ORDINARY)


def trace(number: int, event: JsonValue) -> JsonValue:
    return {
        "eventId": f"e{number}",
        "runId": RUN,
        "sequence": number,
        "timestamp": NOW,
        "event": event,
    }


def receipt(status: str, **members: JsonValue) -> JsonValue:
    return {
        "type": "effect_receipt",
        "idempotencyKey": "k",
        "tool": "write",
        "status": status,
        **members,
    }


def refusal(journal: RunJournal, kind: RecordKind, payload: JsonValue = None) -> ErrorCode:
    with pytest.raises(PrpError) as caught:
        journal.append(kind, payload, timestamp=NOW)
    return caught.value.code


def verified(journal: RunJournal, payload: VerificationPayload = PASSED) -> None:
    journal.append(RecordKind.VERIFICATION, struct_members(payload), timestamp=NOW)


def test_facts_are_numbered_in_the_order_of_their_coming() -> None:
    log = MemoryLog(RUN)
    journal = RunJournal(log)

    numbers = [
        journal.append(RecordKind.EVENT, {"n": n}, timestamp=NOW).record.sequence for n in range(3)
    ]

    assert numbers == [1, 2, 3]
    assert [record.payload for record in log.records] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_journal_continues_the_log_it_is_given(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    RunJournal(run).append(RecordKind.START, {}, timestamp=NOW)
    run.close()
    again = store.open_run(RUN)

    appended = RunJournal(again).append(RecordKind.RESUME, {}, timestamp=NOW)

    assert appended.record.sequence == 2
    again.close()
    store.close()


@pytest.mark.parametrize("end", [RecordKind.PAUSE, RecordKind.FINISH])
def test_nothing_follows_an_end(end: RecordKind) -> None:
    log = MemoryLog(RUN)
    journal = RunJournal(log)
    journal.append(end, {}, timestamp=NOW)

    for kind in RecordKind:
        assert refusal(journal, kind) is ErrorCode.FACT_LEDGER_TERMINAL
    assert len(log.records) == 1


def test_finished_log_takes_nothing_from_a_later_journal() -> None:
    log = MemoryLog(RUN)
    RunJournal(log).append(RecordKind.FINISH, {}, timestamp=NOW)

    assert refusal(RunJournal(log), RecordKind.RESUME) is ErrorCode.FACT_LEDGER_TERMINAL


class FullDisk(PosixFilesystem):
    """A disk that is full after so many writes."""

    def __init__(self) -> None:
        self.is_full = False

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, data)


def test_failed_write_poisons_the_journal_and_is_never_skipped_over(tmp_path: Path) -> None:
    fs = FullDisk()
    store = store_in(tmp_path, fs=fs)
    run = store.open_run(RUN)
    journal = RunJournal(run)
    journal.append(RecordKind.START, {}, timestamp=NOW)

    fs.is_full = True
    assert refusal(journal, RecordKind.EVENT) is ErrorCode.RUN_STATE_FAILED
    fs.is_full = False

    for kind in (RecordKind.EVENT, RecordKind.FINISH):
        assert refusal(journal, kind) is ErrorCode.FACT_LEDGER_POISONED
    with pytest.raises(PrpError) as caught:
        journal.flush()
    assert caught.value.code is ErrorCode.RUN_STATE_FAILED
    assert (journal.status.is_poisoned, journal.status.failed_sequence) == (True, 2)
    run.close()
    assert len(store.read(RUN).records) == 1
    store.close()


def test_record_that_no_log_takes_poisons_the_journal_too() -> None:
    journal = RunJournal(MemoryLog(RUN))

    broken = trace(1, {"type": "tool_call", "tool": 5})

    assert refusal(journal, RecordKind.EVENT, broken) is ErrorCode.RUN_STATE_CORRUPT
    assert journal.status.is_poisoned


@pytest.mark.parametrize(
    ("event", "is_admitted"),
    [
        ({"type": "tool_result", "turnId": "t1"}, False),
        ({"type": "turn_end", "turnId": "t1"}, False),
        (receipt("started", turnId="t2"), False),
        (receipt("committed", turnId="t2"), False),
        (receipt("unknown"), False),
        (receipt("unknown", turnId="t1"), True),
        (receipt("not_started", turnId="t2"), True),
        ({"type": "text_delta"}, True),
    ],
    ids=str,
)
def test_late_events_are_dropped_and_counted_after_the_cancel_mark(
    event: JsonValue, is_admitted: bool
) -> None:
    journal = RunJournal(Ledger(RUN))
    journal.mark_aborted(["t1"])
    journal.mark_aborted(["t2"])

    appended = journal.admit(trace(1, event), timestamp=NOW)

    assert (appended is not None) is is_admitted
    assert journal.status.rejected_after_abort == (not is_admitted)


@pytest.mark.parametrize("entry", [None, 5, "x", [], {}, {"event": 5}, {"note": 1}], ids=str)
def test_entries_that_tell_of_no_event_pass_the_cancel_mark(entry: JsonValue) -> None:
    journal = RunJournal(MemoryLog(RUN))
    journal.mark_aborted([])

    if entry == {"event": 5}:
        with pytest.raises(PrpError):
            journal.admit(entry, timestamp=NOW)
    else:
        assert journal.admit(entry, timestamp=NOW) is not None
    assert journal.status.rejected_after_abort == 0


def test_receipt_needs_a_text_for_its_turn_exactly() -> None:
    journal = RunJournal(Ledger(RUN))
    journal.mark_aborted(["1"])

    assert journal.admit(trace(1, receipt("started", turnId="1")), timestamp=NOW) is not None
    assert journal.admit({"event": receipt("started", turnId=1)}, timestamp=NOW) is None


def test_every_event_is_admitted_before_the_cancel_mark() -> None:
    journal = RunJournal(Ledger(RUN))

    assert journal.admit(trace(1, {"type": "turn_end"}), timestamp=NOW) is not None


def test_success_is_not_claimed_without_a_verification() -> None:
    log = MemoryLog(RUN)
    journal = RunJournal(log)

    assert refusal(journal, RecordKind.OPERATION, COMPLETE) is ErrorCode.VERIFICATION_MISSING
    assert not journal.status.is_poisoned
    verified(journal)
    journal.append(RecordKind.OPERATION, COMPLETE, timestamp=NOW)
    assert [record.kind for record in log.records] == [
        RecordKind.VERIFICATION,
        RecordKind.OPERATION,
    ]


@pytest.mark.parametrize(
    "failed", ["exit_proven", "result_valid", "receipts_settled", "no_unsafe_call"]
)
def test_verification_counts_only_when_all_of_it_holds(failed: str) -> None:
    journal = RunJournal(MemoryLog(RUN))
    values = {name: name != failed for name in VerificationPayload.__struct_fields__}
    verified(journal)
    verified(journal, VerificationPayload(**values))

    assert refusal(journal, RecordKind.OPERATION, COMPLETE) is ErrorCode.VERIFICATION_MISSING


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (RecordKind.START, {}),
        (RecordKind.RESUME, {}),
        (RecordKind.ADMISSION, {}),
        (RecordKind.OPERATION, {"event": "START"}),
        (RecordKind.OPERATION, {"event": "RESUME"}),
        (RecordKind.EVENT, trace(1, {"type": "tool_call", "tool": "write"})),
        (RecordKind.EVENT, trace(1, receipt("not_started"))),
        (RecordKind.VERIFICATION, {"exitProven": 1}),
        (RecordKind.VERIFICATION, None),
    ],
    ids=str,
)
def test_verification_is_over_when_work_goes_on(kind: RecordKind, payload: JsonValue) -> None:
    journal = RunJournal(MemoryLog(RUN))
    verified(journal)
    journal.append(kind, payload, timestamp=NOW)

    assert refusal(journal, RecordKind.OPERATION, COMPLETE) is ErrorCode.VERIFICATION_MISSING


def test_verification_still_holds_after_a_restart(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    verified(RunJournal(run))
    run.close()
    run = store.open_run(RUN)

    RunJournal(run).append(RecordKind.OPERATION, COMPLETE, timestamp=NOW)

    run.close()
    store.close()


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (RecordKind.PAUSE, {}, CRITICAL),
        (RecordKind.FINISH, {}, CRITICAL),
        (RecordKind.CHECKPOINT, {}, CRITICAL),
        (RecordKind.VERIFICATION, {}, CRITICAL),
        (RecordKind.TELEMETRY_CONSENT, {}, CRITICAL),
        (RecordKind.TELEMETRY_CONFIGURATION, {}, CRITICAL),
        (RecordKind.OPERATION, {"event": "ACCEPT"}, CRITICAL),
        (RecordKind.OPERATION, {"event": "START"}, ORDINARY),
        (RecordKind.EVENT, trace(1, receipt("not_started")), ORDINARY),
        (RecordKind.EVENT, trace(1, receipt("started")), CRITICAL),
        (RecordKind.EVENT, trace(1, receipt("committed")), CRITICAL),
        (RecordKind.EVENT, trace(1, receipt("unknown")), CRITICAL),
        (RecordKind.EVENT, trace(1, {"type": "tool_attempt"}), CRITICAL),
        (RecordKind.EVENT, trace(1, {"type": "approval_resolved"}), CRITICAL),
        (RecordKind.EVENT, trace(1, {"type": "policy_denied"}), CRITICAL),
        (RecordKind.EVENT, trace(1, {"type": "tool_result"}), ORDINARY),
        (RecordKind.START, {}, ORDINARY),
        (RecordKind.EVENT, None, ORDINARY),
    ],
    ids=str,
)
def test_facts_are_as_durable_as_their_kind_demands(
    kind: RecordKind, payload: JsonValue, expected: Durability
) -> None:
    assert durability_of(kind, payload) is expected


def test_caller_may_ask_for_more_durability_and_never_for_less(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    journal = RunJournal(run)

    more = journal.append(RecordKind.START, {}, timestamp=NOW, durability=CRITICAL)
    less = journal.append(RecordKind.CHECKPOINT, {}, timestamp=NOW, durability=ORDINARY)

    assert more.acknowledgement.achieved is CRITICAL
    assert less.acknowledgement.achieved is CRITICAL
    assert less.acknowledgement.boundary is Boundary.PROCESS_CRASH
    run.close()
    store.close()


def test_log_in_memory_takes_a_life_and_no_effect() -> None:
    journal = RunJournal(MemoryLog(RUN))
    operation = accept_operation(run_id=RUN, operation_id="o", event_id="a", timestamp=NOW)
    started = transition(operation, OperationEvent.START, event_id="b", timestamp=NOW)
    for record in started.operation.records:
        journal.append(RecordKind.OPERATION, struct_members(record), timestamp=NOW)

    code = refusal(journal, RecordKind.EVENT, trace(1, receipt("started")))

    assert code is ErrorCode.DURABILITY_UNSUPPORTED
