"""A process that runs one durable run: the product's store, journal, coordinator and planner.

It decides what a sensible host does next: begin, call a tool, take its answer, pause, end. It
refuses to choose when, and to judge what was written.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.capability import Declaration, capability_event, resolve_capability
from runnerd.runs.codes import RunStatus
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.effect_facts import Reason, Verdict
from runnerd.runs.fingerprints import CallIdentity, call_identity, fingerprint
from runnerd.runs.journal import RunJournal
from runnerd.runs.operation import Operation, accept_operation, transition
from runnerd.runs.records import (
    Durability,
    OperationEvent,
    OperationState,
    RecordKind,
    ResumePayload,
    struct_members,
)
from runnerd.runs.resume import decide_resume
from runnerd.runs.resume_plan import ReplayCandidate, ResumeDecision
from runnerd.runs.run_facts import RunFacts, collect_facts
from runnerd.runs.run_store import OpenRun, RunStore
from runnerd.runs.verification import check_completion
from tests.simulator.disk_process import DiskProcess
from tests.simulator.runs.judge import FOLDER, RUN
from tests.simulator.runs.ledger import Request

if TYPE_CHECKING:
    from tests.simulator.runs.world import World

AT: Final = "2026-01-01T00:00:00.000Z"
CONFIG: Final = fingerprint({"name": "demo"})
_CLASSES: Final[dict[str, JsonValue]] = {
    "effect": "external",
    "replay": "idempotent",
    "concurrency": "run_serial",
    "checkpoint": "unsupported",
    "durability": "critical",
}
TOOLS: Final = {
    "pay": Declaration(classes=_CLASSES, honours_key=True),
    "book": Declaration(classes=_CLASSES),
    "mail": Declaration(classes={**_CLASSES, "replay": "unsafe"}),
    "look": Declaration(classes={**_CLASSES, "effect": "none", "replay": "safe"}),
}
"""Repeated under a key; calls itself idempotent and nobody takes its key; unsafe; harmless."""


@dataclass
class Call:
    """The call that is under way."""

    work: str
    identity: CallIdentity
    tool: str
    key: str = ""
    outside_key: str = ""
    request: Request | None = None
    """What was asked of the outside world, once it was."""


class Host:
    """One process."""

    def __init__(self, world: "World") -> None:
        self.world = world
        disk = world.machine.disk
        self.fs = DiskProcess(disk, world.strike, world.draws.stream("disk"))
        self.store = RunStore(self.fs, world.machine, world.locks, f"/{FOLDER}", lock_timeout_ms=0)
        self.run: OpenRun | None = None
        self.call: Call | None = None
        self.operation: Operation | None = None
        self.is_over = False
        """It has written the last record of its attempt."""
        self._journal: RunJournal | None = None
        self._coordinator = EffectCoordinator(RUN)
        self._candidates: tuple[ReplayCandidate, ...] = ()
        self._decided: set[str] = set()
        """Works that somebody has decided to be done."""
        self._traced = 0

    # --- the beginning --------------------------------------------------------------------------

    def open(self) -> RunFacts:
        """Become the writer of the run, and return what is known of it."""
        run = self.run = self.store.open_run(RUN)
        records = list(run.records())
        self.world.judge.opened([record.sequence for record in records])
        return collect_facts(records)

    def begin(self, facts: RunFacts, config: str = CONFIG) -> ResumeDecision | None:
        """Begin a new run, or go on with one; a refusal is returned and nothing is written."""
        assert self.run is not None
        self._journal = RunJournal(self.run)
        self._traced = facts.trace_sequence
        if facts.record_count == 0:
            self._append(RecordKind.START, {"configFingerprint": CONFIG, "initialPrompt": "go"})
            self._apply(OperationEvent.ACCEPT)
            self._apply(OperationEvent.START)
            return None
        decision = decide_resume(facts, config_fingerprint=config)
        if decision.plan is not None:
            self._go_on(decision)
        return decision

    def _go_on(self, decision: ResumeDecision) -> None:
        plan = decision.plan
        assert plan is not None
        self.operation = plan.operation
        self._coordinator = EffectCoordinator(RUN, plan.owners)
        self._candidates = plan.replay_candidates
        self._decided = {
            account.call_id.partition("-")[0]
            for account in decision.effects
            if account.verdict is Verdict.SKIP and account.reason is Reason.DECIDED_COMMITTED
        }
        steps = tuple(step.step_id for step in plan.completed_steps)
        self.world.finished_steps = set(steps)
        resumption = ResumePayload(completed_step_ids=steps, resumed_at=AT)
        if self.operation is not None and self.operation.state is OperationState.RUNNING:
            self.pause("process_interrupted")
            assert self.run is not None
            self._journal, self.is_over = RunJournal(self.run), False
        self._append(RecordKind.RESUME, struct_members(resumption))
        for event, reason in plan.operation_events:
            if event is not OperationEvent.PAUSE:
                self._apply(event, reason)

    # --- calls ----------------------------------------------------------------------------------

    def open_call(self, work: str, tool: str) -> None:
        """Record a call; a step in which a call has begun is not tried again by the host."""
        if (code := self._coordinator.step_retry_refusal(f"step-{work}")) is not None:
            self.pause(code.value)
            return
        number = self.world.calls_made = self.world.calls_made + 1
        identity = call_identity("main", f"step-{work}", f"{work}-{number}")
        call = Call(work, identity, tool)
        resolved = resolve_capability(tool, TOOLS[tool])
        previous = next((c for c in self._candidates if c.step_id == f"step-{work}"), None)
        for event in self._coordinator.record(capability_event(identity, resolved)):
            self._tell(event)
        if previous is not None:
            self._tell(self._attempt_event(identity, previous))
            self.world.seen.add("call offered again under its key")
        opened = self._coordinator.record(
            {"type": "tool_call", **self._about(call), "args": {"what": work}}
        )
        call.key = str(opened[0]["idempotencyKey"])
        call.outside_key = call.key if previous is None else previous.outside_key
        for event in opened:
            self._tell(event)
        self.call = call

    def start_call(self) -> None:
        """Make the start of the call durable, and ask the outside world for it."""
        call = self.call
        assert call is not None
        self._tell(self._coordinator.start(call.identity, call.tool))
        self._coordinator.began_durably(call.identity)
        self._coordinator.begin_execution(call.identity)
        self.world.judge.check_started(call.key)
        call.request = self.world.ledger.ask(
            call.work,
            call.outside_key,
            honours_key=call.tool == "pay",
            is_harmless=call.tool == "look",
        )

    def answer(self, *, is_error: bool) -> None:
        """Record the tool's answer; without an error the work is done."""
        call, self.call = self.call, None
        assert call is not None
        result: dict[str, JsonValue] = {
            "type": "tool_result",
            **self._about(call),
            "isError": is_error,
        }
        for event in self._coordinator.record(result):
            self._tell(event)
        if not is_error:
            self.finish_step(call.work)

    def time_out(self) -> Call:
        """Give the call up: its answer will not be believed."""
        call, self.call = self.call, None
        assert call is not None
        for event in self._coordinator.close(call.identity):
            self._tell(event)
        return call

    def answer_late(self, call: Call) -> None:
        """Record what comes when nobody waits any more; it changes nothing that is known."""
        result: dict[str, JsonValue] = {
            "type": "tool_result",
            **self._about(call),
            "isError": False,
        }
        for event in self._coordinator.record(result):
            self._tell(event)

    def is_decided(self, work: str) -> bool:
        """Tell whether somebody has decided that a work is done."""
        return work in self._decided

    def finish_step(self, work: str) -> None:
        """Record the output of a step."""
        step: dict[str, JsonValue] = {"stepId": f"step-{work}", "agent": "main", "text": "done"}
        self._tell({"type": "step_output", **step})
        self.world.finished_steps.add(f"step-{work}")

    def _about(self, call: Call) -> dict[str, JsonValue]:
        return {
            "agent": "main",
            "stepId": call.identity.step_id,
            "turnId": "t1",
            "callId": call.identity.call_id,
            "tool": call.tool,
        }

    def _attempt_event(
        self, identity: CallIdentity, previous: ReplayCandidate
    ) -> dict[str, JsonValue]:
        return {
            "type": "tool_attempt",
            "agent": "main",
            "stepId": identity.step_id,
            "callId": identity.call_id,
            "attemptId": f"attempt-{identity.call_id}",
            "previousReceiptId": previous.previous_receipt_id,
            "attempt": previous.attempt,
        }

    # --- the end --------------------------------------------------------------------------------

    def pause(self, reason: str) -> None:
        """End the attempt; somebody may resume the run."""
        if self.operation is not None and self.operation.state is OperationState.RUNNING:
            self._apply(OperationEvent.PAUSE, reason)
        self._append(RecordKind.PAUSE, {"outcome": {"status": "paused", "finishReason": reason}})
        self.is_over = True

    def complete(self) -> bool:
        """Claim success if it is proven, and say so; else pause."""
        assert self.run is not None
        facts = collect_facts(self.run.records())
        completion = check_completion(facts, exit_proven=True, result_valid=True)
        self._append(RecordKind.VERIFICATION, struct_members(completion.payload))
        if completion.code is not None:
            self.pause(completion.code.value)
            return False
        self._apply(OperationEvent.COMPLETE)
        self._finish(RunStatus.SUCCEEDED)
        return True

    def cancel(self) -> None:
        """End the run for good without success."""
        for event in self._coordinator.close_open():
            self._tell(event)
        self._apply(OperationEvent.REQUEST_ABORT)
        self._apply(OperationEvent.FAIL, ErrorCode.ABORTED.value)
        self._finish(RunStatus.ABORTED)

    def _finish(self, status: RunStatus) -> None:
        outcome: JsonValue = {"status": status.value, "finishReason": status.value}
        self._append(RecordKind.FINISH, {"outcome": outcome})
        self.is_over = True

    def append_too_late(self) -> None:
        """Try to write behind the end."""
        assert self._journal is not None
        self._journal.append(RecordKind.LOOP, {}, timestamp=AT)

    # --- records --------------------------------------------------------------------------------

    def _tell(self, event: dict[str, JsonValue]) -> None:
        self._traced += 1
        entry: JsonValue = {
            "eventId": f"e{self._traced}",
            "runId": RUN,
            "sequence": self._traced,
            "timestamp": AT,
            "event": event,
        }
        self._append(RecordKind.EVENT, entry)

    def _apply(self, event: OperationEvent, reason: str | None = None) -> None:
        if self.operation is None:
            changed = accept_operation(
                run_id=RUN, operation_id="op", event_id="o1", timestamp=AT, reason=reason
            )
        else:
            event_id = f"o{len(self.operation.records) + 1}"
            changed = transition(
                self.operation, event, event_id=event_id, timestamp=AT, reason=reason
            ).operation
        self._append(RecordKind.OPERATION, struct_members(changed.records[-1]))
        self.operation = changed

    def _append(self, kind: RecordKind, payload: JsonValue) -> None:
        assert self._journal is not None
        assert self.run is not None
        sequence = self.run.facts.last_sequence + 1
        self.world.note_append(sequence, kind.value, payload)
        appended = self._journal.append(kind, payload, timestamp=AT)
        achieved = appended.acknowledgement.achieved
        self.world.judge.wrote(sequence, is_critical=achieved is Durability.CRITICAL)

    def close(self) -> None:
        """Let go of everything, as an orderly end does."""
        self.store.close()
