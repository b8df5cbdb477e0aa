"""What a feature adds to the simulator: kinds of steps, kinds of commands, facts to be seen.

It decides the form of an option. It refuses to know any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

WorldT = TypeVar("WorldT")


@dataclass(frozen=True, slots=True)
class Op(Generic[WorldT]):
    """One kind of step; ``weight`` is 0 while it cannot happen."""

    name: str
    weight: Callable[[WorldT], int]
    act: Callable[[WorldT], None]
    family: str | None = None
    """The family without which the step does not exist; None if it always does."""


@dataclass(frozen=True)
class Command(Generic[WorldT]):
    """One type of command; ``weight`` is 0 while a sensible controller would not give it."""

    type: str
    weight: Callable[[WorldT], int]
    payload: Callable[[WorldT], bytes] = lambda _: b"{}"
    family: str | None = None


@dataclass(frozen=True)
class Option(Generic[WorldT]):
    """One feature in one stack. ``families`` are drawn in this order: append, never insert."""

    name: str
    families: tuple[str, ...] = ()
    ops: tuple[Op[WorldT], ...] = ()
    commands: tuple[Command[WorldT], ...] = ()
    begin: Callable[[WorldT], None] | None = None
    """Draws what holds for the whole history, e.g. the size of the outbox."""
    audit: Callable[[WorldT], None] | None = None
    """Judges a history that is over."""
    sometimes: tuple[str, ...] = ()
    """What a batch must have seen at least once, or it has tested nothing."""
