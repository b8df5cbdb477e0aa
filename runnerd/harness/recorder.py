"""The run's log as the daemon keeps it: how each attempt began, and how it truly ended.

It decides which records stand for a turn and that success is claimed only behind a
verification. It refuses to decide how a turn ended, and writes nothing about the transport.

    begin ─▶ start, ACCEPT, START            a new run
         └─▶ [PAUSE, pause], resume, RESUME  one that was interrupted or paused
    note  ─▶ calls, receipts, questions      before the call leaves, before the answer is told
    end ──▶ PAUSE, pause                     stopped, lost, or not proven
        └─▶ [verification], COMPLETE | REQUEST_ABORT, FAIL | FAIL, then finish

Everything here blocks: it is called in one thread beside the event loop.
"""

from collections.abc import Sequence

import msgspec

from protocol.base.ports import Clock
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation, Identity
from protocol.timestamps import rfc3339_ms
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import HarnessExited, ProcessExit
from runnerd.core.run_fact import RunFact
from runnerd.core.verdict import CANCELLED, Recorded, Verdict
from runnerd.harness.attempt import (
    HARNESS_MEMBER,
    OPERATION_ID,
    HarnessEnd,
    code_of,
    configuration_of,
    is_running,
    log_id_of,
    start_members,
    unrecorded,
)
from runnerd.harness.call_recorder import CallRecorder, makes_known
from runnerd.harness.recorded_end import (
    has_lost_end,
    recorded_end,
    told_late,
    verdict_of,
    with_snapshot,
)
from runnerd.runs.codes import RunStatus
from runnerd.runs.envelope import tell_story
from runnerd.runs.fingerprints import config_fingerprint
from runnerd.runs.journal import RunJournal
from runnerd.runs.operation import Operation, accept_operation, transition
from runnerd.runs.outcome import Outcome, ending_events, outcome_of
from runnerd.runs.records import (
    Durability,
    OperationEvent,
    RecordKind,
    ResumePayload,
    struct_members,
)
from runnerd.runs.resume import decide_resume
from runnerd.runs.resume_plan import ResumePlan
from runnerd.runs.run_facts import RunFacts, collect_facts
from runnerd.runs.run_store import OpenRun, RunStore
from runnerd.runs.verification import check_completion


class RunRecorder:
    """Writes the log of one run. One thread at a time may use an instance."""

    def __init__(self, store: RunStore, clock: Clock, identity: Identity) -> None:
        self._store = store
        self._clock = clock
        self._identity = identity
        self._run_id = log_id_of(identity.run_id)
        self._run: OpenRun | None = None
        self._journal: RunJournal | None = None
        self._operation: Operation | None = None
        self._calls: CallRecorder | None = None
        """Of the open log, once something of a call or a question was asked of it."""
        self._is_attempt_open = False

    def begin(self, order: StartHarness) -> None:
        """Record that an attempt begins, before anything of it exists.

        Raises PrpError with the code for which the run may not go on, or of its log; then
        nothing may be started; ``run_state_conflict`` for one that is older than the state.
        """
        run = self._opened()
        try:
            fingerprint = config_fingerprint(configuration_of(order))
            self._kept(run).check_age(order)
            if run.facts.last_sequence == 0:
                self._begin_new(run, order, fingerprint)
            else:
                self._resume(run, fingerprint)
        except PrpError:
            self.close()
            raise
        self._is_attempt_open = True

    def interrupt(self, reason: ErrorCode) -> None:
        """Record that the attempt stopped without an end; what there was to record is recorded.

        Raises PrpError of the log.
        """
        if self._run is not None:
            self._pause(self._run, reason.value, None)
            self._is_attempt_open = False
            self.close()

    def note(self, facts: Sequence[RunFact]) -> None:
        """Make the log say this; what it says already is not said again.

        Between two attempts it takes only what the controller says of a call in doubt, once
        the last one is over in it, and nothing of a finished run. Raises PrpError of the log.
        """
        if self._is_attempt_open:
            run = self._attempt()
            try:
                self._note_all(run, facts)
            except PrpError:
                # Nothing follows in this journal; a later one first reads what there is.
                self.close()
                raise
        elif makes_known(facts) or self._run_id in self._store.list_runs():
            run = self._opened()
            try:
                self._leave_interrupted(run, collect_facts(run.records()), facts)
                self._kept(run).decide(facts)
            finally:
                self.close()

    def settle(self, generation: Generation, facts: Sequence[RunFact] = ()) -> HarnessExited | None:
        """Record at a start that the process which kept this log is gone.

        Args:
            generation: of the program that the state names as live.
            facts: what the state knows of its calls and questions.

        Returns:
            Its end if it was recorded and never told: it is told now. None if there was
            none; then the run is paused. Raises PrpError of the log.
        """
        if self._run_id not in self._store.list_runs():
            return None
        run = self._opened()
        try:
            found = collect_facts(run.records())
            if found.terminal is not None:
                return recorded_end(run, found.terminal, generation)
            if has_lost_end(found):
                self._operation = found.operation
                return told_late(generation, self._end_at_last(run, generation))
            self._leave_interrupted(run, found, facts)
            return None
        finally:
            self.close()

    def cancel(self) -> Recorded | None:
        """Record that a run which waited for another attempt was cancelled.

        Returns:
            What the log says then, also if it said so before; None for a run without a log
            and for one whose log takes nothing. Nothing is raised for the disk.
        """
        try:
            if self._run_id not in self._store.list_runs():
                return None
            run = self._opened()
            found = collect_facts(run.records())
            self._operation = found.operation
            if self._operation is None:
                return None
            if has_lost_end(found):
                return self._end_at_last(run, Generation(0))
            if not self._operation.is_terminal:
                self._journal = RunJournal(run)
                outcome = outcome_of(ErrorCode.ABORTED.value, was_denied=False)
                self._finish(run, outcome, None, 0)
            return with_snapshot(run, Verdict(outcome=CANCELLED))
        except PrpError:
            return None
        finally:
            self.close()

    def end(
        self,
        exited: HarnessExited,
        verdict: Verdict,
        facts: Sequence[RunFact],
        output_chars: int,
    ) -> Recorded:
        """Record how an attempt ended, before anybody is told.

        Args:
            facts: what the state knows of its calls and questions.

        Returns:
            What holds from now on. A verdict of success that is not proven becomes an
            interruption with ``verification_missing``; one that could not be recorded
            becomes a failure with the log's code. Nothing is raised for the disk.
        """
        assert self._is_attempt_open, "an attempt that was begun ends"
        try:
            run = self._attempt()
            try:
                self._note_all(run, facts)
            except PrpError as error:
                # A fact that the disk refused is no reason to leave the run without an end.
                verdict = unrecorded(verdict, error.code)
                self.close()
                run = self._attempt()
            return self._end(run, exited, verdict, output_chars)
        except PrpError as error:
            return Recorded(verdict=unrecorded(verdict, error.code))
        finally:
            self._is_attempt_open = False
            self.close()

    def close(self) -> None:
        """Let go of the log; a second time does nothing."""
        run, self._run, self._journal, self._calls = self._run, None, None, None
        if run is not None:
            run.close()

    # --- the beginning ---------------------------------------------------------------------

    def _opened(self) -> OpenRun:
        self.close()
        self._operation = None
        self._run = self._store.open_run(self._run_id)
        return self._run

    def _begin_new(self, run: OpenRun, order: StartHarness, fingerprint: str) -> None:
        self._journal = RunJournal(run)
        self._append(RecordKind.START, start_members(order, self._identity, fingerprint))
        self._apply(OperationEvent.ACCEPT, None)
        self._apply(OperationEvent.START, None)

    def _resume(self, run: OpenRun, fingerprint: str) -> None:
        decision = decide_resume(collect_facts(run.records()), config_fingerprint=fingerprint)
        if decision.refusal is not None:
            raise PrpError(decision.refusal.code, decision.refusal.evidence.words)
        plan = decision.plan
        assert plan is not None, "a run that is not refused has a plan"
        self._operation = plan.operation
        if is_running(plan.operation):
            self._pause(run, ErrorCode.PROCESS_INTERRUPTED.value, None)
        self._journal = RunJournal(run)
        self._append(RecordKind.RESUME, struct_members(self._resumption(plan)))
        for event, reason in plan.operation_events:
            if event is not OperationEvent.PAUSE:
                self._apply(event, reason)

    def _resumption(self, plan: ResumePlan) -> ResumePayload:
        return ResumePayload(
            completed_step_ids=tuple(step.step_id for step in plan.completed_steps),
            resumed_at=self._now(),
        )

    def _attempt(self) -> OpenRun:
        """Return the log of the open attempt, read anew if a write to it has failed before."""
        if self._run is None:
            run = self._opened()
            self._journal = RunJournal(run)
            self._operation = collect_facts(run.records()).operation
        assert self._run is not None, "it was opened"
        return self._run

    def _leave_interrupted(self, run: OpenRun, found: RunFacts, facts: Sequence[RunFact]) -> None:
        self._operation = found.operation
        if is_running(found.operation):
            self._journal = RunJournal(run)
            self._note_all(run, facts)
            self._pause(run, ErrorCode.PROCESS_INTERRUPTED.value, None)

    def _note_all(self, run: OpenRun, facts: Sequence[RunFact]) -> None:
        if facts:
            self._kept(run).note(facts)

    def _kept(self, run: OpenRun) -> CallRecorder:
        if self._calls is None:
            self._calls = CallRecorder(run, self._identity.turn_id, self._append, self._now)
        return self._calls

    # --- the end ---------------------------------------------------------------------------

    def _end(
        self, run: OpenRun, exited: HarnessExited, verdict: Verdict, output_chars: int
    ) -> Recorded:
        seen = HarnessEnd(
            generation=exited.generation,
            exit=exited.exit,
            violation=exited.violation,
            survivors=exited.survivors,
            outcome=verdict.outcome,
        )
        if verdict.outcome is None:
            self._pause(run, ErrorCode.PROCESS_INTERRUPTED.value, seen, output_chars)
            return Recorded(verdict=verdict)
        if verdict.outcome.succeeded and not self._verify(run, exited):
            missing = ErrorCode.VERIFICATION_MISSING.value
            self._pause(run, missing, msgspec.structs.replace(seen, outcome=None), output_chars)
            return Recorded(verdict=Verdict(reason=missing))
        code = code_of(verdict.outcome, exited.violation)
        outcome = outcome_of(
            None if code is None else code.value, was_denied=False, message=verdict.outcome.reason
        )
        self._finish(run, outcome, seen, output_chars)
        return with_snapshot(run, verdict)

    def _finish(
        self, run: OpenRun, outcome: Outcome, seen: HarnessEnd | None, output_chars: int
    ) -> None:
        assert self._operation is not None, "an attempt has an operation"
        self._kept(run).leave_open()
        for event, reason in ending_events(outcome, self._operation.state):
            self._apply(event, reason)
        self._close_attempt(run, RecordKind.FINISH, outcome, seen, output_chars)

    def _end_at_last(self, run: OpenRun, generation: Generation) -> Recorded:
        """Record the end of a run whose operation had ended when its process died."""
        assert self._operation is not None, "an operation has ended"
        self._journal = RunJournal(run)
        verdict = verdict_of(self._operation)
        code = None if verdict.outcome is None else code_of(verdict.outcome, None)
        outcome = outcome_of(None if code is None else code.value, was_denied=False)
        if not self._operation.is_terminal:
            for event, reason in ending_events(outcome, self._operation.state):
                self._apply(event, reason)
        seen = HarnessEnd(generation=generation, exit=ProcessExit(), outcome=verdict.outcome)
        self._close_attempt(run, RecordKind.FINISH, outcome, seen, 0)
        return with_snapshot(run, verdict)

    def _verify(self, run: OpenRun, exited: HarnessExited) -> bool:
        """Make the answers durable on which a claim of success rests."""
        is_proven = exited.exit.success is not None and not exited.survivors
        completion = check_completion(
            collect_facts(run.records()), exit_proven=is_proven, result_valid=True
        )
        self._append(RecordKind.VERIFICATION, struct_members(completion.payload))
        return completion.code is None

    def _pause(
        self, run: OpenRun, reason: str, seen: HarnessEnd | None, output_chars: int = 0
    ) -> None:
        if self._journal is None:
            self._journal = RunJournal(run)
        if is_running(self._operation):
            self._apply(OperationEvent.PAUSE, reason)
        outcome = Outcome(status=RunStatus.PAUSED, finish_reason=reason)
        self._close_attempt(run, RecordKind.PAUSE, outcome, seen, output_chars)

    def _close_attempt(
        self,
        run: OpenRun,
        kind: RecordKind,
        outcome: Outcome,
        seen: HarnessEnd | None,
        output_chars: int,
    ) -> None:
        assert self._operation is not None, "an attempt has an operation"
        payload = tell_story(run.records()).terminal_payload(
            self._operation, outcome, ended_at=self._now(), output_chars=output_chars
        )
        if seen is not None:
            payload[HARNESS_MEMBER] = struct_members(seen)
        self._append(kind, payload)

    # --- records ---------------------------------------------------------------------------

    def _apply(self, event: OperationEvent, reason: str | None) -> None:
        now = self._now()
        if self._operation is None:
            changed = accept_operation(
                run_id=self._run_id,
                operation_id=OPERATION_ID,
                event_id="1",
                timestamp=now,
                reason=reason,
            )
        else:
            event_id = str(len(self._operation.records) + 1)
            changed = transition(
                self._operation, event, event_id=event_id, timestamp=now, reason=reason
            ).operation
        self._append(RecordKind.OPERATION, struct_members(changed.records[-1]))
        self._operation = changed

    def _append(
        self, kind: RecordKind, payload: JsonValue, durability: Durability | None = None
    ) -> None:
        assert self._journal is not None, "the log is open"
        appended = self._journal.append(kind, payload, timestamp=self._now(), durability=durability)
        if self._calls is not None:
            self._calls.take(appended.record)

    def _now(self) -> str:
        return rfc3339_ms(self._clock.now().unix_ms)
