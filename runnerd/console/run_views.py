"""What is shown of runs: rows of a list, one run, its records, and a planned resumption.

It decides what of a log is worth a line. It refuses to judge: projection, plan and
verification do, and their words are passed on.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.projection import RunProjection
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.resume_plan import EffectAccount, ResumeDecision, StepAccount
from runnerd.runs.resume_table import Finding

_SHOWN_MEMBERS: Final = ("tool", "status", "stepId", "callId", "outcome", "reason", "state")
_SHOWN_CHARS: Final = 60
_UNKNOWN_STATUS: Final[Mapping[ErrorCode | None, str]] = MappingProxyType(
    {
        ErrorCode.RUN_STATE_FAILED: "unreadable",
        ErrorCode.RUN_STATE_LOCKED: "locked",
        ErrorCode.UNKNOWN_RUN: "empty",
    }
)
"""What a list says of a run whose log tells no status; for any other reason it is damaged."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run in a list; ``code`` says why nothing else is known of it."""

    run_id: str
    status: str | None = None
    operation: str | None = None
    finish_reason: str | None = None
    resumable: bool | None = None
    requires_human: bool | None = None
    records: int | None = None
    code: ErrorCode | None = None
    words: str = ""


class RunView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run."""

    projection: RunProjection
    steps: tuple[StepAccount, ...]
    effects: tuple[EffectAccount, ...]
    begun_with: dict[str, JsonValue]
    """The members of `start` that say what was known before the run began."""


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One record."""

    sequence: int
    timestamp: str
    kind: RecordKind
    summary: str


class RefusalView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a run would not be resumed, and the record that decides."""

    code: ErrorCode
    finding: Finding
    sequence: int | None
    words: str


class ResumeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a resumption would do."""

    run_id: str
    would_resume: bool
    refusal: RefusalView | None
    steps: tuple[StepAccount, ...]
    effects: tuple[EffectAccount, ...]
    operation_events: tuple[str, ...]
    replays: tuple[str, ...]
    """Effects that would be made again under their keys."""
    decided: tuple[str, ...]
    """Effects that were decided by a person or an authority."""


def row_of(projection: RunProjection) -> RunRow:
    """Return a run's line in the list."""
    operation = projection.operation
    return RunRow(
        run_id=projection.run_id,
        status=projection.status.value,
        operation=None if operation is None else operation.state.value,
        finish_reason=projection.finish_reason,
        resumable=projection.resumable,
        requires_human=projection.requires_human,
        records=projection.record_count,
    )


def resume_view(run_id: str, decision: ResumeDecision) -> ResumeView:
    """Return a decision as it is shown."""
    refusal, plan = decision.refusal, decision.plan
    return ResumeView(
        run_id=run_id,
        would_resume=plan is not None,
        refusal=None
        if refusal is None
        else RefusalView(
            code=refusal.code,
            finding=refusal.finding,
            sequence=refusal.evidence.sequence,
            words=refusal.evidence.words,
        ),
        steps=decision.steps,
        effects=decision.effects,
        operation_events=()
        if plan is None
        else tuple(
            event.value + ("" if reason is None else f"({reason})")
            for event, reason in plan.operation_events
        ),
        replays=()
        if plan is None
        else tuple(candidate.previous_receipt_id for candidate in plan.replay_candidates),
        decided=() if plan is None else tuple(one.effect_id for one in plan.decided),
    )


def timeline(records: Iterable[RunRecord]) -> Iterator[TimelineRow]:
    """Yield a row for each record."""
    for record in records:
        yield TimelineRow(
            sequence=record.sequence,
            timestamp=record.timestamp,
            kind=record.kind,
            summary=_summary(record),
        )


def _summary(record: RunRecord) -> str:
    payload = record.payload
    if not isinstance(payload, dict):
        return ""
    match record.kind:
        case RecordKind.OPERATION:
            said = f"{payload.get('event')} -> {payload.get('to')}"
            reason = payload.get("reason")
            return said if reason is None else f"{said} ({reason})"
        case RecordKind.EVENT:
            event = payload.get("event")
            return _shown(event, "type") if isinstance(event, dict) else ""
        case RecordKind.VERIFICATION:
            return " ".join(f"{name}={_spelled(value is True)}" for name, value in payload.items())
        case RecordKind.PAUSE | RecordKind.FINISH:
            outcome = payload.get("outcome")
            if not isinstance(outcome, dict):
                return ""
            return f"{outcome.get('status')} ({outcome.get('finishReason')})"
        case _:
            return _shown(payload, "type")


def _shown(members: dict[str, JsonValue], first: str) -> str:
    values = [members.get(name) for name in (first, *_SHOWN_MEMBERS)]
    texts = [value[:_SHOWN_CHARS] for value in values if isinstance(value, str)]
    return " ".join(texts)


# --- words ------------------------------------------------------------------------------------


def lines_of_list(rows: Iterable[RunRow]) -> Iterator[str]:
    """Yield a table of runs."""
    yield from table(
        ("RUN", "STATUS", "OPERATION", "REASON", "RESUMABLE", "RECORDS"),
        [
            (
                row.run_id,
                row.status or _UNKNOWN_STATUS.get(row.code, "damaged"),
                row.operation or "-",
                row.finish_reason or (row.code.value if row.code else "-"),
                _resumable(row),
                "-" if row.records is None else str(row.records),
            )
            for row in rows
        ],
    )


def _resumable(row: RunRow) -> str:
    if row.resumable is None:
        return "-"
    return "yes" if row.resumable else "needs a person" if row.requires_human else "no"


def lines_of_run(view: RunView) -> Iterator[str]:
    """Yield one run for a person."""
    seen = view.projection
    operation = seen.operation
    reason = "" if seen.finish_reason is None else f" ({seen.finish_reason})"
    yield f"run        {seen.run_id}"
    yield f"status     {seen.status.value}{reason}"
    if operation is not None:
        yield f"operation  {operation.state.value} since {operation.updated_at}"
    yield f"resumable  {_resumable(row_of(seen))}"
    yield f"records    {seen.record_count}"
    yield from (f"{name}  {_spelled(value)}" for name, value in view.begun_with.items())
    if seen.unsafe_call is not None:
        unsafe = seen.unsafe_call
        yield f"in doubt   {unsafe.tool}: {unsafe.code.value}, record {unsafe.sequence}"
    yield from (f"waits for  approval {name}" for name in seen.pending_approvals)
    yield from (f"checkpoint {name}" for name in seen.checkpoint_ids)
    yield from _accounts(view.steps, view.effects)


def _spelled(value: JsonValue) -> str:
    # A log may hold half a character, which only this writer spells.
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def lines_of_timeline(rows: Iterable[TimelineRow]) -> Iterator[str]:
    """Yield one line for each record."""
    for row in rows:
        yield f"{row.sequence:6}  {row.timestamp:24}  {row.kind.value:12}  {row.summary}".rstrip()


def lines_of_resume(view: ResumeView) -> Iterator[str]:
    """Yield what a resumption would do, and which record decides."""
    yield f"run        {view.run_id}"
    refusal = view.refusal
    if refusal is None:
        yield "verdict    would be resumed"
        yield f"operation  {' '.join(view.operation_events)}"
    else:
        where = "" if refusal.sequence is None else f", record {refusal.sequence}"
        words = f": {refusal.words}" if refusal.words else ""
        yield f"verdict    would not be resumed: {refusal.code.value}{where}{words}"
    yield from _accounts(view.steps, view.effects)


def _accounts(steps: tuple[StepAccount, ...], effects: tuple[EffectAccount, ...]) -> Iterator[str]:
    rows = [
        ("step", step.step_id, "", step.verdict.value, step.reason.value, f"record {step.sequence}")
        for step in steps
    ]
    rows += [
        (
            "effect",
            effect.effect_id,
            effect.tool,
            effect.verdict.value,
            effect.reason.value,
            f"record {effect.sequence}",
        )
        for effect in effects
    ]
    if rows:
        yield from table(("WHAT", "NAME", "TOOL", "VERDICT", "WHY", "DECIDED BY"), rows)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows in columns as wide as what is in them."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
