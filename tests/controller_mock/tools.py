"""Calls of tools as a runner sends them, for the tests of the controller."""

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.ids import Identity

INPUT: JsonValue = {"title": "Grüße\r\n\U0001f600", "n": [1, 2.5, None]}


def call_payload(
    identity: Identity, call_id: str = "call_1", value: JsonValue = INPUT
) -> dict[str, JsonValue]:
    """Return the payload of the event that carries a call."""
    return {
        "semantic_tool": {
            "schema": "paperclip.prp.semantic_tool.v1",
            "schemaVersion": 1,
            "phase": "input",
            "operationId": "create_task",
            "callId": call_id,
            "correlation": {
                "runId": identity.run_id,
                "normalizedSessionId": identity.normalized_session_id,
                "turnId": identity.turn_id,
                "itemId": identity.item_id,
            },
            "idempotencyKey": None,
            "input": value,
            "content": {
                "digest": sha256_label(canonical_bytes(value)),
                "redactionDisposition": "digest_only",
                "references": [],
            },
        }
    }
