"""`python -m tests.runnerd.runs.run_worker RUNS RUN LEDGER STEPS`: one attempt at a run.

It decides what a run does: each step writes one line into a ledger that all runs share, which
is the outside. It says what it has done on standard output and refuses to do a step again.
"""

import os
import sys
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.canonical_json import JsonValue
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.decisions import DecidedOutcome
from runnerd.runs.envelope import tell_story
from runnerd.runs.fingerprints import call_identity, config_fingerprint
from runnerd.runs.journal import RunJournal
from runnerd.runs.operation import Operation, accept_operation, transition
from runnerd.runs.outcome import outcome_of
from runnerd.runs.records import OperationEvent, RecordKind, struct_members
from runnerd.runs.resume import decide_resume
from runnerd.runs.resume_plan import ResumePlan
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.run_store import OpenRun, RunStore
from runnerd.runs.verification import check_completion

CONFIG: Final = config_fingerprint({"name": "ledger"})
TOOL: Final = "write_line"
REFUSED: Final = 3
_AT: Final = "2026-01-01T00:00:00.000Z"


class Attempt:
    """One attempt, from its first record to the run's end."""

    def __init__(self, run: OpenRun, ledger: str) -> None:
        self._run = run
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._journal = RunJournal(run)
        self._operation: Operation | None = None
        self._coordinator = EffectCoordinator(run.run_id)
        self._told = 0
        self._done: set[str] = set()
        """Steps whose output is known."""
        self._decided: set[str] = set()
        """Steps of which somebody has said that their line is in the ledger."""

    def begin(self) -> None:
        """Record a new run."""
        self._append(RecordKind.START, {"configFingerprint": CONFIG})
        self._apply(OperationEvent.ACCEPT)
        self._apply(OperationEvent.START)

    def resume(self, plan: ResumePlan) -> None:
        """Take over what an earlier attempt has left."""
        self._operation = plan.operation
        self._told = plan.next_trace_sequence
        self._done = {step.step_id for step in plan.completed_steps}
        self._decided = {
            str(decision.step_id)
            for decision in plan.decided
            if decision.outcome is DecidedOutcome.COMMITTED
        }
        self._coordinator = EffectCoordinator(self._run.run_id, plan.owners)
        self._append(RecordKind.RESUME, {"completedStepIds": [*sorted(self._done)]})
        for event, reason in plan.operation_events:
            self._apply(event, reason)

    def work(self, steps: int) -> None:
        """Do every step that is not done, then verify and finish."""
        for number in range(steps):
            step = f"s{number}"
            if step in self._done:
                continue
            if step not in self._decided:
                self._write_line(step)
            self._tell({"type": "step_output", "stepId": step, "agent": "main", "text": "written"})
        self._finish()

    def _write_line(self, step: str) -> None:
        # No call id comes twice, however often the step is tried.
        call = call_identity("main", step, f"c{self._run.facts.last_sequence}")
        said: dict[str, JsonValue] = {
            "agent": call.agent,
            "stepId": call.step_id,
            "callId": call.call_id,
            "turnId": "t1",
            "tool": TOOL,
        }
        self._tell({"type": "tool_call", "args": {"step": step}, **said})
        self._tell(self._coordinator.start(call, TOOL))
        self._coordinator.began_durably(call)
        self._coordinator.begin_execution(call)
        os.write(self._ledger, f"{self._run.run_id} {step}\n".encode())
        _say(f"wrote {step}")
        self._tell({"type": "tool_result", "isError": False, **said})

    def _finish(self) -> None:
        completion = check_completion(
            collect_facts(self._run.records()), exit_proven=True, result_valid=True
        )
        assert completion.code is None, "nothing is in doubt when every step is done"
        self._append(RecordKind.VERIFICATION, struct_members(completion.payload))
        self._apply(OperationEvent.COMPLETE)
        assert self._operation is not None
        self.conclude(self._operation)

    def conclude(self, operation: Operation) -> None:
        """Record the end of a run whose operation has ended."""
        payload = tell_story(self._run.records()).terminal_payload(
            operation, outcome_of(None, was_denied=False), ended_at=_AT, output_chars=0
        )
        self._append(RecordKind.FINISH, payload)

    def _tell(self, event: dict[str, JsonValue]) -> None:
        for told in self._coordinator.record(event):
            self._told += 1
            entry: JsonValue = {
                "eventId": f"e{self._told}",
                "runId": self._run.run_id,
                "sequence": self._told,
                "timestamp": _AT,
                "event": told,
            }
            self._append(RecordKind.EVENT, entry)

    def _apply(self, event: OperationEvent, reason: str | None = None) -> None:
        event_id = f"o{self._run.facts.last_sequence}"
        if self._operation is None:
            self._operation = accept_operation(
                run_id=self._run.run_id, operation_id="run", event_id=event_id, timestamp=_AT
            )
        else:
            self._operation = transition(
                self._operation, event, event_id=event_id, timestamp=_AT, reason=reason
            ).operation
        self._append(RecordKind.OPERATION, struct_members(self._operation.records[-1]))

    def _append(self, kind: RecordKind, payload: JsonValue) -> None:
        appended = self._journal.append(kind, payload, timestamp=_AT)
        _say(f"record {appended.record.sequence}")


def main(folder: str, run_id: str, ledger: str, steps: str) -> int:
    """Make one attempt and return 0 when the run has succeeded."""
    store = RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), folder)
    run = store.open_run(run_id)
    attempt = Attempt(run, ledger)
    if run.facts.last_sequence == 0:
        attempt.begin()
        attempt.work(int(steps))
    else:
        facts = collect_facts(run.records())
        plan = decide_resume(facts, config_fingerprint=CONFIG).plan
        if plan is not None:
            attempt.resume(plan)
            attempt.work(int(steps))
        elif facts.operation is not None and facts.operation.is_terminal:
            # Only the last record may be missing, the success was proven before.
            if facts.terminal is None:
                attempt.conclude(facts.operation)
        else:
            return REFUSED
    store.close()
    _say("done")
    return 0


def _say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
