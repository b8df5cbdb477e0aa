"""The records of a run log and the payloads that decide something, as values.

It decides what a record must have to be one. It refuses to know in which order records
stand, how they lie on a disk, and what a trace event means: those are `run_log`,
`run_store` and `trace_rules`.
"""

import enum
import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_LOG_ID_LENGTH_MAX

RECORD_VERSION: Final = 1
CHAIN_MEMBER: Final = "chain"
"""Member of our records that proves them and all before them; see `run_log`."""

JSON_BLANKS: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What trimming takes away (ECMA-262, WhiteSpace and LineTerminator)."""

_RUN_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{RUN_LOG_ID_LENGTH_MAX}}}", re.ASCII)
_MEMBERS: Final = frozenset(
    ("version", "runId", "sequence", "timestamp", "kind", "payload", "eventId")
)
_NONE: Final[Mapping[str, JsonValue]] = MappingProxyType({})
_PLAIN_INSTANT: Final = re.compile(
    r"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z",
    re.ASCII,
)
"""What programs write on most days of a month; it needs no second look."""
_INSTANT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:T([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)

UNFIT: Final = (msgspec.ValidationError, UnicodeEncodeError)
"""What a value raises that is no such struct; half a character cannot be compared with a name."""

PayloadT = TypeVar("PayloadT", bound=msgspec.Struct)


class RecordKind(enum.StrEnum):
    """What a record of a run log tells."""

    START = "start"
    RESUME = "resume"
    TELEMETRY_CONFIGURATION = "telemetry_configuration"
    TELEMETRY_CONSENT = "telemetry_consent"
    ADMISSION = "admission"
    VERIFICATION = "verification"
    CONTROL = "control"
    DELEGATION = "delegation"
    EVENT = "event"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_RESTORE = "checkpoint_restore"
    LOOP = "loop"
    OPERATION = "operation"
    PAUSE = "pause"
    FINISH = "finish"


class Durability(enum.StrEnum):
    """How much a record must survive before its append returns."""

    ORDINARY = "ordinary"
    """The end of this process."""
    CRITICAL = "critical"
    """The end of the machine, as far as the disk keeps its word."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a run log. ``extra`` holds members that this program does not know."""

    run_id: str
    sequence: int
    timestamp: str
    kind: RecordKind
    payload: JsonValue | UnsetType = UNSET
    event_id: str | None = None
    extra: Mapping[str, JsonValue] = _NONE


_KINDS: Final[Mapping[str, RecordKind]] = MappingProxyType(
    {kind.value: kind for kind in RecordKind}
)


class OperationState(enum.StrEnum):
    """Where a run's operation stands."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    PAUSED = "paused"
    ABORTING = "aborting"
    COMPLETED = "completed"
    FAILED = "failed"


class OperationEvent(enum.StrEnum):
    """What moves an operation."""

    ACCEPT = "ACCEPT"
    START = "START"
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    REQUEST_ABORT = "REQUEST_ABORT"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


class OperationRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """One transition of an operation, the payload of an `operation` record."""

    schema_version: int
    operation_id: str
    run_id: str
    correlation_id: str
    sequence: int
    event_id: str
    event: OperationEvent
    from_state: OperationState | None = msgspec.field(name="from")
    to_state: OperationState = msgspec.field(name="to")
    timestamp: str
    reason: str | UnsetType = UNSET


class OperationSnapshot(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """Where an operation stands, as results and later readers see it."""

    schema_version: int
    operation_id: str
    run_id: str
    correlation_id: str
    state: OperationState
    transition_sequence: int
    created_at: str
    updated_at: str
    pause_reason: str | UnsetType = UNSET
    failure_reason: str | UnsetType = UNSET


class StartPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was known before the run began; the fingerprint binds every resumption."""

    config_fingerprint: str | UnsetType = UNSET
    config_name: str | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    initial_prompt: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    operation_id: str | UnsetType = UNSET
    workspace: str | UnsetType = UNSET
    config_file: str | UnsetType = UNSET
    entry_point: str | UnsetType = UNSET
    permission_mode: str | UnsetType = UNSET


class ResumePayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a resumption carried over."""

    completed_step_ids: tuple[str, ...] = ()
    resumed_at: str = ""


class VerificationPayload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was looked at before success may be claimed; each must hold."""

    exit_proven: bool
    result_valid: bool
    receipts_settled: bool
    no_unsafe_call: bool

    @property
    def is_passed(self) -> bool:
        """Whether COMPLETE may follow."""
        return (
            self.exit_proven and self.result_valid and self.receipts_settled and self.no_unsafe_call
        )


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an `event` record that holds a trace event; see `trace_rules`."""

    event_id: str
    run_id: str
    sequence: int
    timestamp: str
    event: dict[str, JsonValue]

    @property
    def event_type(self) -> str:
        """The event's `type`, which every checked entry has."""
        kind = self.event["type"]
        assert isinstance(kind, str)
        return kind


def check_run_id(run_id: str) -> None:
    """Refuse a run id that is not a plain file name: PrpError ``invalid_run_id``."""
    if _RUN_ID.fullmatch(run_id) is None:
        words = f"a run id is up to {RUN_LOG_ID_LENGTH_MAX} letters, digits, _ and -"
        raise PrpError(ErrorCode.INVALID_RUN_ID, words)


def is_instant(text: object) -> bool:
    """Tell whether ``text`` spells a date, or a date and a time of day (ISO 8601)."""
    if not isinstance(text, str):
        return False
    if _PLAIN_INSTANT.fullmatch(text) is not None:
        return True
    parts = _INSTANT.fullmatch(text)
    if parts is None:
        return False
    date, time, zone = parts.groups(default="")
    try:
        datetime.fromisoformat(f"{date}T{time}{zone}" if time else date)
    except ValueError:
        return False
    return True


def is_blank(text: str) -> bool:
    """Tell whether an identity has nothing in it."""
    return not text.strip(JSON_BLANKS)


def whole_number(value: object) -> int | None:
    """Return a JSON number that is integral as an int; a boolean is none, 1.0 is 1."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def read_record(value: JsonValue, run_id: str) -> RunRecord:
    """Return the record that a JSON value is.

    Args:
        run_id: of the log that it stands in.

    Raises:
        PrpError: ``run_state_corrupt`` naming the member that is wrong. A trace event in
            the payload is not looked at.

    Source: durable-runs 2.
    """
    if not isinstance(value, dict):
        raise corrupt("a record is not an object")
    if whole_number(value.get("version")) != RECORD_VERSION:
        raise corrupt("version")
    if value.get("runId") != run_id:
        raise corrupt("runId: the record is of another run")
    sequence = whole_number(value.get("sequence"))
    if sequence is None:
        raise corrupt("sequence")
    timestamp = value.get("timestamp")
    if not isinstance(timestamp, str):
        raise corrupt("timestamp")
    event_id = value.get("eventId")
    if "eventId" in value and (not isinstance(event_id, str) or is_blank(event_id)):
        raise corrupt("eventId")
    assert event_id is None or isinstance(event_id, str)
    name = value.get("kind")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise corrupt("kind")
    return RunRecord(
        run_id=run_id,
        sequence=sequence,
        timestamp=timestamp,
        kind=kind,
        payload=value.get("payload", UNSET),
        event_id=event_id,
        extra=_unknown_members(value),
    )


def _unknown_members(value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    if value.keys() <= _MEMBERS:
        return _NONE
    return {name: value[name] for name in value if name not in _MEMBERS}


def record_members(record: RunRecord) -> dict[str, JsonValue]:
    """Return the record as the JSON object that is written."""
    members: dict[str, JsonValue] = {
        "version": RECORD_VERSION,
        "runId": record.run_id,
        "sequence": record.sequence,
        "timestamp": record.timestamp,
        "kind": record.kind.value,
    }
    if record.payload is not UNSET:
        members["payload"] = record.payload
    if record.event_id is not None:
        members["eventId"] = record.event_id
    members.update(record.extra)
    return members


def payload_as(record: RunRecord, kind: type[PayloadT]) -> PayloadT:
    """Return the payload as one of the structs above; members it does not know are left out.

    Raises PrpError ``run_state_corrupt`` naming the member that does not fit.
    """
    return struct_from(record.payload, kind)


def struct_from(value: JsonValue | UnsetType, kind: type[PayloadT]) -> PayloadT:
    """Return a JSON value as a struct; raises PrpError ``run_state_corrupt``."""
    try:
        return msgspec.convert(value, kind)
    except UNFIT as error:
        raise corrupt(f"payload: {error}") from None


def struct_members(value: msgspec.Struct) -> dict[str, JsonValue]:
    """Return a payload struct as the JSON object that is written."""
    members: JsonValue = msgspec.to_builtins(value)
    assert isinstance(members, dict)
    return members


def corrupt(what: str) -> PrpError:
    """Return the refusal of a log that is not what it should be."""
    return PrpError(ErrorCode.RUN_STATE_CORRUPT, what)
