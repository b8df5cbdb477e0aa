"""The one way in which facts enter a run's log while it runs.

It decides their numbers, how durable each must be, what comes too late, and that success is
claimed only behind a verification. It refuses to skip a fact that could not be written:
nothing follows it.

    healthy ──pause, finish──▶ terminal        every later append: fact_ledger_terminal
       └─────a write fails───▶ poisoned        every later append: fact_ledger_poisoned
"""

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.log_facts import LogFacts
from runnerd.runs.records import Durability, OperationEvent, RecordKind, RunRecord
from runnerd.runs.run_writer import Acknowledgement, Boundary

_TERMINAL_KINDS: Final = frozenset({RecordKind.PAUSE, RecordKind.FINISH})
_CRITICAL_KINDS: Final = frozenset(
    {
        RecordKind.PAUSE,
        RecordKind.FINISH,
        RecordKind.CHECKPOINT,
        RecordKind.CHECKPOINT_RESTORE,
        RecordKind.VERIFICATION,
        RecordKind.TELEMETRY_CONFIGURATION,
        RecordKind.TELEMETRY_CONSENT,
    }
)
# A member of an event may be of any kind, and not every kind can be looked up in a set.
_CRITICAL_EVENTS: Final = (
    "tool_attempt",
    "policy_denied",
    "approval_required",
    "approval_resolved",
    "workspace_lease",
)
_OWN_LIFE: Final = frozenset(
    {RecordKind.OPERATION, RecordKind.VERIFICATION, RecordKind.PAUSE, RecordKind.FINISH}
)
"""Facts that a log in memory takes as well as it can; a fact about the outside it refuses."""
_RECEIPT: Final = "effect_receipt"
_NOT_STARTED: Final = "not_started"
_LATE_ALWAYS: Final = ("tool_result", "turn_end")
_LATE_STATUSES: Final = ("started", "committed", "unknown")


class RunAppender(Protocol):
    """Where a journal writes: an open run on a disk, or a log in memory."""

    @property
    def run_id(self) -> str:
        """Whose log it is."""
        ...

    @property
    def facts(self) -> LogFacts:
        """The end of the log."""
        ...

    @property
    def boundary(self) -> Boundary:
        """What a record survives there at best."""
        ...

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        """Make a record the next one or raise PrpError."""
        ...


class Appended(msgspec.Struct, frozen=True):
    """A fact that was written."""

    record: RunRecord
    acknowledgement: Acknowledgement


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether facts may still come."""

    is_poisoned: bool
    is_terminal: bool
    failed_sequence: int | None
    rejected_after_abort: int


class RunJournal:
    """The facts of one attempt at a run. One thread at a time may use an instance."""

    def __init__(self, log: RunAppender) -> None:
        self._log = log
        self._is_terminal = log.facts.is_finished
        self._first_error: PrpError | None = None
        self._failed_sequence: int | None = None
        self._known_turn_ids: frozenset[str] | None = None
        """Turns known at the cancel mark; None before it."""
        self._rejected = 0

    @property
    def status(self) -> JournalStatus:
        """How the journal stands."""
        return JournalStatus(
            is_poisoned=self._first_error is not None,
            is_terminal=self._is_terminal,
            failed_sequence=self._failed_sequence,
            rejected_after_abort=self._rejected,
        )

    def append(
        self,
        kind: RecordKind,
        payload: JsonValue | UnsetType = UNSET,
        *,
        timestamp: str,
        durability: Durability | None = None,
        event_id: str | None = None,
    ) -> Appended:
        """Write the next fact.

        Args:
            durability: at least this; by default what `durability_of` says.

        Returns:
            The record with its number, acknowledged. Raises PrpError
            ``fact_ledger_poisoned`` after a failed write, ``fact_ledger_terminal`` after
            pause or finish, ``verification_missing`` for a COMPLETE that no passed
            verification precedes (all three write nothing and change nothing), else what
            the log raises, and then the journal is poisoned.

        Source: durable-runs 2.
        """
        if self._first_error is not None:
            raise PrpError(ErrorCode.FACT_LEDGER_POISONED, self._first_error.code.value)
        if self._is_terminal:
            raise PrpError(ErrorCode.FACT_LEDGER_TERMINAL, "the run has paused or finished")
        facts = self._log.facts
        if _claims_success(kind, payload) and not facts.is_verified:
            raise PrpError(ErrorCode.VERIFICATION_MISSING, "nothing proves that the run is done")
        record = RunRecord(
            run_id=self._log.run_id,
            sequence=facts.last_sequence + 1,
            timestamp=timestamp,
            kind=kind,
            payload=payload,
            event_id=event_id,
        )
        self._is_terminal = kind in _TERMINAL_KINDS
        try:
            acknowledgement = self._log.append(record, self._needed(record, durability))
        except PrpError as error:
            self._first_error = error
            self._failed_sequence = record.sequence
            raise
        return Appended(record, acknowledgement)

    def admit(
        self,
        entry: JsonValue,
        *,
        timestamp: str,
        durability: Durability | None = None,
    ) -> Appended | None:
        """Write a trace event, unless it comes too late.

        Returns:
            What `append` returns, or None for an event that the cancel mark forbids; it is
            counted and otherwise forgotten.
        """
        if self._known_turn_ids is not None and _is_late(entry, self._known_turn_ids):
            self._rejected += 1
            return None
        return self.append(RecordKind.EVENT, entry, timestamp=timestamp, durability=durability)

    def mark_aborted(self, known_turn_ids: Iterable[str]) -> None:
        """Set the cancel mark; a second one changes nothing.

        Args:
            known_turn_ids: turns whose effects may still be told of.
        """
        if self._known_turn_ids is None:
            self._known_turn_ids = frozenset(known_turn_ids)

    def flush(self) -> None:
        """Raise the first error of a write again, if there was one."""
        if self._first_error is not None:
            raise self._first_error

    def _needed(self, record: RunRecord, asked: Durability | None) -> Durability:
        if asked is Durability.CRITICAL:
            return asked
        if record.kind in _OWN_LIFE and self._log.boundary is Boundary.PROCESS_MEMORY:
            return Durability.ORDINARY
        return durability_of(record.kind, record.payload)


def durability_of(kind: RecordKind, payload: JsonValue | UnsetType = UNSET) -> Durability:
    """Return how durable a fact must be before anything follows from it (durable-runs 2).

    What follows an ordinary fact and is critical makes both durable, so that ACCEPT is
    critical and later steps of the operation ride along with what they precede. The result
    of a critical tool is for its caller to know.
    """
    if kind in _CRITICAL_KINDS:
        return Durability.CRITICAL
    if not isinstance(payload, dict):
        return Durability.ORDINARY
    if kind is RecordKind.OPERATION:
        is_critical = payload.get("event") == OperationEvent.ACCEPT.value
    elif kind is RecordKind.EVENT and isinstance(event := payload.get("event"), dict):
        is_critical = event.get("type") in _CRITICAL_EVENTS or (
            event.get("type") == _RECEIPT and event.get("status") != _NOT_STARTED
        )
    else:
        is_critical = False
    return Durability.CRITICAL if is_critical else Durability.ORDINARY


def _claims_success(kind: RecordKind, payload: JsonValue | UnsetType) -> bool:
    return (
        kind is RecordKind.OPERATION
        and isinstance(payload, dict)
        and payload.get("event") == OperationEvent.COMPLETE.value
    )


def _is_late(entry: JsonValue, known_turn_ids: frozenset[str]) -> bool:
    event = entry.get("event") if isinstance(entry, dict) else None
    if not isinstance(event, dict):
        return False
    kind = event.get("type")
    if kind in _LATE_ALWAYS:
        return True
    if kind != _RECEIPT or event.get("status") not in _LATE_STATUSES:
        return False
    turn_id = event.get("turnId")
    return not isinstance(turn_id, str) or turn_id not in known_turn_ids
