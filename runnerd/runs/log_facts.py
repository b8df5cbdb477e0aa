"""What a writer must remember of a log: how far it goes, whether it ended, what was verified.

It decides whether success may be claimed and whether anything may still be added. It
refuses to keep the records.
"""

from collections.abc import Mapping

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.records import (
    OperationEvent,
    RecordKind,
    RunRecord,
    VerificationPayload,
    payload_as,
)

_WORK = ("tool_call", "effect_receipt", "tool_attempt")
"""Trace events after which an earlier verification says nothing any more."""
_NEW_ATTEMPT = frozenset({RecordKind.START, RecordKind.RESUME, RecordKind.ADMISSION})
_NOT_VERIFIED_EVENTS = (
    OperationEvent.START.value,
    OperationEvent.RESUME.value,
    OperationEvent.PAUSE.value,
)


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log as its writer sees it."""

    last_sequence: int = 0
    is_finished: bool = False
    is_verified: bool = False
    """A passed verification stands in this attempt, and no tool was used since."""

    def after(self, record: RunRecord) -> "LogFacts":
        """Return the facts with one more record."""
        return LogFacts(
            last_sequence=record.sequence,
            is_finished=self.is_finished or record.kind is RecordKind.FINISH,
            is_verified=_is_verified(self.is_verified, record),
        )


def _is_verified(before: bool, record: RunRecord) -> bool:
    if record.kind is RecordKind.VERIFICATION:
        try:
            return payload_as(record, VerificationPayload).is_passed
        except PrpError:
            return False
    if record.kind in _NEW_ATTEMPT:
        return False
    payload = record.payload
    if not before or not isinstance(payload, Mapping):
        return before
    if record.kind is RecordKind.OPERATION:
        return payload.get("event") not in _NOT_VERIFIED_EVENTS
    if record.kind is RecordKind.EVENT:
        return _type_of(payload.get("event")) not in _WORK
    return before


def _type_of(event: JsonValue) -> JsonValue:
    return event.get("type") if isinstance(event, dict) else None
