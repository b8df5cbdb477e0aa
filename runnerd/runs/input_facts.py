"""The inputs of a run: which were accepted, claimed, completed or discarded, in which order.

It decides whether an input event may follow. It refuses to know what an input says.

    pending ──▶ claimed ──▶ completed
       └──────────┴───────▶ discarded
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from protocol.canonical_json import JsonValue
from runnerd.runs.records import corrupt

CONTROL_PREFIX: Final = "control:"
"""Inputs that steer a run do not end it when they are done."""


class InputState(enum.StrEnum):
    """Where an input stands."""

    PENDING = "pending"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    DISCARDED = "discarded"


_ENDED: Final = (InputState.COMPLETED, InputState.DISCARDED)
_TARGETS: Final[Mapping[JsonValue, InputState]] = MappingProxyType(
    {
        "input_receipt": InputState.PENDING,
        "input_claimed": InputState.CLAIMED,
        "input_completed": InputState.COMPLETED,
        "input_discarded": InputState.DISCARDED,
    }
)
_LEGAL: Final[Mapping[InputState | None, tuple[InputState, ...]]] = MappingProxyType(
    {
        None: (InputState.PENDING,),
        InputState.PENDING: (InputState.CLAIMED, InputState.DISCARDED),
        InputState.CLAIMED: (InputState.COMPLETED, InputState.DISCARDED),
        InputState.COMPLETED: (),
        InputState.DISCARDED: (),
    }
)


class InputFacts:
    """The inputs seen so far; one small entry for each."""

    def __init__(self) -> None:
        self._states: dict[str, InputState] = {}
        self.content_fingerprint: str | None = None
        """Of the first input that is no control."""
        self.ended_sequence: int | None = None
        """The record that ended the first input that is no control."""

    def apply(self, sequence: int, event: Mapping[str, JsonValue]) -> None:
        """Take an event if it is about an input.

        Raises PrpError ``run_state_corrupt`` if it may not follow.
        """
        target = _TARGETS.get(event.get("type"))
        if target is None:
            return
        input_id = event.get("inputId")
        if not isinstance(input_id, str):
            raise corrupt("an input event without its input")
        if event.get("status", target.value) != target.value:
            raise corrupt("an input event whose status is another's")
        if target not in _LEGAL[self._states.get(input_id)]:
            raise corrupt(f"an input cannot become {target.value} here")
        self._states[input_id] = target
        if input_id.startswith(CONTROL_PREFIX):
            return
        if target is InputState.PENDING and self.content_fingerprint is None:
            given = event.get("contentFingerprint")
            self.content_fingerprint = given if isinstance(given, str) else None
        if target in _ENDED and self.ended_sequence is None:
            self.ended_sequence = sequence
