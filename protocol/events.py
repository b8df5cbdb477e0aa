"""The event object that a runner produces and a controller commits.

It decides what an event is. It refuses to know when one is sent or stored.
"""

from typing import Final, Literal

import msgspec

from protocol.ids import SourceEventId, SourceSeq

EVENT_SCHEMA_V1: Final = "paperclip.prp.event.v1"
EVENT_SCHEMA_V2: Final = "paperclip.prp.event.v2"

Priority = Literal[0, 1, 2]
"""0: facts that are never dropped. 1: results of work. 2: display text and progress."""


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
