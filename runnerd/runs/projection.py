"""The state of a run as its facts alone tell it: one view for every reader.

It decides status, what is pending and whether a person is needed. It refuses to derive what
is not in the log, and to speak of a log that it does not understand as a whole.

    finished     the last terminal record is a finish
    paused       it is a pause, and no later attempt began
    interrupted  neither: the run was going on when its log ended
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.codes import HumanAction, attributes_of
from runnerd.runs.effect_facts import ResumeRules
from runnerd.runs.records import (
    OperationSnapshot,
    OperationState,
    RecordKind,
    RunRecord,
)
from runnerd.runs.resume import first_unsafe_call
from runnerd.runs.resume_plan import UnsafeCall
from runnerd.runs.resume_table import Evidence, Finding
from runnerd.runs.run_facts import RunFacts, error_code
from runnerd.runs.terminal_rules import SNAPSHOT_MEMBERS

_REFUSED: Final = (
    Finding.NO_RECORDS,
    Finding.OUT_OF_ORDER,
    Finding.FACTS_NOT_UNDERSTOOD,
    Finding.NO_START,
    Finding.MALFORMED_FACT,
)
_REFUSALS: Final = {Finding.NO_RECORDS: ErrorCode.UNKNOWN_RUN}
_LIVE: Final = (OperationState.ACCEPTED, OperationState.RUNNING, OperationState.PAUSED)


class ProjectionStatus(enum.StrEnum):
    """How the log of a run ends."""

    FINISHED = "finished"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"


class RunProjection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a log says about its run."""

    run_id: str
    status: ProjectionStatus
    operation: OperationSnapshot | None
    finish_reason: str | None
    """Of the last terminal record of the present attempt."""
    resumable: bool
    """Nothing in the facts keeps the run from going on; its configuration was not compared."""
    requires_human: bool
    """Its end or one of its effects waits for a person, even if the run is over."""
    unsafe_call: UnsafeCall | None
    has_snapshot: bool
    """The terminal record has everything that a snapshot is made of."""
    checkpoint_ids: tuple[str, ...]
    pending_approvals: tuple[str, ...]
    pending_controls: int
    record_count: int


def project_run(
    records: Iterable[RunRecord], rules: ResumeRules = ResumeRules.STRICT
) -> RunProjection:
    """Return the view of a run after one pass over its records, in the order given.

    Args:
        rules: `original` only for a plain log, which the original wrote.

    Raises:
        PrpError: ``unknown_run`` for no records; ``run_state_corrupt`` for records out of
            order or of another run, an unknown event and a malformed payload;
            ``operation_state_corrupt`` for a broken chain of transitions.

    Source: durable-runs 5, "Projection status".
    """
    projector = RunProjector()
    for record in records:
        projector.apply(record)
    return projector.close(rules)


class RunProjector:
    """`project_run` for who learns only at the end of the log whose rules hold."""

    def __init__(self) -> None:
        self._facts = RunFacts()
        self._checkpoint_ids: dict[str, None] = {}

    def apply(self, record: RunRecord) -> None:
        """Take the next record."""
        self._facts.apply(record)
        payload = record.payload
        if record.kind is RecordKind.CHECKPOINT and isinstance(payload, dict):
            self._checkpoint_ids[str(payload.get("checkpointId"))] = None

    def close(self, rules: ResumeRules) -> RunProjection:
        """Return the view after the last record; raises what `project_run` raises."""
        self._facts.close()
        for finding in _REFUSED:
            evidence = self._facts.findings.get(finding)
            if evidence is not None:
                raise _refusal(finding, evidence)
        return _projection(self._facts, tuple(self._checkpoint_ids), rules)


def _projection(
    facts: RunFacts, checkpoint_ids: tuple[str, ...], rules: ResumeRules
) -> RunProjection:
    status = _status(facts)
    operation = None if facts.operation is None else facts.operation.snapshot
    unsafe = first_unsafe_call(facts.calls, rules)
    is_contradictory = Finding.CONTRADICTORY_EFFECTS in facts.findings
    in_doubt = unsafe is not None or is_contradictory
    terminal: Mapping[str, JsonValue] = {} if facts.terminal is None else facts.terminal.payload
    code = error_code(terminal)
    waits = code is not None and attributes_of(code).human_action is HumanAction.REQUIRED
    is_live = operation is None or operation.state in _LIVE
    outcome = terminal.get("outcome")
    reason = outcome.get("finishReason") if isinstance(outcome, dict) else None
    is_over = status is ProjectionStatus.FINISHED
    has_ended_input = Finding.INPUT_ENDED in facts.findings
    return RunProjection(
        run_id=facts.run_id,
        status=status,
        operation=operation,
        finish_reason=reason if isinstance(reason, str) else None,
        resumable=not (is_over or in_doubt or waits or has_ended_input) and is_live,
        requires_human=waits or in_doubt,
        unsafe_call=unsafe,
        has_snapshot=all(member in terminal for member in SNAPSHOT_MEMBERS),
        checkpoint_ids=checkpoint_ids,
        pending_approvals=tuple(facts.pending_approvals),
        pending_controls=len(facts.pending_controls),
        record_count=facts.record_count,
    )


def _status(facts: RunFacts) -> ProjectionStatus:
    if facts.terminal is None:
        return ProjectionStatus.INTERRUPTED
    if facts.terminal.kind is RecordKind.FINISH:
        return ProjectionStatus.FINISHED
    return ProjectionStatus.PAUSED


def _refusal(finding: Finding, evidence: Evidence) -> PrpError:
    code = _REFUSALS.get(finding) or evidence.code or ErrorCode.RUN_STATE_CORRUPT
    where = "" if evidence.sequence is None else f"record {evidence.sequence}: "
    return PrpError(code, where + evidence.words)
