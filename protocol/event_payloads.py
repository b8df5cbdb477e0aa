"""What the payload of each typed event holds.

It decides which payloads fit. It refuses to know the event around them.
Source: prp-wire 7.2, 9.1 and 14.
"""

from typing import Final

from protocol.activity_payloads import ACTIVITY
from protocol.fields import CODE, COUNT, DIGEST, MAYBE_COUNT, MAYBE_SHORT, STABLE, TIME, WORDS
from protocol.shapes import (
    Rule,
    an_object,
    choice,
    either,
    flag,
    items,
    members,
    nullable,
    number,
    one_of,
    opened,
    text,
    when,
    whole,
)

# --- Calls of tools ---------------------------------------------------------------------------

_REFERENCE_KINDS: Final = (
    "task document_revision interaction approval decision artifact work_product wake monitor "
    "audit operation"
)


def _reference(kinds: str) -> Rule:
    return members({"kind": choice(kinds), "id": STABLE}, is_open=True)


def _tool_call(phase: str) -> Rule:
    correlation = {
        "runId": STABLE,
        "normalizedSessionId": STABLE,
        "turnId": STABLE,
        "itemId": STABLE,
        "requestId?": STABLE,
    }
    content = {
        "digest": DIGEST,
        "redactionDisposition": choice("digest_only allowlisted_references redacted"),
        "references": items(_reference(_REFERENCE_KINDS), unique=True),
    }
    target = {
        "kind": choice("document_revision interaction approval decision"),
        "id": STABLE,
        "immutable": one_of(True),
        "revisionId?": STABLE,
        "decisionId?": STABLE,
    }
    optional = "?" if phase == "input" else ""
    return opened(
        "paperclip.prp.semantic_tool.v1",
        {
            "schemaVersion": one_of(1),
            "phase": one_of(phase),
            "operationId": STABLE,
            "callId": STABLE,
            "correlation": members(correlation, is_open=True),
            "idempotencyKey": nullable(text(1, 240)),
            "content": members(content, is_open=True),
            f"outcome{optional}": choice("succeeded denied conflict duplicate unavailable failed"),
            f"code{optional}": CODE,
            f"retryable{optional}": flag,
            f"authorizationBoundary{optional}": choice(
                "company actor active_task grant governed_action lock revision"
            ),
            f"operationReceiptId{optional}": STABLE,
            "auditReceiptId?": STABLE,
            "currentRevision?": either(COUNT, STABLE),
            "duplicateOfReceiptId?": STABLE,
            "artifactRefs?": items(_reference("artifact work_product"), unique=True),
            "targets?": items(members(target, is_open=True), unique=True),
            "causalRefs?": items(_reference(_REFERENCE_KINDS), unique=True),
        },
    )


def _carries_call(phase: str) -> Rule:
    return members({"semantic_tool?": _tool_call(phase)}, is_open=True)


SEMANTIC_INPUT: Final[Rule] = members({"semantic_tool": _tool_call("input")}, is_open=True)
"""An input event's payload that surely carries a call; the schema itself lets it be absent."""

# --- How a run ends ---------------------------------------------------------------------------

_DISPOSITION: Final = choice("done blocked needs_review yielded")
_AGGREGATE: Final = {
    "unit": choice("cents usd_micros tokens"),
    "observed": COUNT,
    "limit": COUNT,
    "window": choice("run monthly_utc provider_window"),
}
_STOP_REASON: Final = opened(
    "paperclip.prp.stop_reason.v1",
    {
        "schemaVersion": one_of(1),
        "receiptId": STABLE,
        "kind": choice("budget cost"),
        "code": CODE,
        "retryable": flag,
        "decisionId": STABLE,
        "limitClass": choice(
            "company_monthly actor_monthly project_monthly run_cost provider_quota"
        ),
        "aggregate": members(_AGGREGATE, is_open=True),
        "relatedReceiptIds?": items(STABLE, unique=True),
    },
)
_TERMINAL: Final = opened(
    "paperclip.prp.terminal.v1",
    {
        "turnTerminalState": choice("completed failed interrupted cancelled"),
        "runTerminalState": choice("succeeded failed cancelled"),
        "reportedWorkDisposition": _DISPOSITION,
        "workAssessmentId?": WORDS,
        "statusDecisionId?": WORDS,
        "stopReason?": _STOP_REASON,
    },
)
_CRITERION: Final = {
    "criterionId": WORDS,
    "status": choice("satisfied not_satisfied unknown"),
    "evidenceRefs": items(text()),
    "explanation?": text(),
}
_CLAIM: Final = {
    "contractRevision": WORDS,
    "objectiveSatisfied": flag,
    "criteria": items(members(_CRITERION, is_open=True)),
    "remainingWork": items(members({"description": WORDS, "blocksCompletion": flag}, is_open=True)),
}
_VERIFICATION: Final = {
    "commandOrCheck": WORDS,
    "status": choice("passed failed not_run"),
    "reasonCode?": choice(
        "environment_unavailable tool_unavailable dependency_missing permission_denied "
        "credential_missing policy_restricted external_service_unavailable budget_exhausted other"
    ),
    "detail?": text(),
    "artifactRef?": text(),
}
_BLOCKER: Final = {
    "reasonCode": WORDS,
    "owner": members({"kind": choice("agent user system external"), "name": WORDS}, is_open=True),
    "unblockAction": WORDS,
    "scope": choice("current_track task_wide"),
}
_ATTENTION: Final = {
    "kind?": WORDS,
    "summary?": WORDS,
    "ownerClass?": choice("human agent external_system"),
    "targetAgentId?": WORDS,
}
_CONTINUATION: Final = {
    "kind": choice("same_agent retry delegated_issue response_wake monitor"),
    "summary": WORDS,
    "idempotencyKey": WORDS,
}
_RESULT_MEMBERS: Final = {
    "reportedWorkDisposition": _DISPOSITION,
    "summary": text(1, 12_000),
    "completionClaim": members(_CLAIM, is_open=True),
    "evidence": items(an_object),
    "verification": items(members(_VERIFICATION, is_open=True)),
    "blocker?": members(_BLOCKER, is_open=True),
    "attentionRequests": items(members(_ATTENTION, is_open=True)),
    "artifacts": items(members({"kind": WORDS, "ref": WORDS, "title?": text()}, is_open=True)),
    "continuation?": members(_CONTINUATION, is_open=True),
}
RUN_RESULT_NEEDS: Final = ("schema", *(name for name in _RESULT_MEMBERS if name[-1] != "?"))
"""Members without which there is no `paperclip.run_result.v1`."""
_RESULT: Final = opened("paperclip.run_result.v1", _RESULT_MEMBERS)
_RUN_RESULT: Final = when(
    _RESULT, "reportedWorkDisposition", {"blocked": "blocker", "yielded": "continuation"}
)

# --- Goals of a session (v2) ------------------------------------------------------------------

_GOAL: Final = {
    "objective": text(1, 4000),
    "status": choice("active paused blocked limited usage_limited budget_limited complete"),
    "tokenBudget": nullable(whole(1)),
    "tokensUsed": MAYBE_COUNT,
    "elapsedSeconds": nullable(number(0)),
    "iterations": MAYBE_COUNT,
    "lastReason": MAYBE_SHORT,
    "createdAt": nullable(TIME),
    "updatedAt": nullable(TIME),
    "completedAt": nullable(TIME),
    "workingNow": flag,
}
_GOAL_CAPABILITY: Final = {
    "availability": choice("available unsupported policy_disabled"),
    "actions": items(choice("set pause resume clear"), unique=True),
    "autonomousUpdates": flag,
    "persistentAcrossResume": flag,
    "maxObjectiveChars": whole(1, 4000),
    "tokenBudgetControl": flag,
    "usageReporting": flag,
    "reasonCode?": text(1, 160),
    "reason?": text(1, 1000),
}
_CARRIES_GOAL: Final = members({"goal": nullable(members(_GOAL, is_open=True))}, is_open=True)

# --- The tables -------------------------------------------------------------------------------

PAYLOADS_V1: Final[dict[str, Rule]] = {
    **ACTIVITY,
    "semantic_tool.input": _carries_call("input"),
    "mcp_app.tool_input": _carries_call("input"),
    "semantic_tool.result": _carries_call("result"),
    "mcp_app.tool_result": _carries_call("result"),
    "semantic_tool.reconciled": _carries_call("reconciled"),
    "run.terminal": _TERMINAL,
    "run.result.proposed": _RUN_RESULT,
}

PAYLOADS_V2: Final[dict[str, Rule]] = {
    "session.goal.snapshot": _CARRIES_GOAL,
    "session.goal.updated": _CARRIES_GOAL,
    "session.capabilities.updated": members(
        {"sessionGoals": members(_GOAL_CAPABILITY, is_open=True)}, is_open=True
    ),
}
