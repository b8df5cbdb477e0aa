"""What the payload of each typed event holds: the field tables of the wire.

It decides which payloads fit. It refuses to know the event around them.
"""

from typing import Final

from protocol.shapes import (
    Rule,
    an_object,
    choice,
    items,
    members,
    nullable,
    one_of,
    text,
)

COMMON_V1: Final[Rule] = members(
    {
        "channel?": choice("progress final summary detail unknown"),
        "providerPhase?": text(),
        "providerMethod?": text(),
    },
    is_open=True,
)

_CALL_ID: Final = text(1, 240, r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_DIGEST: Final = text(pattern=r"sha256:[0-9a-f]{64}")
_CORRELATION: Final = members(
    {
        "runId": text(1),
        "normalizedSessionId": text(1),
        "turnId": text(1),
        "itemId": text(1),
        "requestId?": text(1),
    }
)
_CONTENT: Final = members(
    {
        "digest": _DIGEST,
        "redactionDisposition": choice("digest_only allowlisted_references redacted"),
        "references": items(members({"kind": text(1), "id": text(1)}), unique=True),
    }
)


def _semantic(phase: str) -> dict[str, Rule]:
    return {
        "schema": one_of("paperclip.prp.semantic_tool.v1"),
        "schemaVersion": one_of(1),
        "phase": one_of(phase),
        "operationId": _CALL_ID,
        "callId": _CALL_ID,
        "correlation": _CORRELATION,
        "idempotencyKey": nullable(text(1, 240)),
        "content": _CONTENT,
    }


SEMANTIC_INPUT: Final[Rule] = members(
    {"semantic_tool": members(_semantic("input"), is_open=True)}, is_open=True
)
"""An input event's payload that surely carries a call; the schema itself lets it be absent."""

PAYLOADS_V1: Final[dict[str, Rule]] = {"run.terminal": an_object}
PAYLOADS_V2: Final[dict[str, Rule]] = {}
