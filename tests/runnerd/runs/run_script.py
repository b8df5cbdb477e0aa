"""A run's log as a script: each line adds a record, and a prefix of it is a crash there."""

import msgspec

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import Declaration, ResolvedTool, capability_event, resolve_capability
from runnerd.runs.effect_facts import ResumeRules
from runnerd.runs.fingerprints import CallIdentity, call_identity, fingerprint, idempotency_key
from runnerd.runs.operation import Operation, accept_operation, transition
from runnerd.runs.records import (
    OperationEvent,
    RecordKind,
    RunRecord,
    struct_members,
)
from runnerd.runs.resume import prepare_run_resume
from runnerd.runs.resume_plan import ResumeDecision

RUN = "run-1"
CONFIG = fingerprint({"name": "demo"})
PROMPT = "tidy the notes"
AT = "2026-01-01T00:00:00.000Z"

PAYING = Declaration(
    classes={
        "effect": "external",
        "replay": "idempotent",
        "concurrency": "run_serial",
        "checkpoint": "unsupported",
        "durability": "critical",
    },
    honours_key=True,
)
UPLOADING = msgspec.structs.replace(
    PAYING, classes={**PAYING.classes, "effect": "network"}, honours_key=False
)


class Script:
    """The records so far. Each method adds one and returns its number."""

    def __init__(self, *, begun: bool = True) -> None:
        self.records: list[RunRecord] = []
        self.operation: Operation | None = None
        self._events = 0
        if begun:
            self.add(RecordKind.START, {"configFingerprint": CONFIG, "initialPrompt": PROMPT})
            self.operate(OperationEvent.ACCEPT)
            self.operate(OperationEvent.START)

    def add(self, kind: RecordKind, payload: JsonValue | msgspec.UnsetType = msgspec.UNSET) -> int:
        sequence = len(self.records) + 1
        self.records.append(
            RunRecord(run_id=RUN, sequence=sequence, timestamp=AT, kind=kind, payload=payload)
        )
        return sequence

    def event(self, kind: str, **members: JsonValue) -> int:
        return self.told({"type": kind, **members})

    def told(self, event: dict[str, JsonValue]) -> int:
        self._events += 1
        entry: JsonValue = {
            "eventId": f"e{self._events}",
            "runId": RUN,
            "sequence": self._events,
            "timestamp": AT,
            "event": event,
        }
        return self.add(RecordKind.EVENT, entry)

    def operate(self, event: OperationEvent, reason: str | None = None) -> int:
        event_id = f"o{len(self.records)}"
        if self.operation is None:
            self.operation = accept_operation(
                run_id=RUN, operation_id="op", event_id=event_id, timestamp=AT
            )
        else:
            self.operation = transition(
                self.operation, event, event_id=event_id, timestamp=AT, reason=reason
            ).operation
        return self.add(RecordKind.OPERATION, struct_members(self.operation.records[-1]))

    def call(self, call: CallIdentity, tool: str = "write", **members: JsonValue) -> int:
        event: dict[str, JsonValue] = {
            "type": "tool_call",
            "agent": call.agent,
            "turnId": "t1",
            "callId": call.call_id,
            "tool": tool,
            "args": {"path": "a.md"},
            "idempotencyKey": idempotency_key(RUN, call.step_id, call.call_id),
            **members,
        }
        if call.step_id:
            event["stepId"] = call.step_id
        return self.told(event)

    def capability(self, call: CallIdentity, resolved: ResolvedTool) -> int:
        return self.told(capability_event(call, resolved))

    def receipt(
        self,
        call: CallIdentity,
        status: str,
        tool: str = "write",
        bound_to: ResolvedTool | None = None,
    ) -> int:
        event: dict[str, JsonValue] = {
            "type": "effect_receipt",
            "agent": call.agent,
            "turnId": "t1",
            "callId": call.call_id,
            "tool": tool,
            "status": status,
            "idempotencyKey": idempotency_key(RUN, call.step_id, call.call_id),
        }
        binding: dict[str, JsonValue] = {
            "version": 1,
            "runId": RUN,
            "turnId": "t1",
            "agent": call.agent,
            "callId": call.call_id,
            "tool": tool,
            "argumentsFingerprint": fingerprint({"path": "a.md"}),
        }
        if call.step_id:
            event["stepId"] = binding["stepId"] = call.step_id
        if bound_to is not None:
            event["binding"] = {**binding, "capabilityFingerprint": bound_to.fingerprint}
        return self.told(event)

    def output(self, step_id: str, text: str = "done") -> int:
        return self.event("step_output", stepId=step_id, agent="main", text=text)

    def bound(
        self, call: CallIdentity, *statuses: str, tool: str = "pay", declared: Declaration = PAYING
    ) -> None:
        """Add a call with its capability and its bound receipts."""
        resolved = resolve_capability(tool, declared)
        self.capability(call, resolved)
        self.call(call, tool)
        for status in statuses:
            self.receipt(call, status, tool, resolved)


def in_step(call_id: str, step_id: str = "s1") -> CallIdentity:
    return call_identity("main", step_id, call_id)


def resumed(
    script: Script | list[RunRecord],
    *,
    config_fingerprint: str = CONFIG,
    prompt: str | None = None,
    rules: ResumeRules = ResumeRules.STRICT,
) -> ResumeDecision:
    records = script.records if isinstance(script, Script) else script
    return prepare_run_resume(
        records, config_fingerprint=config_fingerprint, prompt=prompt, rules=rules
    )


def refusal_of(decision: ResumeDecision) -> str | None:
    return None if decision.refusal is None else decision.refusal.code.value
