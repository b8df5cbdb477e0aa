"""What a trace event must have before a log takes it or believes it: one table.

It decides the shape of each kind of event that something follows from. It refuses to know
what follows, and lets events pass that it has never heard of: who acts on them judges that.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UnsetType

from protocol.canonical_json import JsonValue
from protocol.shapes import Rule, an_object, choice, flag, members, number, text, whole
from runnerd.runs.records import TraceEntry, corrupt, is_instant, whole_number
from runnerd.runs.tool_classes import check_capability

CAPABILITY_RESOLVED: Final = "capability_resolved"
RECEIPT_STATUSES: Final = "not_started started committed unknown"

_ANY_TEXT: Final = text()
_COUNT: Final = whole(0)
_FINGERPRINT: Final = text(pattern="[0-9a-f]{64}")

_CALL: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "agent?": _ANY_TEXT,
        "callId?": _ANY_TEXT,
        "stepId?": _ANY_TEXT,
        "turnId?": _ANY_TEXT,
    }
)
_INPUT: Final[Mapping[str, Rule]] = MappingProxyType({"inputId": _ANY_TEXT, "status?": _ANY_TEXT})


def _opened(fields: Mapping[str, Rule]) -> Rule:
    return members(fields, is_open=True)


EVENT_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "tool_call": _opened(
            {
                **_CALL,
                "tool": _ANY_TEXT,
                "idempotencyKey?": _ANY_TEXT,
                "argumentsFingerprint?": _FINGERPRINT,
            }
        ),
        "effect_receipt": _opened(
            {
                **_CALL,
                "idempotencyKey": _ANY_TEXT,
                "tool": _ANY_TEXT,
                "status": choice(RECEIPT_STATUSES),
                "binding?": an_object,
            }
        ),
        CAPABILITY_RESOLVED: _opened({**_CALL, "tool": _ANY_TEXT, "capability": an_object}),
        "tool_attempt": _opened(
            {
                **_CALL,
                "attemptId": _ANY_TEXT,
                "previousReceiptId": _ANY_TEXT,
                "attempt": whole(2),
            }
        ),
        "tool_lifecycle": _opened({**_CALL}),
        "tool_result": _opened({**_CALL, "tool?": _ANY_TEXT, "isError?": flag}),
        "policy_denied": _opened({**_CALL, "tool": _ANY_TEXT, "reason?": _ANY_TEXT}),
        "approval_required": _opened({**_CALL, "approvalId": _ANY_TEXT}),
        "approval_resolved": _opened({"approvalId": _ANY_TEXT, "decision?": _ANY_TEXT}),
        "step_start": _opened({"stepId": _ANY_TEXT}),
        "step_output": _opened(
            {"stepId": _ANY_TEXT, "text": _ANY_TEXT, "agent?": _ANY_TEXT, "saveAs?": _ANY_TEXT}
        ),
        "step_end": _opened({"stepId": _ANY_TEXT, "ok?": flag}),
        "turn_end": _opened({"agent?": _ANY_TEXT, "tokens?": number(0), "costUsd?": number(0)}),
        "retry": _opened({"attempt?": _COUNT}),
        "input_receipt": _opened({**_INPUT, "contentFingerprint?": _ANY_TEXT}),
        "input_claimed": _opened(_INPUT),
        "input_completed": _opened(_INPUT),
        "input_discarded": _opened(_INPUT),
    }
)


def check_trace(payload: JsonValue | UnsetType, run_id: str) -> TraceEntry | None:
    """Return the trace entry that the payload of an `event` record is.

    Returns:
        The entry, or None for a payload without an `event` member, which says nothing.
        Raises PrpError ``run_state_corrupt`` for an entry of another run, without its own
        number and instant, or with an event that its row of the table refuses.

    Source: durable-runs 2.
    """
    if not isinstance(payload, dict) or "event" not in payload:
        return None
    if payload.get("runId") != run_id:
        raise corrupt("a trace entry of another run")
    event_id, timestamp = payload.get("eventId"), payload.get("timestamp")
    sequence = whole_number(payload.get("sequence"))
    if not isinstance(event_id, str) or sequence is None:
        raise corrupt("a trace entry without its id and number")
    if not isinstance(timestamp, str) or not is_instant(timestamp):
        raise corrupt("a trace entry without its instant")
    event = payload["event"]
    if not isinstance(event, dict):
        raise corrupt("a trace event that is not an object")
    _check_event(event)
    return TraceEntry(
        event_id=event_id,
        run_id=run_id,
        sequence=sequence,
        timestamp=timestamp,
        event=event,
    )


def _check_event(event: dict[str, JsonValue]) -> None:
    kind = event.get("type")
    if not isinstance(kind, str):
        raise corrupt("a trace event without a type")
    rule = EVENT_RULES.get(kind)
    misfit = None if rule is None else rule(event)
    if misfit is not None:
        raise corrupt(f"trace event {kind}{misfit}")
    if kind == CAPABILITY_RESOLVED:
        check_capability(event)
