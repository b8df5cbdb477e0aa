"""All facts of one run, taken record by record in persisted order, with what stands against them.

It decides what each record means for a resumption and keeps the first fault of every kind.
It refuses to sort, to stop early, and to hold records: a later fault may outrank an earlier
one, so all are collected and `resume_table` ranks them.

What is held grows with open calls, steps, inputs and transitions, not with records.
"""

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.call_facts import CallFacts
from runnerd.runs.checkpoint_facts import CheckpointFacts
from runnerd.runs.decisions import read_decision
from runnerd.runs.event_types import KNOWN_EVENTS
from runnerd.runs.input_facts import InputFacts
from runnerd.runs.operation import Operation, restore_operation
from runnerd.runs.records import OperationState, RecordKind, RunRecord, TraceEntry, corrupt
from runnerd.runs.resume_table import Evidence, Finding
from runnerd.runs.terminal_rules import LOOP_RULE, TERMINAL_RULE
from runnerd.runs.trace_rules import check_trace

_ACCEPTED: Final = "accepted"
_OF_EFFECTS: Final = (ErrorCode.EFFECT_RECEIPT_CONFLICT, ErrorCode.TOOL_LIFECYCLE_INVALID)
_ENDED: Final = (OperationState.ABORTING, OperationState.COMPLETED, OperationState.FAILED)


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """The last pause or finish of the present attempt."""

    kind: RecordKind
    sequence: int
    payload: Mapping[str, JsonValue]


class RunFacts:
    """One pass over the records of one run."""

    def __init__(self) -> None:
        self.run_id = ""
        self.record_count = 0
        self.trace_sequence = 0
        """The highest number of a trace entry; numbers may skip."""
        self.findings: dict[Finding, Evidence] = {}
        """The first fault of each kind. Those that depend on the question come later."""
        self.calls = CallFacts("")
        self.inputs = InputFacts()
        self.checkpoints = CheckpointFacts()
        self.pending_approvals: dict[str, int] = {}
        self.pending_controls: dict[str, int] = {}
        self.start: dict[str, JsonValue] | None = None
        self.start_sequence: int | None = None
        self.loop_snapshot: dict[str, JsonValue] | None = None
        self.terminal: Terminal | None = None
        self.transitions: list[tuple[int, JsonValue]] = []
        """The operation's records and their numbers."""
        self.operation: Operation | None = None

    def apply(self, record: RunRecord) -> None:
        """Take the next record; faults become findings, nothing is raised."""
        if self.record_count == 0:
            self.run_id = record.run_id
            self.calls = CallFacts(record.run_id)
        self.record_count += 1
        sequence = record.sequence
        if sequence != self.record_count:
            words = f"record {self.record_count} has the number {sequence}"
            self.note(Finding.OUT_OF_ORDER, sequence, words=words)
        if record.run_id != self.run_id:
            self._not_understood(sequence, "a record of another run")
            self.note(Finding.MALFORMED_FACT, sequence, corrupt("a record of another run"))
        payload = None if record.payload is msgspec.UNSET else record.payload
        self._take(record.kind, sequence, payload)

    def close(self) -> None:
        """Judge what only the whole log shows: the operation's chain and what it leads to."""
        if self.record_count == 0:
            self.note(Finding.NO_RECORDS, None)
            return
        if self.start is None:
            self.note(Finding.NO_START, self.start_sequence, words="no start with an object")
        self._restore()
        terminal = self.terminal
        if terminal is not None and error_code(terminal.payload) is ErrorCode.UNCLASSIFIED_ERROR:
            self.note(Finding.NEEDS_PERSON, terminal.sequence)
        if self.inputs.ended_sequence is not None:
            self.note(Finding.INPUT_ENDED, self.inputs.ended_sequence)
        if self.operation is not None and self.operation.state in _ENDED:
            words = self.operation.state.value
            self.note(Finding.OPERATION_ENDED, self.transitions[-1][0], words=words)

    def note(
        self,
        finding: Finding,
        sequence: int | None,
        fault: PrpError | None = None,
        *,
        words: str = "",
    ) -> None:
        """Keep a finding, unless there is one of its kind already."""
        evidence = Evidence(
            sequence=sequence,
            code=None if fault is None else fault.code,
            words=words if fault is None else fault.message,
        )
        self.findings.setdefault(finding, evidence)

    def _take(self, kind: RecordKind, sequence: int, payload: JsonValue) -> None:
        match kind:
            case RecordKind.START:
                self._on_start(sequence, payload)
            case RecordKind.RESUME | RecordKind.ADMISSION:
                self._on_new_attempt(sequence, payload)
            case RecordKind.VERIFICATION:
                self._ask_for_object(sequence, payload)
            case RecordKind.CONTROL:
                self._on_control(sequence, payload)
            case RecordKind.EVENT:
                self._on_event(sequence, payload)
            case RecordKind.CHECKPOINT:
                self._on_checkpoint(sequence, payload)
            case RecordKind.LOOP:
                self._on_loop(sequence, payload)
            case RecordKind.OPERATION:
                self.transitions.append((sequence, payload))
            case RecordKind.PAUSE | RecordKind.FINISH:
                self._on_terminal(kind, sequence, payload)
            case (
                RecordKind.TELEMETRY_CONFIGURATION
                | RecordKind.TELEMETRY_CONSENT
                | RecordKind.DELEGATION
                | RecordKind.CHECKPOINT_RESTORE
            ):
                pass  # Nothing that a resume asks about.
            case _:
                assert_never(kind)

    def _on_start(self, sequence: int, payload: JsonValue) -> None:
        if self.start_sequence is not None:
            return
        self.start_sequence = sequence
        if isinstance(payload, dict):
            kept = ("configFingerprint", "initialPrompt")
            self.start = {name: payload[name] for name in kept if name in payload}
        else:
            self._not_understood(sequence, "start without an object")

    def _on_new_attempt(self, sequence: int, payload: JsonValue) -> None:
        self.terminal = None
        self._ask_for_object(sequence, payload)

    def _on_terminal(self, kind: RecordKind, sequence: int, payload: JsonValue) -> None:
        if kind is RecordKind.FINISH:
            self.note(Finding.FINISHED, sequence)
        misfit = TERMINAL_RULE(payload)
        if misfit is not None:
            self._not_understood(sequence, f"{kind.value}{misfit}")
        members = payload if isinstance(payload, dict) else {}
        operation = members.get("operation")
        if isinstance(operation, dict) and operation.get("runId") != self.run_id:
            self._not_understood(sequence, f"{kind.value} of another run")
        self.terminal = Terminal(kind=kind, sequence=sequence, payload=members)

    def _on_loop(self, sequence: int, payload: JsonValue) -> None:
        misfit = LOOP_RULE(payload)
        if misfit is not None or not isinstance(payload, dict):
            self.note(Finding.MALFORMED_FACT, sequence, corrupt(f"loop{misfit}"))
            return
        configured = None if self.start is None else self.start.get("configFingerprint")
        if (payload["runId"], payload["configFingerprint"]) != (self.run_id, configured):
            self.note(Finding.MALFORMED_FACT, sequence, corrupt("a loop of another run"))
        self.loop_snapshot = payload

    def _on_checkpoint(self, sequence: int, payload: JsonValue) -> None:
        try:
            self.checkpoints.apply(payload, self.run_id)
        except PrpError as error:
            self._not_understood(sequence, error.message)

    def _on_control(self, sequence: int, payload: JsonValue) -> None:
        if not isinstance(payload, dict):
            self._not_understood(sequence, "a control without an object")
            return
        control, status = payload.get("controlId"), payload.get("status")
        if isinstance(control, str):
            if status == _ACCEPTED:
                self.pending_controls.setdefault(control, sequence)
            else:
                self.pending_controls.pop(control, None)
        try:
            decision = read_decision(payload)
            if decision is not None:
                self.calls.decide(sequence, decision)
        except PrpError as error:
            self._note_fault(sequence, error)

    def _on_event(self, sequence: int, payload: JsonValue) -> None:
        try:
            entry = check_trace(payload, self.run_id)
            if entry is None:
                raise corrupt("an event record without a trace event")
        except PrpError as error:
            self.note(Finding.MALFORMED_FACT, sequence, error)
            return
        self.trace_sequence = max(self.trace_sequence, entry.sequence)
        if entry.event_type not in KNOWN_EVENTS:
            self._not_understood(sequence, "an event of an unknown type")
        self._on_entry(sequence, entry)

    def _on_entry(self, sequence: int, entry: TraceEntry) -> None:
        event, kind = entry.event, entry.event_type
        try:
            self.inputs.apply(sequence, event)
        except PrpError as error:
            self.note(Finding.INPUT_OUT_OF_ORDER, sequence, error)
            self._not_understood(sequence, error.message)
        approval = event.get("approvalId")
        if isinstance(approval, str) and kind == "approval_required":
            self.pending_approvals[approval] = sequence
        elif isinstance(approval, str) and kind == "approval_resolved":
            self.pending_approvals.pop(approval, None)
        try:
            self.calls.apply(sequence, event)
        except PrpError as error:
            self._note_fault(sequence, error)
        if kind == "step_output":
            self.checkpoints.forget_unless(self.calls.effects)

    def _ask_for_object(self, sequence: int, payload: JsonValue) -> None:
        if payload is not None and not isinstance(payload, dict):
            self._not_understood(sequence, "a payload that is not an object")

    def _note_fault(self, sequence: int, fault: PrpError) -> None:
        is_effect = fault.code in _OF_EFFECTS
        finding = Finding.CONTRADICTORY_EFFECTS if is_effect else Finding.MALFORMED_FACT
        self.note(finding, sequence, fault)

    def _not_understood(self, sequence: int, words: str) -> None:
        self.note(Finding.FACTS_NOT_UNDERSTOOD, sequence, words=words)

    def _restore(self) -> None:
        if not self.transitions:
            return
        try:
            operation = restore_operation(payload for _, payload in self.transitions)
            if operation.records[0].run_id != self.run_id:
                raise PrpError(ErrorCode.OPERATION_STATE_CORRUPT, "an operation of another run")
            self.operation = operation
        except PrpError as error:
            self.note(Finding.MALFORMED_FACT, self._broken_transition(), error)

    def _broken_transition(self) -> int:
        """Return the record at which the operation's chain breaks."""
        payloads = [payload for _, payload in self.transitions]
        for count, (sequence, _) in enumerate(self.transitions, start=1):
            try:
                restore_operation(payloads[:count])
            except PrpError:
                return sequence
        return self.transitions[0][0]


def collect_facts(records: Iterable[RunRecord]) -> RunFacts:
    """Return the facts of a run after one pass over its records, in the order given."""
    facts = RunFacts()
    for record in records:
        facts.apply(record)
    facts.close()
    return facts


def error_code(payload: Mapping[str, JsonValue]) -> ErrorCode | None:
    """Return the code of the fault in a terminal payload, None for none that is known."""
    outcome = payload.get("outcome")
    error = outcome.get("error") if isinstance(outcome, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    try:
        return ErrorCode(str(code))
    except ValueError:
        return None
