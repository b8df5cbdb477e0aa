"""The shapes of the payloads that end or interrupt a run: one table of rules.

It decides whether a pause, a finish, a loop snapshot or a checkpoint record is well formed;
absent members say nothing. It refuses to know what follows from one.
"""

import math
from collections.abc import Mapping
from typing import Final

from protocol.canonical_json import JsonValue
from protocol.shapes import (
    Rule,
    an_object,
    choice,
    flag,
    items,
    members,
    number,
    one_of,
    text,
    whole,
)
from runnerd.runs.codes import RunStatus
from runnerd.runs.records import OperationState

_ANY_TEXT: Final = text()
_ID: Final = text(1)
_NUMBER: Final = number()
_COUNT: Final = whole(0)
_INSTANT: Final = text(1)


def finite(value: JsonValue) -> str | None:
    """Ask for a number from 0 that JSON can hold."""
    misfit = _NUMBER(value)
    if misfit is not None:
        return misfit
    assert isinstance(value, int | float)
    return None if math.isfinite(value) and value >= 0 else ""


def map_of_numbers(value: JsonValue) -> str | None:
    """Ask for an object whose values are numbers."""
    if not isinstance(value, dict):
        return ""
    return next(("" for item in value.values() if _NUMBER(item) is not None), None)


def a_list(value: JsonValue) -> str | None:
    """Ask for an array of anything."""
    return None if isinstance(value, list) else ""


def _opened(fields: Mapping[str, Rule]) -> Rule:
    return members(fields, is_open=True)


OUTCOME_RULE: Final = _opened(
    {
        "status": choice(" ".join(RunStatus)),
        "finishReason": _ANY_TEXT,
        "error?": _opened({"code": _ID, "message?": _ANY_TEXT, "audit?": an_object}),
    }
)
OPERATION_RULE: Final = _opened(
    {
        "schemaVersion": whole(1, 1),
        "operationId": _ID,
        "runId": _ID,
        "correlationId": _ID,
        "state": choice(" ".join(OperationState)),
        "transitionSequence": whole(1),
        "createdAt": _INSTANT,
        "updatedAt": _INSTANT,
        "pauseReason?": _ANY_TEXT,
        "failureReason?": _ANY_TEXT,
    }
)
METRICS_RULE: Final = _opened(
    {
        "durationMs": finite,
        "turns": finite,
        "steps": _opened({"total": finite, "succeeded": finite, "failed": finite}),
        "toolCalls": finite,
        "toolFailures": finite,
        "retries": finite,
        "outputChars": finite,
        "tokens?": finite,
        "costUsd?": finite,
        "context?": an_object,
        "artifacts?": _opened({"stored": finite, "blocked": finite, "totalBytes": finite}),
        "rejectedAfterAbort?": finite,
    }
)
EVALUATION_RULE: Final = _opened(
    {
        "profile": choice("development standard strict"),
        "scenarioResults": items(
            _opened({"id": _ID, "passed": flag, "score?": _NUMBER, "reason?": _ANY_TEXT})
        ),
        "qualityScores": map_of_numbers,
        "securityFindings": a_list,
    }
)
READINESS_RULE: Final = _opened(
    {
        "ready": flag,
        "blockers": items(_ANY_TEXT),
        "warnings": items(_ANY_TEXT),
        "overrideRecord?": _opened({"reason": _ANY_TEXT, "recordedAt": _INSTANT}),
    }
)
ARTIFACT_RULE: Final = _opened(
    {
        "artifactId": _ID,
        "status": choice("stored blocked"),
        "sizeBytes": _COUNT,
        "mediaType": _ANY_TEXT,
    }
)
EXTENSION_RULE: Final = _opened(
    {
        "extensionId": _ID,
        "extensionVersion": _ANY_TEXT,
        "event": _ANY_TEXT,
        "status": choice("succeeded failed timed_out"),
        "durationMs": finite,
        "error?": _ANY_TEXT,
        "denied?": flag,
    }
)
TERMINAL_RULE: Final = _opened(
    {
        "operation?": OPERATION_RULE,
        "outcome?": OUTCOME_RULE,
        "metrics?": METRICS_RULE,
        "evaluation?": EVALUATION_RULE,
        "releaseReadiness?": READINESS_RULE,
        "artifacts?": items(ARTIFACT_RULE),
        "extensions?": items(EXTENSION_RULE),
        "loopSnapshot?": an_object,
    }
)
"""The payload of `pause` and `finish`. Source: durable-runs 2 and 5."""

SNAPSHOT_MEMBERS: Final = (
    "operation",
    "outcome",
    "metrics",
    "evaluation",
    "releaseReadiness",
    "artifacts",
    "extensions",
)
"""What a terminal payload must have for a snapshot to be rebuilt from the log."""

LOOP_RULE: Final = _opened(
    {
        "schemaVersion": whole(1, 1),
        "machineVersion": one_of("1"),
        "runId": _ID,
        "configFingerprint": _ANY_TEXT,
        "phase": choice(
            "idle planning executing verifying repairing paused succeeded failed aborted timeout"
            " budget_exceeded"
        ),
        "iteration": _COUNT,
        "repairCount": _COUNT,
        "repeatedActionCount": _COUNT,
        "transitionSequence": _COUNT,
    }
)
"""Source: durable-runs 0 and 4."""

AFTER_STATE: Final[tuple[str, ...]] = ("afterExisted", "afterSha256")
CHECKPOINT_RULE: Final = _opened(
    {
        "version": whole(1, 1),
        "checkpointId": _ID,
        "runId": _ID,
        "timestamp": _INSTANT,
        "tool": _ANY_TEXT,
        "reversible": flag,
        "snapshotFile": _ANY_TEXT,
        "operationId?": _ANY_TEXT,
        "toolCallId?": _ANY_TEXT,
        "idempotencyKey?": _ANY_TEXT,
        "targetPath?": _ANY_TEXT,
        "existed?": flag,
        "beforeSha256?": _ANY_TEXT,
        "afterExisted?": flag,
        "afterSha256?": _ANY_TEXT,
        "reason?": _ANY_TEXT,
    }
)
"""A checkpoint as the log has it, without content. Source: durable-runs 8."""
