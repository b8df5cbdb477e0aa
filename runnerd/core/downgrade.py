"""Events that only PRP v2 knows, on a connection that speaks v1.

It decides what a v1 peer gets in their place and what is kept for a later v2 peer. It
refuses to take a v1 acknowledgement for proof that the native state was seen.

    v1 peer:  runner.diagnostic under the same sequence ─▶ acknowledged ─▶ payload retained
    v2 peer:  retained payloads come again as native events under new sequences
"""

from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.event_types import V1
from protocol.events import Event, runner_event
from protocol.ids import Identity
from runnerd.core.state import OutboxEntry, RetainedEvent, Runner
from runnerd.core.transition import advance

REASON: Final = "event_requires_prp_v2"
_EVENT: Final = msgspec.json.Decoder(Event)


def is_native_v2(event_type: str) -> bool:
    """Tell whether a v1 peer cannot know this type of event."""
    return event_type not in V1


def body_for(entry: OutboxEntry, version: int, identity: Identity) -> bytes:
    """Return the event object as a peer of this version gets it, the same bytes every time."""
    if version >= 2 or not is_native_v2(entry.event_type):
        return bytes(entry.body)
    event = _EVENT.decode(entry.body)
    return runner_event(
        identity,
        source_seq=entry.source_seq,
        event_type="runner.diagnostic",
        priority=entry.priority,
        payload={"originalEventType": entry.event_type, "reasonCode": REASON},
        emitted_at=event.emitted_at,
    )


def retain(runner: Runner, acknowledged: tuple[OutboxEntry, ...]) -> Runner:
    """Keep the newest payload of each native kind that a v1 peer acknowledged unseen."""
    connection = runner.live.connection
    if connection is None or connection.binding.version >= 2:
        return runner
    kept = {kind_of(event.event_type): event for event in runner.durable.retained_events}
    for entry in acknowledged:
        if is_native_v2(entry.event_type):
            payload = _EVENT.decode(entry.body).payload
            kept[kind_of(entry.event_type)] = RetainedEvent(entry.event_type, payload)
    retained = tuple(kept.values())
    return (
        runner
        if retained == runner.durable.retained_events
        else advance(runner, retained_events=retained)
    )


def kind_of(event_type: str) -> str:
    """Return which state an event is the newest word on; only that word is kept."""
    return "session.goal" if event_type.startswith("session.goal.") else event_type


def take_retained(runner: Runner) -> tuple[Runner, list[tuple[str, dict[str, JsonValue]]]]:
    """Return the events that a v2 peer has yet to see, and the runner without them."""
    retained = runner.durable.retained_events
    if not retained:
        return runner, []
    events = [(event.event_type, msgspec.json.decode(event.payload)) for event in retained]
    return advance(runner, retained_events=()), events
