"""The one terminal envelope of a run: every entry point serialises and validates this struct.

It decides what a finished or paused run says about itself, and whether two statements about
one run agree. It refuses to derive a second status: all parts come from the durable facts.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.codes import RunStatus
from runnerd.runs.json_lines import comparable_json
from runnerd.runs.metrics import RunMetrics
from runnerd.runs.outcome import Outcome
from runnerd.runs.records import UNFIT, OperationSnapshot, OperationState

SNAPSHOT_SCHEMA: Final = 1


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One evaluated scenario."""

    id: str
    passed: bool
    score: float | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the run was judged."""

    profile: Literal["development", "standard", "strict"]
    scenario_results: tuple[ScenarioResult, ...]
    quality_scores: dict[str, float]
    security_findings: tuple[Any, ...]
    """Any JSON values; msgspec has no type for those but Any."""


class Override(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A person's decision to release in spite of blockers."""

    reason: str
    recorded_at: str


class ReleaseReadiness(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Whether the result may be released, and what speaks against it."""

    ready: bool
    blockers: tuple[str, ...]
    warnings: tuple[str, ...]
    override_record: Override | msgspec.UnsetType = msgspec.UNSET


class Artifact(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something the run stored, or was kept from storing."""

    artifact_id: str
    status: Literal["stored", "blocked"]
    size_bytes: int
    media_type: str
    created_at: str
    retention: Literal["run"]
    redaction: Literal["none", "blocked-secret"]
    relative_path: str | msgspec.UnsetType = msgspec.UNSET
    sha256: str | msgspec.UnsetType = msgspec.UNSET


class ExtensionReceipt(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What an extension did at one of its events."""

    extension_id: str
    extension_version: str
    event: str
    status: Literal["succeeded", "failed", "timed_out"]
    duration_ms: float
    error: str | msgspec.UnsetType = msgspec.UNSET
    denied: bool | msgspec.UnsetType = msgspec.UNSET


class TraceItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of the run's trace, as the log has it."""

    event_id: str
    run_id: str
    sequence: int
    timestamp: str
    event: dict[str, Any]


class RunSnapshot(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Exactly these twelve members; pure JSON. Source: durable-runs 5."""

    schema_version: Literal[1]
    run_id: str
    operation: OperationSnapshot
    outcome: Outcome
    metrics: RunMetrics
    evaluation: Evaluation
    release_readiness: ReleaseReadiness
    trace: tuple[TraceItem, ...]
    checkpoints: tuple[dict[str, Any], ...]
    artifacts: tuple[Artifact, ...]
    extensions: tuple[ExtensionReceipt, ...]
    resumable: bool


SNAPSHOT_MEMBERS: Final = tuple(
    sorted(field.encode_name for field in msgspec.structs.fields(RunSnapshot))
)
_SHARED_WITH_RESULT: Final = ("runId", "operation", "outcome", "metrics", "trace", "checkpoints")


def is_resumable(operation: OperationSnapshot, outcome: Outcome, *, has_unsafe_call: bool) -> bool:
    """Tell whether the run may go on: paused in both views, and no effect in doubt."""
    return (
        operation.state is OperationState.PAUSED
        and outcome.status is RunStatus.PAUSED
        and not has_unsafe_call
    )


def take_snapshot(
    *,
    run_id: str,
    operation: OperationSnapshot,
    outcome: Outcome,
    metrics: RunMetrics,
    evaluation: Evaluation,
    release_readiness: ReleaseReadiness,
    trace: tuple[TraceItem, ...],
    has_unsafe_call: bool,
    checkpoints: tuple[dict[str, Any], ...] = (),
    artifacts: tuple[Artifact, ...] = (),
    extensions: tuple[ExtensionReceipt, ...] = (),
) -> RunSnapshot:
    """Build the envelope after the terminal transition.

    Raises:
        PrpError: ``invalid_run_snapshot`` if the operation belongs to another run, or if the
            parts contradict each other: a completed operation with another outcome than
            succeeded, or the reverse.
    """
    if operation.run_id != run_id:
        raise _invalid("the operation belongs to another run")
    is_complete = operation.state is OperationState.COMPLETED
    if is_complete != (outcome.status is RunStatus.SUCCEEDED):
        raise _invalid("operation and outcome disagree about success")
    return RunSnapshot(
        schema_version=1,
        run_id=run_id,
        operation=operation,
        outcome=outcome,
        metrics=metrics,
        evaluation=evaluation,
        release_readiness=release_readiness,
        trace=trace,
        checkpoints=checkpoints,
        artifacts=artifacts,
        extensions=extensions,
        resumable=is_resumable(operation, outcome, has_unsafe_call=has_unsafe_call),
    )


def encode_snapshot(snapshot: RunSnapshot) -> bytes:
    """Return the snapshot's JSON, after proving that it reads back as the same value.

    Raises:
        PrpError: ``invalid_run_snapshot`` if it is not pure JSON.
    """
    try:
        encoded = msgspec.json.encode(snapshot)
        is_the_same = read_snapshot(msgspec.json.decode(encoded)) == snapshot
    except (UnicodeEncodeError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise _invalid(f"not JSON: {type(error).__name__}") from None
    if not is_the_same:
        raise _invalid("it does not survive its own encoding")
    return encoded


def read_snapshot(value: JsonValue) -> RunSnapshot:
    """Read a snapshot strictly: exact members, exact types (true is not 1).

    Raises:
        PrpError: ``invalid_run_snapshot``.
    """
    try:
        snapshot = msgspec.convert(value, RunSnapshot)
    except UNFIT as error:
        raise _invalid(str(error)) from None
    if snapshot.operation.run_id != snapshot.run_id:
        raise _invalid("the operation belongs to another run")
    return snapshot


def check_result(result: Mapping[str, JsonValue]) -> RunSnapshot:
    """Read the snapshot inside a run result and compare every statement that both make.

    Raises:
        PrpError: ``invalid_run_snapshot`` naming the member that differs.
    """
    inner = result.get("snapshot")
    snapshot = read_snapshot(inner)
    assert isinstance(inner, dict), "read_snapshot accepts objects only"
    for member in _SHARED_WITH_RESULT:
        if member in result and not _are_equal(result[member], inner[member]):
            raise _invalid(f"{member} differs between the result and its snapshot")
    return snapshot


def snapshot_schema() -> dict[str, object]:
    """Return the JSON Schema of the envelope, as it is checked in.

    Codes are added over time, so to a reader one is any word of their form.
    """
    schema = msgspec.json.schema(RunSnapshot)
    schema["$defs"][ErrorCode.__name__] = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
    return schema


def fresh_readiness(outcome: Outcome, evaluation: Evaluation) -> ReleaseReadiness:
    """Return the readiness of a run that nobody has looked at: blocked unless all is well."""
    blockers: list[str] = []
    if outcome.status is not RunStatus.SUCCEEDED:
        blockers.append(f"run status is {outcome.status.value}")
    if not evaluation.scenario_results:
        blockers.append("no scenario was evaluated")
    if evaluation.security_findings:
        blockers.append("there are security findings")
    return ReleaseReadiness(ready=not blockers, blockers=tuple(blockers), warnings=())


def _are_equal(one: JsonValue, other: JsonValue) -> bool:
    try:
        return comparable_json(one) == comparable_json(other)
    except PrpError:
        return False


def _invalid(what: str) -> PrpError:
    return PrpError(ErrorCode.INVALID_RUN_SNAPSHOT, what)
