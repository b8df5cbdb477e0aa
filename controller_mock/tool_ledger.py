"""Calls of a run and their answers, as the store has them.

It decides which calls have no answer. It refuses to know why: a handler that was cut off, one
that could not tell, or nobody who would answer.
"""

from collections.abc import Mapping

import msgspec

from controller_mock.core.actions import CallTool
from controller_mock.storage.store import Store
from protocol.canonical_json import parse_strict
from protocol.errors import ErrorCode, PrpError
from protocol.events import Event
from protocol.ids import Identity, RunId
from protocol.semantic_tools import read_semantic_input, result_command_id


def unsettled(store: Store, run_id: RunId, calls: Mapping[str, int]) -> list[str]:
    """Return the ids of calls that no command answers, in the order in which they were made.

    Args:
        calls: id and sequence of every committed call.
    """
    answered = {row.command_id for row in store.commands(run_id)}
    return [call_id for call_id in calls if result_command_id(run_id, call_id) not in answered]


def call_at(store: Store, run_id: RunId, identity: Identity, source_seq: int) -> CallTool:
    """Return the call that a committed event carries; PrpError ``tool_call_unknown``."""
    for found in store.events(run_id, source_seq - 1, 1):
        event = msgspec.json.decode(found.body, type=Event)
        call = read_semantic_input(parse_strict(bytes(event.payload)), identity)
        return CallTool(call=call, event=event)
    raise PrpError(ErrorCode.TOOL_CALL_UNKNOWN, f"no event {source_seq}")
