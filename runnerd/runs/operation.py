"""The life of one run's operation: which event leads where, and how it is restored.

It decides whether a transition is legal and what the operation then is. It refuses to know
why a run pauses, what it does while it runs, and where its records are kept.

    accepted ──START, RESUME──▶ running ──COMPLETE──▶ completed
       │  │                      │ │ ▲
       │  └──REQUEST_ABORT──┐    │ │ └──START, RESUME── paused ──FAIL──▶ failed
       │                    ▼    │ └────────PAUSE────────▶ │
       │                 aborting◀─REQUEST_ABORT───────────┘
       └──FAIL──▶ failed ◀──FAIL─┘      (running ──FAIL──▶ failed as well)

| from \\ event | START, RESUME | PAUSE  | REQUEST_ABORT | COMPLETE  | FAIL   |
|--------------|---------------|--------|---------------|-----------|--------|
| accepted     | running       | -      | aborting      | -         | failed |
| running      | -             | paused | aborting      | completed | failed |
| paused       | running       | -      | aborting      | -         | failed |
| aborting     | -             | -      | -             | -         | failed |
| completed    | -             | -      | -             | -         | -      |
| failed       | -             | -      | -             | -         | -      |
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import (
    OperationEvent,
    OperationRecord,
    OperationSnapshot,
    OperationState,
    is_blank,
    is_instant,
    struct_from,
    whole_number,
)

OPERATION_SCHEMA: Final = 1

_TARGETS: Final[Mapping[OperationEvent, OperationState]] = MappingProxyType(
    {
        OperationEvent.START: OperationState.RUNNING,
        OperationEvent.RESUME: OperationState.RUNNING,
        OperationEvent.PAUSE: OperationState.PAUSED,
        OperationEvent.REQUEST_ABORT: OperationState.ABORTING,
        OperationEvent.COMPLETE: OperationState.COMPLETED,
        OperationEvent.FAIL: OperationState.FAILED,
    }
)
_LEGAL: Final[Mapping[OperationState, tuple[OperationState, ...]]] = MappingProxyType(
    {
        OperationState.ACCEPTED: (
            OperationState.RUNNING,
            OperationState.ABORTING,
            OperationState.FAILED,
        ),
        OperationState.RUNNING: (
            OperationState.PAUSED,
            OperationState.ABORTING,
            OperationState.COMPLETED,
            OperationState.FAILED,
        ),
        OperationState.PAUSED: (
            OperationState.RUNNING,
            OperationState.ABORTING,
            OperationState.FAILED,
        ),
        OperationState.ABORTING: (OperationState.FAILED,),
        OperationState.COMPLETED: (),
        OperationState.FAILED: (),
    }
)


class Operation(msgspec.Struct, frozen=True):
    """Every transition so far, ACCEPT first; there is always that one."""

    records: tuple[OperationRecord, ...]

    @property
    def state(self) -> OperationState:
        """Where the operation stands."""
        return self.records[-1].to_state

    @property
    def is_terminal(self) -> bool:
        """Whether no event leads anywhere from here."""
        return not _LEGAL[self.state]

    @property
    def snapshot(self) -> OperationSnapshot:
        """The operation as results and later readers see it."""
        first, last = self.records[0], self.records[-1]
        reason = last.reason or UNSET
        return OperationSnapshot(
            schema_version=OPERATION_SCHEMA,
            operation_id=first.operation_id,
            run_id=first.run_id,
            correlation_id=first.correlation_id,
            state=last.to_state,
            transition_sequence=last.sequence,
            created_at=first.timestamp,
            updated_at=last.timestamp,
            pause_reason=reason if last.to_state is OperationState.PAUSED else UNSET,
            failure_reason=reason if last.to_state is OperationState.FAILED else UNSET,
        )


class OperationChange(msgspec.Struct, frozen=True):
    """The operation after an event, and the new record; None if the event was known."""

    operation: Operation
    record: OperationRecord | None


def legal_target(state: OperationState, event: OperationEvent) -> OperationState | None:
    """Return where ``event`` leads from ``state``, or None if it is illegal there."""
    target = _TARGETS.get(event)
    return target if target in _LEGAL[state] else None


def accept_operation(
    *,
    run_id: str,
    operation_id: str,
    event_id: str,
    timestamp: str,
    correlation_id: str | None = None,
    reason: str | None = None,
) -> Operation:
    """Return a new operation in state accepted.

    Args:
        correlation_id: `<run_id>:<operation_id>` if not given.

    Raises:
        PrpError: ``invalid_operation_state`` for a blank id or an instant that none is.

    Source: durable-runs 1.
    """
    correlation = f"{run_id}:{operation_id}" if correlation_id is None else correlation_id
    if any(is_blank(given) for given in (run_id, operation_id, correlation, event_id)):
        raise PrpError(ErrorCode.INVALID_OPERATION_STATE, "an id is blank")
    _check_instant(timestamp)
    record = OperationRecord(
        schema_version=OPERATION_SCHEMA,
        operation_id=operation_id,
        run_id=run_id,
        correlation_id=correlation,
        sequence=1,
        event_id=event_id,
        event=OperationEvent.ACCEPT,
        from_state=None,
        to_state=OperationState.ACCEPTED,
        timestamp=timestamp,
        reason=_or_unset(reason),
    )
    return Operation((record,))


def transition(
    operation: Operation,
    event: OperationEvent,
    *,
    event_id: str,
    timestamp: str,
    reason: str | None = None,
) -> OperationChange:
    """Apply an event once.

    Args:
        event_id: names the event; one that this operation has seen changes nothing,
            whatever ``event`` says. A refused event is not remembered.
        reason: kept in the record even when it is empty.

    Raises:
        PrpError: ``invalid_operation_state`` for a blank id or an instant that none is,
            ``invalid_operation_transition`` if the table has no such step.

    Source: durable-runs 1.
    """
    if is_blank(event_id):
        raise PrpError(ErrorCode.INVALID_OPERATION_STATE, "the event id is blank")
    if any(record.event_id == event_id for record in operation.records):
        return OperationChange(operation, None)
    target = legal_target(operation.state, event)
    if target is None:
        reason = f"{event.value} is not legal in state {operation.state.value}"
        raise PrpError(ErrorCode.INVALID_OPERATION_TRANSITION, reason)
    _check_instant(timestamp)
    last = operation.records[-1]
    record = OperationRecord(
        schema_version=OPERATION_SCHEMA,
        operation_id=last.operation_id,
        run_id=last.run_id,
        correlation_id=last.correlation_id,
        sequence=last.sequence + 1,
        event_id=event_id,
        event=event,
        from_state=last.to_state,
        to_state=target,
        timestamp=timestamp,
        reason=_or_unset(reason),
    )
    return OperationChange(Operation((*operation.records, record)), record)


def restore_operation(payloads: Iterable[JsonValue | UnsetType]) -> Operation:
    """Return the operation that the payloads of `operation` records tell, in their order.

    Nothing is sorted or left out. Beyond the original, an event must agree with its target
    and an event id may not be blank.

    Raises:
        PrpError: ``operation_state_corrupt`` at the first record that does not follow.

    Source: durable-runs 1.
    """
    records: list[OperationRecord] = []
    event_ids: set[str] = set()
    for payload in payloads:
        record = _read(payload)
        misfit = _misfit(records, record)
        if misfit is None and record.event_id in event_ids:
            misfit = "its event id was used before"
        if misfit is not None:
            raise _corrupt(f"transition {len(records) + 1}: {misfit}")
        records.append(record)
        event_ids.add(record.event_id)
    if not records:
        raise _corrupt("there is no transition")
    return Operation(tuple(records))


def _read(payload: JsonValue | UnsetType) -> OperationRecord:
    if isinstance(payload, dict):
        # Integral numbers may be spelled with a fraction: JSON knows one kind of number.
        numbers = {name: whole_number(payload.get(name)) for name in ("schemaVersion", "sequence")}
        payload = {**payload, **numbers}
    try:
        return struct_from(payload, OperationRecord)
    except PrpError as error:
        raise _corrupt(error.message) from None


def _misfit(before: list[OperationRecord], record: OperationRecord) -> str | None:
    """Return what keeps ``record`` from being the next transition."""
    if record.schema_version != OPERATION_SCHEMA:
        return "its schema is not 1"
    if record.sequence != len(before) + 1:
        return "its sequence is not its place"
    if is_blank(record.event_id):
        return "its event id is blank"
    if not is_instant(record.timestamp):
        return "its timestamp is no instant"
    if not before:
        is_accept = (record.event, record.from_state, record.to_state) == (
            OperationEvent.ACCEPT,
            None,
            OperationState.ACCEPTED,
        )
        return None if is_accept else "it does not accept the operation"
    first, last = before[0], before[-1]
    if (record.operation_id, record.run_id, record.correlation_id) != (
        first.operation_id,
        first.run_id,
        first.correlation_id,
    ):
        return "it names another operation"
    if record.from_state is not last.to_state:
        return "it does not start where the last one ended"
    if legal_target(last.to_state, record.event) is not record.to_state:
        return "its event does not lead to its target"
    return None


def _check_instant(timestamp: str) -> None:
    if not is_instant(timestamp):
        raise PrpError(ErrorCode.INVALID_OPERATION_STATE, "the timestamp is no instant")


def _or_unset(reason: str | None) -> str | UnsetType:
    return UNSET if reason is None else reason


def _corrupt(what: str) -> PrpError:
    return PrpError(ErrorCode.OPERATION_STATE_CORRUPT, what)
