"""The end of an attempt as its log has it, and the snapshot that follows from the log alone.

It decides which parts a terminal record is made of and how a snapshot is rebuilt. It refuses
to take a part from anywhere but the records: who rebuilds it later gets the same.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.metrics import run_metrics
from runnerd.runs.operation import Operation
from runnerd.runs.outcome import Outcome
from runnerd.runs.records import OperationSnapshot, RecordKind, RunRecord, struct_from
from runnerd.runs.resume import first_unsafe_call
from runnerd.runs.resume_table import Finding
from runnerd.runs.run_facts import RunFacts
from runnerd.runs.snapshot import (
    SNAPSHOT_SCHEMA,
    Evaluation,
    RunSnapshot,
    fresh_readiness,
    is_resumable,
    read_snapshot,
)
from runnerd.runs.terminal_rules import SNAPSHOT_MEMBERS

_NOT_EVALUATED = Evaluation(
    profile="development", scenario_results=(), quality_scores={}, security_findings=()
)


class RunStory:
    """One pass over a run's records that keeps what a snapshot shows of them."""

    def __init__(self) -> None:
        self.facts = RunFacts()
        self._trace: list[JsonValue] = []
        self._checkpoints: dict[str, JsonValue] = {}
        self._began_at: str | None = None

    def apply(self, record: RunRecord) -> None:
        """Take the next record."""
        self.facts.apply(record)
        payload = record.payload
        if record.kind is RecordKind.START:
            self._began_at = self._began_at or record.timestamp
        elif record.kind is RecordKind.EVENT and isinstance(payload, dict) and "event" in payload:
            self._trace.append(payload)
        elif record.kind is RecordKind.CHECKPOINT and isinstance(payload, dict):
            self._checkpoints[str(payload.get("checkpointId"))] = payload

    def terminal_payload(
        self, operation: Operation, outcome: Outcome, *, ended_at: str, output_chars: int
    ) -> dict[str, JsonValue]:
        """Return the payload of the `pause` or `finish` that ends this attempt.

        Args:
            operation: after its last transition.
            ended_at: the record's own timestamp; the run's duration goes up to it.
            output_chars: that the program printed; they stand in no record.
        """
        metrics = run_metrics(
            self._events(),
            duration_ms=_between(self._began_at, ended_at),
            output_chars=output_chars,
        )
        payload: JsonValue = msgspec.to_builtins(
            {
                "operation": operation.snapshot,
                "outcome": outcome,
                "metrics": metrics,
                "evaluation": _NOT_EVALUATED,
                "releaseReadiness": fresh_readiness(outcome, _NOT_EVALUATED),
                "artifacts": [],
                "extensions": [],
            }
        )
        assert isinstance(payload, dict)
        return payload

    def snapshot(self) -> RunSnapshot | None:
        """Return the envelope of the run, None if no terminal record has all its parts.

        Call it after the facts are closed. Raises PrpError ``invalid_run_snapshot`` for
        parts that do not fit together.
        """
        terminal = self.facts.terminal
        if terminal is None or not all(name in terminal.payload for name in SNAPSHOT_MEMBERS):
            return None
        members: dict[str, JsonValue] = {
            "schemaVersion": SNAPSHOT_SCHEMA,
            "runId": self.facts.run_id,
            **{name: terminal.payload[name] for name in SNAPSHOT_MEMBERS},
            "trace": self._trace,
            "checkpoints": list(self._checkpoints.values()),
        }
        operation, outcome = _parts(members)
        members["resumable"] = is_resumable(
            operation, outcome, has_unsafe_call=self._has_unsafe_call()
        )
        return read_snapshot(members)

    def _has_unsafe_call(self) -> bool:
        is_contradictory = Finding.CONTRADICTORY_EFFECTS in self.facts.findings
        return is_contradictory or first_unsafe_call(self.facts.calls) is not None

    def _events(self) -> Iterable[Mapping[str, JsonValue]]:
        for entry in self._trace:
            event = entry.get("event") if isinstance(entry, dict) else None
            if isinstance(event, dict):
                yield event


def tell_story(records: Iterable[RunRecord]) -> RunStory:
    """Return what one pass over a whole log keeps, its facts closed."""
    story = RunStory()
    for record in records:
        story.apply(record)
    story.facts.close()
    return story


def _parts(members: Mapping[str, JsonValue]) -> tuple[OperationSnapshot, Outcome]:
    try:
        return (
            struct_from(members["operation"], OperationSnapshot),
            struct_from(members["outcome"], Outcome),
        )
    except PrpError as error:
        raise PrpError(ErrorCode.INVALID_RUN_SNAPSHOT, error.message) from None


def _between(began_at: str | None, ended_at: str) -> int:
    """Return milliseconds, 0 if a clock went back or an instant is none."""
    began, ended = _moment(began_at), _moment(ended_at)
    if began is None or ended is None:
        return 0
    return max(0, (ended - began) // timedelta(milliseconds=1))


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
