"""What the payloads hold that tell of an agent's work: plans, tools, files, models, waits.

It decides which of them fit. It refuses to know the event around them.
Source: prp-wire 14.
"""

from typing import Final

from protocol.fields import (
    COUNT,
    DIGEST,
    FILE_PATH,
    ID,
    MAYBE_COUNT,
    MAYBE_LABEL,
    MAYBE_MODEL,
    MAYBE_SHORT,
    NAME,
    PATH,
    SHORT,
    TEXT_SOURCE,
    URL,
)
from protocol.shapes import (
    Rule,
    choice,
    closed,
    flag,
    items,
    members,
    nullable,
    one_of,
    text,
    whole,
)

# --- What the agent and its provider do -----------------------------------------------------

_PLAN: Final = closed(
    "paperclip.plan.updated.v1",
    {
        "planId": ID,
        "revision": whole(1),
        "explanation?": MAYBE_SHORT,
        "steps": items(
            members(
                {
                    "stepId": ID,
                    "body": SHORT,
                    "status": choice("pending in_progress completed blocked"),
                }
            ),
            256,
        ),
        "complete": flag,
        "syncStatus": choice("streaming pending synchronized conflict not_applicable"),
        "documentRevision?": nullable(whole(1)),
    },
)
_TOOL: Final = closed(
    "paperclip.tool.execution.v1",
    {
        "executionId": ID,
        "transport": choice("process mcp dynamic builtin"),
        "operation": choice("read search list execute edit unknown"),
        "name?": MAYBE_SHORT,
        "target?": PATH,
        "namespace?": nullable(text(0, 240)),
        "readOnly?": nullable(flag),
        "status": choice("running completed failed cancelled interrupted"),
        "durationMs?": MAYBE_COUNT,
        "exitCode?": nullable(whole(None)),
        "progress?": MAYBE_SHORT,
        "output": nullable(text(0, 65_536)),
        "outputBytes": COUNT,
        "outputTruncated": flag,
        "outputDigest": nullable(DIGEST),
    },
)
_RESEARCH: Final = closed(
    "paperclip.research.v1",
    {
        "researchId": ID,
        "action": choice("search open_page find_in_page other"),
        "status": choice("running completed failed cancelled"),
        "query?": MAYBE_SHORT,
        "url?": URL,
        "pattern?": MAYBE_SHORT,
        "sources": items(
            members({"sourceId": ID, "title": SHORT, "url": URL, "snippet": MAYBE_SHORT}), 64
        ),
    },
)
_DELEGATION_STATUS: Final = choice("running waiting completed failed interrupted closed")
_DELEGATION: Final = closed(
    "paperclip.delegation.v1",
    {
        "delegationId": ID,
        "action": choice("spawn message resume wait close"),
        "status": _DELEGATION_STATUS,
        "children": items(
            members(
                {
                    "childId": ID,
                    "role": MAYBE_LABEL,
                    "model": MAYBE_MODEL,
                    "status": _DELEGATION_STATUS,
                    "summary": MAYBE_SHORT,
                    "activitySummary": MAYBE_SHORT,
                }
            ),
            64,
        ),
    },
)
_MODEL_ROUTE: Final = closed(
    "paperclip.model.route_changed.v1",
    {
        "routeId": ID,
        "provider": NAME,
        "requestedModel": text(1, 240),
        "fromModel": MAYBE_MODEL,
        "effectiveModel": text(1, 240),
        "reason": SHORT,
    },
)
_MODEL_VERIFICATION: Final = closed(
    "paperclip.model.verification.v1",
    {
        "verificationId": ID,
        "status": choice("running completed failed"),
        "classes": items(text(0, 160), 32),
        "buffering": flag,
        "summary": MAYBE_SHORT,
    },
)
_CONTEXT_COMPACTED: Final = closed(
    "paperclip.context.compacted.v1",
    {
        "compactionId": ID,
        "reason": choice("context_window manual provider unknown"),
        "preTokens": MAYBE_COUNT,
        "postTokens": MAYBE_COUNT,
        "sameSession": flag,
    },
)
_ARTIFACT_VIEWED: Final = closed(
    "paperclip.artifact.viewed.v1",
    {"artifactId": ID, "reference": PATH, "mediaType": MAYBE_LABEL, "title": MAYBE_SHORT},
)
_ARTIFACT_GENERATED: Final = closed(
    "paperclip.artifact.generated.v1",
    {
        "artifactId": ID,
        "status": choice("running completed failed"),
        "reference": PATH,
        "mediaType": MAYBE_LABEL,
        "registered": flag,
        "transparentBackground?": nullable(flag),
        "failure": MAYBE_SHORT,
    },
)
_REVIEW_MODE: Final = closed(
    "paperclip.review.mode_changed.v1",
    {"reviewId": ID, "state": choice("entered exited"), "scope": MAYBE_SHORT},
)
_HOOK: Final = closed(
    "paperclip.hook.v1",
    {
        "hookId": ID,
        "event": NAME,
        "scope": NAME,
        "status": choice("running completed failed cancelled"),
        "blocking": flag,
        "durationMs": MAYBE_COUNT,
        "summary": MAYBE_SHORT,
    },
)
_MEMORY_CITATION: Final = closed(
    "paperclip.memory.citation.v1",
    {
        "citationId": ID,
        "messageItemId": ID,
        "label": SHORT,
        "available": flag,
        "reference": nullable(text(0, 4096)),
    },
)
_SAFETY_REVIEW: Final = closed(
    "paperclip.safety.review.v1",
    {
        "reviewId": ID,
        "targetExecutionId": nullable(ID),
        "status": choice("running completed failed"),
        "decision": choice("pending allowed denied user_required unknown"),
        "summary": MAYBE_SHORT,
    },
)
_TERMINAL_INPUT: Final = closed(
    "paperclip.terminal.input_sent.v1",
    {
        "executionId": ID,
        "origin": choice("agent user system"),
        "inputClass": choice("text control eof"),
        "byteCount": COUNT,
    },
)
_WAIT: Final = closed(
    "paperclip.wait.v1",
    {
        "waitId": ID,
        "reason": choice("timer provider rate_limit unknown"),
        "status": choice("running completed interrupted cancelled"),
        "plannedDurationMs": MAYBE_COUNT,
        "elapsedDurationMs": MAYBE_COUNT,
    },
)
_PROVIDER_NOTICE: Final = closed(
    "paperclip.provider.notice.v1",
    {
        "noticeId": ID,
        "severity": choice("info warning error"),
        "category": NAME,
        "scope": choice("turn session environment account"),
        "recoverable": flag,
        "userActionable": flag,
        "summary": SHORT,
    },
)

# --- The workspace ----------------------------------------------------------------------------

_FILE_REFERENCE: Final = closed(
    "paperclip.workspace.file_reference.v1",
    {
        "referenceId": text(1, 240),
        "source": TEXT_SOURCE,
        "path": FILE_PATH,
        "displayName": text(1, 255),
        "mediaType": MAYBE_LABEL,
        "presentation": choice("document code image generic"),
        "line": nullable(whole(1)),
        "preview": nullable(text(0, 262_144)),
        "previewTruncated": flag,
        "contentDigest": nullable(DIGEST),
    },
)


def _diff(complete: Rule) -> Rule:
    file = {
        "path": FILE_PATH,
        "operation": choice("create modify delete rename mode_change"),
        "previousPath": nullable(FILE_PATH),
        "additions": MAYBE_COUNT,
        "deletions": MAYBE_COUNT,
        "binary": flag,
        "diff": nullable(text(0, 262_144)),
    }
    totals = {"files": COUNT, "additions": MAYBE_COUNT, "deletions": MAYBE_COUNT}
    return closed(
        "paperclip.workspace.diff.v1",
        {
            "changeSetId": text(1, 200),
            "revision": whole(1),
            "source": TEXT_SOURCE,
            "complete": complete,
            "files": items(members(file), 2000),
            "totals": members(totals),
            "patchArtifactRef": nullable(text(0, 2048)),
        },
    )


# --- The table --------------------------------------------------------------------------------

ACTIVITY: Final[dict[str, Rule]] = {
    "plan.updated": _PLAN,
    "tool.execution.started": _TOOL,
    "tool.execution.progressed": _TOOL,
    "tool.execution.completed": _TOOL,
    "research.started": _RESEARCH,
    "research.progressed": _RESEARCH,
    "research.completed": _RESEARCH,
    "delegation.started": _DELEGATION,
    "delegation.updated": _DELEGATION,
    "delegation.completed": _DELEGATION,
    "model.route.changed": _MODEL_ROUTE,
    "model.verification.updated": _MODEL_VERIFICATION,
    "context.compacted": _CONTEXT_COMPACTED,
    "artifact.viewed": _ARTIFACT_VIEWED,
    "artifact.generated": _ARTIFACT_GENERATED,
    "review.mode.changed": _REVIEW_MODE,
    "hook.started": _HOOK,
    "hook.completed": _HOOK,
    "memory.citation.referenced": _MEMORY_CITATION,
    "safety.review.started": _SAFETY_REVIEW,
    "safety.review.completed": _SAFETY_REVIEW,
    "terminal.input.sent": _TERMINAL_INPUT,
    "wait.started": _WAIT,
    "wait.completed": _WAIT,
    "provider.notice.recorded": _PROVIDER_NOTICE,
    "workspace.file.referenced": _FILE_REFERENCE,
    "workspace.change.updated": _diff(flag),
    "workspace.diff.recorded": _diff(one_of(True)),
}
