"""Persist, then act: committed state, staged state and held actions of one core.

It decides which action may leave and whether a write is needed. It refuses to know how a
write is done, and it never waits: shells and the simulator drive the same object.

    feed ─▶ staged ──next_write──▶ (one write in flight) ──wrote──▶ committed
              │ actions held in one FIFO                              │ gates open
              └──────────────────────▶ next_action ◀──────────────────┘
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from protocol.base.clock import Now
from protocol.base.revision import ActionT, Gated, Revision, StateT, Transition, WriteT


class Revised(Protocol):
    """State that counts its durable revisions."""

    @property
    def revision(self) -> Revision:
        """Number of the newest durable change in this state."""
        ...


RevisedT = TypeVar("RevisedT", bound=Revised)
StimulusT = TypeVar("StimulusT")
StepFunction = Callable[[RevisedT, StimulusT, Now], Transition[RevisedT, ActionT, WriteT]]


class Write(msgspec.Struct, Generic[StateT, WriteT], frozen=True):
    """One commit to be made: everything staged up to ``revision``."""

    state: StateT
    revision: Revision
    writes: tuple[WriteT, ...]


class Driver(Generic[RevisedT, StimulusT, ActionT, WriteT]):
    """Drive one core through ``step`` with each action behind its gate (D2, D6)."""

    def __init__(
        self,
        state: RevisedT,
        step: StepFunction[RevisedT, StimulusT, ActionT, WriteT],
    ) -> None:
        """Begin with ``state``, which is durable, or which nobody has seen yet."""
        self._step = step
        self._committed = state
        self._staged = state
        self._held: deque[Gated[ActionT]] = deque()
        self._passing: deque[ActionT] = deque()
        self._unwritten: list[WriteT] = []
        self._in_flight: Write[RevisedT, WriteT] | None = None
        self._demanded = Revision(0)

    @property
    def committed(self) -> RevisedT:
        """The newest state that is known to be durable: what outsiders may see."""
        return self._committed

    @property
    def staged(self) -> RevisedT:
        """The newest state: what admission decides on."""
        return self._staged

    @property
    def is_writing(self) -> bool:
        """True while a write that ``next_write`` handed out has not been reported back."""
        return self._in_flight is not None

    def feed(self, stimulus: StimulusT, now: Now) -> None:
        """Apply one input to the staged state and hold the actions it asks for."""
        transition = self._step(self._staged, stimulus, now)
        risen = transition.state.revision - self._staged.revision
        assert risen >= 0, "a revision never goes back"
        assert risen > 0 or not transition.writes, "what is to be written is a durable change"
        self._staged = transition.state
        self._unwritten.extend(transition.writes)
        for gated in transition.actions:
            if gated.passes:
                assert gated.after <= self._committed.revision, "a passing action waits for nothing"
                self._passing.append(gated.action)
            else:
                assert gated.after <= self._staged.revision, "a gate beyond the staged state"
                self._held.append(gated)
                self._demanded = max(self._demanded, gated.after)

    def next_write(self) -> Write[RevisedT, WriteT] | None:
        """Return the write that a held action waits for, if none is in flight already.

        It covers everything staged, so one write serves a batch; nothing that waits for
        no write causes one.
        """
        if self._in_flight is not None or self._demanded <= self._committed.revision:
            return None
        self._in_flight = Write(self._staged, self._staged.revision, tuple(self._unwritten))
        return self._in_flight

    def wrote(self) -> None:
        """Open the gates up to the revision in flight, which is now durable."""
        assert self._in_flight is not None, "no write is in flight"
        self._committed = self._in_flight.state
        del self._unwritten[: len(self._in_flight.writes)]
        self._in_flight = None

    def write_failed(self) -> tuple[ActionT, ...]:
        """Drop and return every held action; staged state and its writes stay for a new attempt.

        The core derives the dropped duties again from state (ruling R4).
        """
        assert self._in_flight is not None, "no write is in flight"
        dropped = tuple(gated.action for gated in self._held)
        self._held.clear()
        self._in_flight = None
        self._demanded = Revision(0)
        return dropped

    def next_action(self) -> ActionT | None:
        """Return the next action that may leave now, in order of holding."""
        if self._passing:
            return self._passing.popleft()
        if self._held and self._held[0].after <= self._committed.revision:
            return self._held.popleft().action
        return None
