"""Valid messages of one connection, which tests then break."""

from typing import Any, Final

import msgspec

from protocol.envelope import Binding
from protocol.ids import ConnectionId, Identity, LeaseId

IDENTITY: Final = Identity(
    runner_instance_id="runner_1",
    environment_lease_id="envlease_1",
    run_id="run_1",
    normalized_session_id="session_1",
    turn_id="turn_1",
    item_id="item_1",
)
BINDING: Final = Binding(
    version=2,
    identity=IDENTITY,
    connection_id=ConnectionId("connection_1"),
    connection_lease_id=LeaseId("lease_1"),
)
NOW_TEXT: Final = "2026-01-02T03:04:05.678Z"

EVENT: Final[dict[str, Any]] = {
    "schema": "paperclip.prp.event.v1",
    "sourceEventId": "event_1",
    "sourceSeq": 1,
    "sourceInstanceId": "runner_1",
    "sourceKind": "runner",
    "runId": "run_1",
    "normalizedSessionId": "session_1",
    "turnId": "turn_1",
    "itemId": "item_1",
    "eventType": "item.delta",
    "schemaVersion": 1,
    "priority": 2,
    "emittedAt": NOW_TEXT,
    "payload": {"text": "höher"},
}
COMMAND: Final[dict[str, Any]] = {
    "schema": "paperclip.prp.command.v1",
    "commandId": "cmd_1",
    "controllerSeq": 1,
    "type": "turn.start",
    "issuedAt": NOW_TEXT,
    "payload": {"text": "go"},
}
RESULT: Final[dict[str, Any]] = {
    "commandId": "cmd_1",
    "commandType": "turn.start",
    "controllerSeq": 1,
    "status": "completed",
    "result": {"status": "accepted"},
}
WELCOME: Final[dict[str, Any]] = {
    "selectedVersion": 2,
    "connectionLeaseId": "lease_1",
    "connectionLeaseExpiresAtUnixMs": 1_767_323_045_678,
    "connectionLeaseRevocationEpoch": 0,
    "pendingCommands": [COMMAND],
}
RENEW: Final[dict[str, Any]] = {
    "connectionLeaseExpiresAtUnixMs": 1_767_323_045_678,
    "connectionLeaseRevocationEpoch": 0,
}

CONTROL_PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "ack": {"ackedSourceSeq": 1},
    "command": COMMAND,
    "command_result_ack": {name: RESULT[name] for name in RESULT if name != "result"},
    "lease_renewed": {"previousExpiresAtUnixMs": 1_767_323_045_678} | RENEW,
    "revoke": {"revocationEpoch": 1},
    "ping": {},
    "warm_transition_activated_ack": {"transitionId": "0" * 64},
}
"""A payload of each kind that a runner takes after the welcome."""
RUNNER_PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "event": EVENT,
    "command_result": RESULT,
    "lease_renew": RENEW,
    "pong": {"lifecycle": "ready", "ackedSourceSeq": 1, "outboxBytes": 0},
    "warm_transition_activated": {"transitionId": "0" * 64},
}
"""A payload of each kind that a controller takes."""


def envelope(kind: str, payload: Any, **members: Any) -> dict[str, Any]:
    """An envelope of either direction; ``members`` replace or add."""
    return {
        "protocol": "paperclip.runner",
        "version": 2,
        "kind": kind,
        **msgspec.to_builtins(IDENTITY),
        "connectionId": "connection_1",
        "connectionLeaseId": "lease_1",
        "sentAt": NOW_TEXT,
        "payload": payload,
        **members,
    }


def plaintext(kind: str, payload: Any, **members: Any) -> bytes:
    """The bytes of `envelope`."""
    return msgspec.json.encode(envelope(kind, payload, **members))


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object without one member."""
    return {key: member for key, member in value.items() if key != name}
