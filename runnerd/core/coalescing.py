"""Coalescing of display text: several updates in one event while nobody could have seen it.

It decides what a merged event says. It refuses to touch an event that may have been handed
to a socket: such an event is frozen, and after a restart every stored one is (ruling R2).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.events import Event, runner_event
from protocol.limits import COALESCED_TEXT_BYTES_MAX
from runnerd.core.state import OutboxEntry, Runner

_PRIORITY: Final = 2
_EVENT: Final = msgspec.json.Decoder(Event)
COUNT: Final = "coalescedCount"
"""Member that says how many updates a payload stands for; absent means one."""
ITEM_MEMBER: Final = "harnessItemId"
"""Member that names a program's own item; the item id of the event is the run's."""


def mergeable_tail(runner: Runner, event_type: str) -> OutboxEntry | None:
    """Return the newest stored event if an update of this type may still be merged into it."""
    outbox = runner.durable.outbox
    if not outbox:
        return None
    tail = outbox[-1]
    is_free = tail.source_seq > runner.live.frozen_through
    return tail if is_free and (tail.priority, tail.event_type) == (_PRIORITY, event_type) else None


def merged(tail: OutboxEntry, update: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return the payload that stands for the tail and an update, or None if it grows too long.

    Text is concatenated, so no character is lost; every other member keeps its newest value.
    """
    payload: dict[str, JsonValue] = msgspec.json.decode(_EVENT.decode(tail.body).payload)
    return combined(payload, update)


def combined(
    older: dict[str, JsonValue], newer: dict[str, JsonValue]
) -> dict[str, JsonValue] | None:
    """Return one payload for two; None for two items, or if the text is too long or none."""
    if older.get(ITEM_MEMBER) != newer.get(ITEM_MEMBER):
        return None
    texts = [payload["text"] for payload in (older, newer) if "text" in payload]
    count: dict[str, JsonValue] = {COUNT: _count(older) + _count(newer)}
    if not texts:
        return {**older, **newer, **count}
    text = ""
    for piece in texts:
        if not isinstance(piece, str):
            return None
        text += piece
    if len(text.encode()) > COALESCED_TEXT_BYTES_MAX:
        return None
    return {**older, **newer, "text": text, **count}


def gathered(updates: Sequence[dict[str, JsonValue]]) -> Iterator[dict[str, JsonValue]]:
    """Yield as few payloads as stand for all updates, in order."""
    present: dict[str, JsonValue] | None = None
    for update in updates:
        joined = None if present is None else combined(present, update)
        if joined is None and present is not None:
            yield present
        present = update if joined is None else joined
    if present is not None:
        yield present


def rewritten(runner: Runner, tail: OutboxEntry, payload: dict[str, JsonValue]) -> OutboxEntry:
    """Return the tail with another payload; sequence, id and time stay."""
    event = _EVENT.decode(tail.body)
    body = runner_event(
        runner.settings.identity,
        source_seq=tail.source_seq,
        event_type=tail.event_type,
        priority=_PRIORITY,
        payload=payload,
        emitted_at=event.emitted_at,
    )
    return OutboxEntry(tail.source_seq, _PRIORITY, tail.event_type, msgspec.Raw(body))


def _count(payload: dict[str, JsonValue]) -> int:
    count = payload.get(COUNT, 1)
    assert isinstance(count, int)
    return count
