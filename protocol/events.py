"""The event object that a runner produces and a controller commits.

It decides what an event is. It refuses to know when one is sent or stored.
"""

import functools
import hashlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from protocol import event_types
from protocol.admission import IN_ENVELOPE, admit
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.event_shape import EVENT_SCHEMA_V1, EVENT_SCHEMA_V2, shape_misfit, surely_fits
from protocol.ids import Identity, SourceEventId, SourceSeq
from protocol.limits import EVENT_ID_LENGTH_MAX
from protocol.shapes import Rule

Priority = Literal[0, 1, 2]
"""0: facts that are never dropped. 1: results of work. 2: display text and progress."""
EventVersion = Literal[1, 2]


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One event; payload and debug are not looked into here.

    Source: prp-wire 7.2.
    """

    schema: str
    source_event_id: SourceEventId
    source_seq: SourceSeq
    source_instance_id: str
    source_kind: str
    run_id: str
    event_type: str
    schema_version: int
    priority: Priority
    emitted_at: str
    payload: msgspec.Raw
    normalized_session_id: str | None = None
    turn_id: str | None = None
    item_id: str | None = None
    observed_at: str | None = None
    debug: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_DECODER: Final = msgspec.json.Decoder(Event)


def event_misfit(value: JsonValue) -> str | None:
    """Return the JSON pointer of the first member that breaks the event's schema, or None.

    Source: prp-wire 7.2 and 14.
    """
    if not isinstance(value, dict):
        return ""
    is_v2 = value.get("schemaVersion") == 2
    misfit = shape_misfit(value, is_v2)
    return _typed_misfit(value, is_v2) if misfit is None else misfit


def read_event(value: JsonValue, body: bytes) -> Event:
    """Return the event in ``body``, of which ``value`` is the parsed form.

    Returns:
        Or raises ``event_invalid`` with the JSON pointer of the first misfit.
    """
    misfit = _misfit(value, body)
    if misfit is not None:
        raise _invalid(misfit)
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        # The schema takes 1.0 for 1; a sequence or a priority is spelled without a point.
        raise PrpError(ErrorCode.EVENT_INVALID, str(error)) from None


def validate_event(event: Event, payload: JsonValue) -> None:
    """Refuse an event that a peer's validator would refuse.

    Args:
        payload: the parsed form of ``event.payload``.

    Returns:
        Or raises ``event_invalid`` with the JSON pointer of the first misfit.
    """
    hollow = msgspec.structs.replace(event, payload=_EMPTY)
    value = _admit(_encode(hollow))
    assert isinstance(value, dict), "a struct encodes as an object"
    misfit = event_misfit({**value, "payload": payload})
    if misfit is not None:
        raise _invalid(misfit)


def event_id(identity: Identity, source_seq: SourceSeq) -> SourceEventId:
    """Return the id of a runner's own event, which is a function of its place in the run."""
    instance = identity.runner_instance_id
    if len(instance) + 23 > EVENT_ID_LENGTH_MAX:
        instance = hashlib.sha256(instance.encode()).hexdigest()
    return SourceEventId(f"event_{instance}_{source_seq:016d}")


def runner_event(
    identity: Identity,
    *,
    source_seq: SourceSeq,
    event_type: str,
    priority: Priority,
    payload: JsonValue,
    emitted_at: str,
    schema_version: EventVersion = 1,
    source_event_id: SourceEventId | None = None,
) -> bytes:
    """Encode a runner's own event once; these bytes are stored, sent and sent again.

    Args:
        payload: an object; what JSON cannot carry unchanged is refused.
        emitted_at: from `rfc3339_ms`.
        source_event_id: `event_id` of the identity and the sequence if absent.

    Returns:
        Or raises ``event_invalid`` with a JSON pointer, or ``event_too_large`` if the
        event would not fit a sealed frame (R18).
    """
    event = Event(
        schema=EVENT_SCHEMA_V2 if schema_version == 2 else EVENT_SCHEMA_V1,
        source_event_id=source_event_id or event_id(identity, source_seq),
        source_seq=source_seq,
        source_instance_id=identity.runner_instance_id,
        source_kind="runner",
        run_id=identity.run_id,
        normalized_session_id=identity.normalized_session_id,
        turn_id=identity.turn_id,
        item_id=identity.item_id,
        event_type=event_type,
        schema_version=schema_version,
        priority=priority,
        emitted_at=emitted_at,
        payload=msgspec.Raw(_encode(payload)),
    )
    body = _encode(event)
    value = _admit(body)
    misfit = _misfit(value, body)
    # A number that is not finite is written as null, which is another value.
    if misfit is None and isinstance(value, dict) and value["payload"] != payload:
        misfit = "/payload"
    if misfit is not None:
        raise _invalid(misfit)
    return body


_EMPTY: Final = msgspec.Raw(b"{}")


def _admit(body: bytes) -> JsonValue:
    return admit(
        body,
        IN_ENVELOPE,
        too_large=ErrorCode.EVENT_TOO_LARGE,
        invalid=ErrorCode.EVENT_INVALID,
    )


def _misfit(value: JsonValue, body: bytes) -> str | None:
    """Return what `event_misfit` returns; nearly every event fits, which the body shows faster."""
    if isinstance(value, dict):
        is_v2 = value.get("schemaVersion") == 2
        if surely_fits(body, is_v2):
            return _typed_misfit(value, is_v2)
    return event_misfit(value)


def _typed_misfit(value: dict[str, JsonValue], is_v2: bool) -> str | None:
    """Judge the payload of an event of a fitting shape by its type."""
    event_type = value["eventType"]
    assert isinstance(event_type, str)
    if not event_types.may_be_typed(event_type):
        return None
    rule = _tables()[is_v2].get(event_type)
    misfit = None if rule is None else rule(value["payload"])
    return None if misfit is None else f"/payload{misfit}"


@functools.cache
def _tables() -> tuple[Mapping[str, Rule], Mapping[str, Rule]]:
    # A start-up sends no typed payload, so it does not wait for the tables.
    from protocol.event_payloads import PAYLOADS_V1, PAYLOADS_V2

    return PAYLOADS_V1, PAYLOADS_V2


def _invalid(pointer: str) -> PrpError:
    return PrpError(ErrorCode.EVENT_INVALID, f"the event breaks its schema at {pointer or '/'}")


def _encode(value: "Event | JsonValue") -> bytes:
    try:
        return msgspec.json.encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise _invalid("") from None
