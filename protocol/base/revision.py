"""Revisions, gated actions and transitions: the shape that every core returns.

It decides when an action may leave relative to durable state. It refuses to know what
the state or the actions mean.
"""

from typing import Generic, NewType, TypeVar

import msgspec

Revision = NewType("Revision", int)
"""Counts durable states of one core; only a durable change raises it."""

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")
WriteT = TypeVar("WriteT")


class Gated(msgspec.Struct, Generic[ActionT], frozen=True):
    """An action and the revision that must be durable before it may leave.

    ``passes`` marks an action that claims nothing about state (a lease renewal, a pong):
    it may overtake waiting ones, so that a slow disk does not cost the lease.
    """

    action: ActionT
    after: Revision = Revision(0)
    passes: bool = False


class Transition(msgspec.Struct, Generic[StateT, ActionT, WriteT], frozen=True):
    """What one input did: the next state, the actions, and what the next commit adds.

    ``writes`` is for cores whose storage is incremental (the controller, D8); a core whose
    durable half is written whole (the runner, D7) leaves it empty.
    """

    state: StateT
    actions: tuple[Gated[ActionT], ...] = ()
    writes: tuple[WriteT, ...] = ()
