"""What a run's log is made to say of calls and questions, while it is open.

It decides the order of records and which of them may follow a pause. It refuses to know what
they say: that is `call_records`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeGuard

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.core.actions import StartHarness
from runnerd.core.run_fact import CallFact, RequestFact, RunFact, UsageFact
from runnerd.harness.call_records import (
    CallLog,
    Missing,
    approval_resolved,
    decision_of_call,
    missing_of_call,
    missing_of_request,
    missing_of_usage,
    unknown_ends,
)
from runnerd.runs.records import Durability, RecordKind, RunRecord
from runnerd.runs.run_store import OpenRun


class Append(Protocol):
    """How the attempt's journal takes a record; what it took is given to `CallRecorder.take`."""

    def __call__(
        self, kind: RecordKind, payload: JsonValue, durability: Durability | None = None
    ) -> None:
        """Append a record as durable as its kind asks for, or at least so durable."""
        ...


class CallRecorder:
    """The calls and questions of one open log. All methods raise PrpError of the log."""

    def __init__(self, run: OpenRun, turn_id: str, append: Append, now: Callable[[], str]) -> None:
        """Read what the log says so far."""
        self._run = run
        self._turn_id = turn_id
        self._append = append
        self._now = now
        self._log = CallLog(run.records())

    def take(self, record: RunRecord) -> None:
        """Know a record that was appended."""
        self._log.apply(record)

    def check_age(self, order: StartHarness) -> None:
        """Refuse a log that knows less than the state: it was taken away, or is an older copy.

        Raises PrpError ``run_state_conflict``: behind a gap no log can claim anything.
        """
        if order.lines_accepted and not self._log.facts.record_count:
            raise _older()
        self._check_knows(order.recorded_calls)

    def _check_knows(self, call_ids: Iterable[str]) -> None:
        if not all(self._log.has_call(one) for one in call_ids):
            raise _older()

    def note(self, facts: Sequence[RunFact]) -> None:
        """Append to an open attempt what its log does not say of these facts."""
        for fact in facts:
            while missing := self._missing(fact):
                self._append_all(missing)

    def leave_open(self) -> None:
        """Record of calls and questions that nobody will answer any more that this is so."""
        self._append_all(unknown_ends(self._log.facts, self._turn_id))
        for request_id in tuple(self._log.facts.pending_approvals):
            self._append_event(approval_resolved(request_id, "cancelled"))

    def decide(self, facts: Sequence[RunFact]) -> None:
        """Append to a log between two attempts what the controller says of calls in doubt.

        Raises PrpError ``run_state_conflict`` if it lacks a call that is to be made known:
        nobody would find it in doubt.
        """
        self._check_knows(one.call_id for one in facts if _is_made_known(one))
        terminal = self._log.facts.terminal
        if terminal is not None and terminal.kind is RecordKind.FINISH:
            return
        for fact in facts:
            now = self._now()
            decision = (
                decision_of_call(self._log, fact, now) if isinstance(fact, CallFact) else None
            )
            if decision is None:
                continue
            kind, payload = decision
            record = RunRecord(
                run_id=self._run.run_id,
                sequence=self._run.facts.last_sequence + 1,
                timestamp=now,
                kind=kind,
                payload=payload,
            )
            # A journal takes nothing after a pause; a decision is about what was before.
            self._run.append(record, Durability.CRITICAL)
            self.take(record)

    def _missing(self, fact: RunFact) -> Sequence[Missing]:
        if isinstance(fact, RequestFact):
            return missing_of_request(self._log, fact)
        if isinstance(fact, UsageFact):
            return missing_of_usage(self._log, fact)
        return missing_of_call(self._log, fact, self._turn_id, self._now())

    def _append_all(self, missing: Sequence[Missing]) -> None:
        for kind, payload in missing:
            if kind is RecordKind.EVENT:
                self._append_event(payload)
            else:
                self._append(kind, payload, Durability.CRITICAL)

    def _append_event(self, event: dict[str, JsonValue]) -> None:
        number = self._log.facts.trace_sequence + 1
        entry: dict[str, JsonValue] = {
            "eventId": f"trace_{number}",
            "runId": self._run.run_id,
            "sequence": number,
            "timestamp": self._now(),
            "event": event,
        }
        self._append(RecordKind.EVENT, entry)


def makes_known(facts: Iterable[RunFact]) -> bool:
    """Tell whether one of these calls may leave for the controller once it is recorded."""
    return any(_is_made_known(fact) for fact in facts)


def _is_made_known(fact: RunFact) -> TypeGuard[CallFact]:
    return isinstance(fact, CallFact) and fact.effect is None


def _older() -> PrpError:
    reason = "the run's log lacks what was in it; put the newest one back"
    return PrpError(ErrorCode.RUN_STATE_CONFLICT, reason)
