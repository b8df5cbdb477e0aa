"""The members that every event has, stated once and judged in two ways.

It decides whether an object has the shape of an event: by one decoder, which is quick and says
yes or no, and by rules, which take their time and say where. It refuses to know what the
payload of a particular type holds.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from protocol import event_types
from protocol.limits import EVENT_ID_LENGTH_MAX, SAFE_INTEGER_MAX, TURN_ID_LENGTH_MAX
from protocol.shapes import Rule, an_object, choice, members, one_of, text, whole
from protocol.timestamps import TIMESTAMP_PATTERN

EVENT_SCHEMA_V1: Final = "paperclip.prp.event.v1"
EVENT_SCHEMA_V2: Final = "paperclip.prp.event.v2"

_Spec: TypeAlias = tuple[Rule, Callable[[], Any]]
"""A rule, and the type of which a decoder takes only values that fit the rule."""
_literal: Final[Any] = Literal
"""Made from values here, which a type checker does not follow."""


def _text(least: int, most: int) -> _Spec:
    bounds = msgspec.Meta(min_length=least, max_length=most)
    return text(least, most), lambda: Annotated[str, bounds]


def _any_text() -> _Spec:
    return text(), lambda: str


def _timestamp() -> _Spec:
    whole_text = rf"(?as)\A(?:{TIMESTAMP_PATTERN})\Z"
    return text(pattern=TIMESTAMP_PATTERN), lambda: Annotated[str, msgspec.Meta(pattern=whole_text)]


def _whole(least: int, most: int) -> _Spec:
    # The rule also takes 1.0 for 1; the decoder leaves that to the rule.
    return whole(least, most), lambda: Annotated[int, msgspec.Meta(ge=least, le=most)]


def _one_of(*allowed: str | int) -> _Spec:
    return one_of(*allowed), lambda: _literal[allowed]


def _choice(names: str) -> _Spec:
    return choice(names), lambda: _literal[tuple(names.split())]


def _object() -> _Spec:
    return an_object, lambda: _struct({})


def _members(fields: Mapping[str, _Spec]) -> _Spec:
    rules = {name: rule for name, (rule, _) in fields.items()}
    return members(rules, is_open=True), lambda: _struct(fields)


def _struct(fields: Mapping[str, _Spec]) -> type[msgspec.Struct]:
    parts: list[Any] = []
    for name, (_, kind) in fields.items():
        if name.endswith("?"):
            parts.append((name[:-1], kind() | msgspec.UnsetType, msgspec.UNSET))
        else:
            parts.append((name, kind()))
    return msgspec.defstruct("Shape", parts, kw_only=True)


_COMMON_V1: Final = _members(
    {
        "channel?": _choice("progress final summary detail unknown"),
        "providerPhase?": _any_text(),
        "providerMethod?": _any_text(),
    }
)
COMMON_V1: Final[Rule] = _COMMON_V1[0]
"""What the payload of every v1 event must fit."""


def _event(
    schema: str, version: int, types: frozenset[str], turn_most: int, payload: _Spec
) -> _Spec:
    event_id = _text(1, EVENT_ID_LENGTH_MAX)
    turn_id = _text(1, turn_most)
    return _members(
        {
            "schemaVersion": _one_of(version),
            "schema": _one_of(schema),
            "sourceEventId": event_id,
            "sourceSeq": _whole(1, SAFE_INTEGER_MAX),
            "sourceInstanceId": event_id,
            "sourceKind": _choice("runner control_plane"),
            "runId": event_id,
            "eventType": _one_of(*sorted(types)),
            "priority": _one_of(0, 1, 2),
            "emittedAt": _timestamp(),
            "payload": payload,
            "normalizedSessionId?": event_id,
            "turnId?": turn_id,
            "itemId?": turn_id,
            "observedAt?": _timestamp(),
            "debug?": _object(),
        }
    )


_V1: Final = _event(
    EVENT_SCHEMA_V1, 1, event_types.V1, TURN_ID_LENGTH_MAX, (an_object, _COMMON_V1[1])
)
_V2: Final = _event(EVENT_SCHEMA_V2, 2, event_types.V2, EVENT_ID_LENGTH_MAX, _object())


def shape_misfit(value: dict[str, Any], is_v2: bool) -> str | None:
    """Return the JSON pointer of the first member that breaks the shape, or None.

    Source: prp-wire 7.2 and 14.
    """
    if is_v2:
        return _V2[0](value)
    misfit = _V1[0](value)
    if misfit is not None:
        return misfit
    # Last, so that the first misfit is the one that peers name first.
    misfit = COMMON_V1(value["payload"])
    return None if misfit is None else f"/payload{misfit}"


def surely_fits(body: bytes, is_v2: bool) -> bool:
    """Tell whether `shape_misfit` would find nothing in an event; False only means: ask it.

    Args:
        body: JSON that `parse_strict` has taken.
    """
    try:
        _decoder(is_v2).decode(body)
    except msgspec.DecodeError:
        return False
    return True


@functools.cache
def _decoder(is_v2: bool) -> msgspec.json.Decoder[msgspec.Struct]:
    # A start-up has no event to judge and does not wait for this.
    return msgspec.json.Decoder((_V2 if is_v2 else _V1)[1]())
