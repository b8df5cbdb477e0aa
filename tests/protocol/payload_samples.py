"""One complete payload for each typed event, and systematic ways to break or bend it."""

from typing import Any, Final

DIGEST: Final = "sha256:" + "0a" * 32
TIME: Final = "2026-01-02T03:04:05Z"


def _call(phase: str) -> dict[str, Any]:
    ids = ("runId", "normalizedSessionId", "turnId", "itemId", "requestId")
    reference = {"kind": "artifact", "id": "a1"}
    target = {
        "kind": "approval",
        "id": "t1",
        "immutable": True,
        "revisionId": "r1",
        "decisionId": "d1",
    }
    return {
        "semantic_tool": {
            "schema": "paperclip.prp.semantic_tool.v1",
            "schemaVersion": 1,
            "phase": phase,
            "operationId": "op.x",
            "callId": "call_1",
            "correlation": dict.fromkeys(ids, "id-1"),
            "idempotencyKey": "key",
            "input": 1,
            "content": {
                "digest": DIGEST,
                "redactionDisposition": "digest_only",
                "references": [reference, {"kind": "task", "id": "a1"}],
            },
            "outcome": "succeeded",
            "code": "done.well",
            "retryable": False,
            "authorizationBoundary": "active_task",
            "operationReceiptId": "receipt_1",
            "auditReceiptId": "receipt_2",
            "currentRevision": 3,
            "duplicateOfReceiptId": "receipt_3",
            "artifactRefs": [reference, {"kind": "work_product", "id": "w1"}],
            "targets": [target],
            "causalRefs": [{"kind": "audit", "id": "c1"}],
        }
    }


_DIFF: Final = {
    "schema": "paperclip.workspace.diff.v1",
    "changeSetId": "change 1",
    "revision": 1,
    "source": "runner_verified",
    "complete": True,
    "files": [
        {
            "path": "src/a..b.py",
            "operation": "rename",
            "previousPath": "src/a.py",
            "additions": 1,
            "deletions": None,
            "binary": False,
            "diff": "+x\n",
        }
    ],
    "totals": {"files": 1, "additions": 1, "deletions": None},
    "patchArtifactRef": "patch",
}
_GOAL: Final = {
    "goal": {
        "objective": "end well",
        "status": "active",
        "tokenBudget": 1,
        "tokensUsed": 0,
        "elapsedSeconds": 0.5,
        "iterations": 0,
        "lastReason": "none",
        "createdAt": TIME,
        "updatedAt": TIME,
        "completedAt": TIME,
        "workingNow": True,
    }
}

SAMPLES_V1: Final[dict[str, dict[str, Any]]] = {
    "plan.updated": {
        "schema": "paperclip.plan.updated.v1",
        "planId": "p1",
        "revision": 1,
        "explanation": "why",
        "steps": [{"stepId": "s1", "body": "do", "status": "pending"}],
        "complete": False,
        "syncStatus": "streaming",
        "documentRevision": 1,
    },
    "tool.execution.progressed": {
        "schema": "paperclip.tool.execution.v1",
        "executionId": "e1",
        "transport": "process",
        "operation": "read",
        "name": "cat",
        "target": "a/b",
        "namespace": "ns",
        "readOnly": True,
        "status": "running",
        "durationMs": 1,
        "exitCode": 0,
        "progress": "half",
        "output": "text",
        "outputBytes": 4,
        "outputTruncated": False,
        "outputDigest": DIGEST,
    },
    "research.started": {
        "schema": "paperclip.research.v1",
        "researchId": "r1",
        "action": "search",
        "status": "running",
        "query": "q",
        "url": "https://example.org",
        "pattern": "p",
        "sources": [
            {"sourceId": "s1", "title": "t", "url": "http://example.org", "snippet": "s"},
        ],
    },
    "delegation.updated": {
        "schema": "paperclip.delegation.v1",
        "delegationId": "d1",
        "action": "spawn",
        "status": "running",
        "children": [
            {
                "childId": "c1",
                "role": "r",
                "model": "m",
                "status": "closed",
                "summary": "s",
                "activitySummary": "a",
            }
        ],
    },
    "model.route.changed": {
        "schema": "paperclip.model.route_changed.v1",
        "routeId": "r1",
        "provider": "p",
        "requestedModel": "m1",
        "fromModel": "m0",
        "effectiveModel": "m2",
        "reason": "load",
    },
    "model.verification.updated": {
        "schema": "paperclip.model.verification.v1",
        "verificationId": "v1",
        "status": "completed",
        "classes": ["c"],
        "buffering": False,
        "summary": "s",
    },
    "context.compacted": {
        "schema": "paperclip.context.compacted.v1",
        "compactionId": "c1",
        "reason": "manual",
        "preTokens": 2,
        "postTokens": 1,
        "sameSession": True,
    },
    "artifact.viewed": {
        "schema": "paperclip.artifact.viewed.v1",
        "artifactId": "a1",
        "reference": "a/b",
        "mediaType": "text/plain",
        "title": "t",
    },
    "artifact.generated": {
        "schema": "paperclip.artifact.generated.v1",
        "artifactId": "a1",
        "status": "completed",
        "reference": "a/b",
        "mediaType": "image/png",
        "registered": True,
        "transparentBackground": False,
        "failure": "f",
    },
    "review.mode.changed": {
        "schema": "paperclip.review.mode_changed.v1",
        "reviewId": "r1",
        "state": "entered",
        "scope": "s",
    },
    "hook.completed": {
        "schema": "paperclip.hook.v1",
        "hookId": "h1",
        "event": "e",
        "scope": "s",
        "status": "completed",
        "blocking": True,
        "durationMs": 1,
        "summary": "s",
    },
    "memory.citation.referenced": {
        "schema": "paperclip.memory.citation.v1",
        "citationId": "c1",
        "messageItemId": "m1",
        "label": "l",
        "available": True,
        "reference": "r",
    },
    "safety.review.completed": {
        "schema": "paperclip.safety.review.v1",
        "reviewId": "r1",
        "targetExecutionId": "e1",
        "status": "completed",
        "decision": "allowed",
        "summary": "s",
    },
    "terminal.input.sent": {
        "schema": "paperclip.terminal.input_sent.v1",
        "executionId": "e1",
        "origin": "agent",
        "inputClass": "eof",
        "byteCount": 0,
    },
    "wait.started": {
        "schema": "paperclip.wait.v1",
        "waitId": "w1",
        "reason": "timer",
        "status": "running",
        "plannedDurationMs": 1,
        "elapsedDurationMs": 0,
    },
    "provider.notice.recorded": {
        "schema": "paperclip.provider.notice.v1",
        "noticeId": "n1",
        "severity": "info",
        "category": "c",
        "scope": "account",
        "recoverable": True,
        "userActionable": False,
        "summary": "s",
    },
    "workspace.file.referenced": {
        "schema": "paperclip.workspace.file_reference.v1",
        "referenceId": "f 1",
        "source": "harness_reported",
        "path": "a/b.txt",
        "displayName": "b",
        "mediaType": "text/plain",
        "presentation": "code",
        "line": 1,
        "preview": "x",
        "previewTruncated": False,
        "contentDigest": DIGEST,
    },
    "workspace.change.updated": {**_DIFF, "complete": False},
    "workspace.diff.recorded": _DIFF,
    "semantic_tool.input": _call("input"),
    "mcp_app.tool_result": _call("result"),
    "semantic_tool.reconciled": _call("reconciled"),
    "run.terminal": {
        "schema": "paperclip.prp.terminal.v1",
        "turnTerminalState": "completed",
        "runTerminalState": "succeeded",
        "reportedWorkDisposition": "done",
        "workAssessmentId": "w1",
        "statusDecisionId": "s1",
        "stopReason": {
            "schema": "paperclip.prp.stop_reason.v1",
            "schemaVersion": 1,
            "receiptId": "r1",
            "kind": "budget",
            "code": "too_much",
            "retryable": False,
            "decisionId": "d1",
            "limitClass": "run_cost",
            "aggregate": {"unit": "cents", "observed": 2, "limit": 1, "window": "run"},
            "relatedReceiptIds": ["r2"],
        },
    },
    "run.result.proposed": {
        "schema": "paperclip.run_result.v1",
        "reportedWorkDisposition": "yielded",
        "summary": "s",
        "completionClaim": {
            "contractRevision": "1",
            "objectiveSatisfied": False,
            "criteria": [
                {
                    "criterionId": "c1",
                    "status": "unknown",
                    "evidenceRefs": ["e"],
                    "explanation": "x",
                }
            ],
            "remainingWork": [{"description": "d", "blocksCompletion": True}],
        },
        "evidence": [{}],
        "verification": [
            {
                "commandOrCheck": "make",
                "status": "not_run",
                "reasonCode": "other",
                "detail": "d",
                "artifactRef": "a",
            }
        ],
        "blocker": {
            "reasonCode": "r",
            "owner": {"kind": "user", "name": "n"},
            "unblockAction": "u",
            "scope": "task_wide",
        },
        "attentionRequests": [
            {"kind": "k", "summary": "s", "ownerClass": "human", "targetAgentId": "a"}
        ],
        "artifacts": [{"kind": "k", "ref": "r", "title": "t"}],
        "continuation": {"kind": "retry", "summary": "s", "idempotencyKey": "i"},
    },
    "item.delta": {"channel": "final", "providerPhase": "p", "providerMethod": "m"},
}
SAMPLES_V2: Final[dict[str, dict[str, Any]]] = {
    "session.goal.snapshot": _GOAL,
    "session.goal.updated": _GOAL,
    "session.capabilities.updated": {
        "sessionGoals": {
            "availability": "available",
            "actions": ["set", "clear"],
            "autonomousUpdates": True,
            "persistentAcrossResume": True,
            "maxObjectiveChars": 1,
            "tokenBudgetControl": False,
            "usageReporting": False,
            "reasonCode": "r",
            "reason": "r",
        }
    },
}
