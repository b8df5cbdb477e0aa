"""Calls of tools: each is handed on at most once, ever.

It decides whether a committed input may be dispatched. It refuses to know the tools, and what
a call did whose answer was lost: it stays unsettled until an authority says so.

    input committed ─▶ handed on, once ─▶ answered by one command
                          └─ process or handler lost: unsettled, never handed on again
"""

import msgspec

from controller_mock.core.actions import CallTool
from controller_mock.core.state import DurableRun
from protocol.canonical_json import parse_strict
from protocol.event_types import INPUT_TYPES
from protocol.events import Event
from protocol.ids import Identity
from protocol.limits import TOOL_CALLS_PER_RUN_MAX
from protocol.semantic_tools import read_semantic_input


def has_room_for(durable: DurableRun, event: Event) -> bool:
    """Tell whether one more call can be remembered, or the event is none."""
    return event.event_type not in INPUT_TYPES or len(durable.tool_calls) < TOOL_CALLS_PER_RUN_MAX


def taken(
    durable: DurableRun, event: Event, identity: Identity
) -> tuple[DurableRun, CallTool | None]:
    """Remember the call that a new event carries, and return the order to hand it on.

    An id that is known is not handed on again, whatever the event says: only the first
    input of an id is ever acted upon. The order must be gated on the commit that holds the
    event, so that no restart can find the event without knowing that it was handed on.

    Args:
        event: the next of the run; `protocol.codec` has proven its digest and correlation.

    Source: prp-wire 9.2; faults K08 and K09.
    """
    if event.event_type not in INPUT_TYPES:
        return durable, None
    call = read_semantic_input(parse_strict(bytes(event.payload)), identity)
    if call.call_id in durable.tool_calls:
        return durable, None
    known = {**durable.tool_calls, call.call_id: event.source_seq}
    order = CallTool(call=call, event=msgspec.structs.replace(event, payload=msgspec.Raw(b"{}")))
    return msgspec.structs.replace(durable, tool_calls=known), order
