"""What a feature adds to the simulator: kinds of steps, kinds of commands, facts to be seen.

It decides the form of an option, and what of all options exists in one history. It refuses
to know any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.simulator.profile import Profile

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


class Menu(Generic[WorldT]):
    """The options of one stack together."""

    def __init__(self, options: Sequence[Option[WorldT]]) -> None:
        self.families = [family for option in options for family in option.families]
        """What is drawn of each history, in this order."""
        self._ops = [op for option in options for op in option.ops]
        self._commands = [command for option in options for command in option.commands]
        self._begins = [option.begin for option in options if option.begin is not None]
        self._audits = [option.audit for option in options if option.audit is not None]

    def ops(self, profile: Profile) -> tuple[Op[WorldT], ...]:
        """Return the kinds of steps whose family exists."""
        return tuple([op for op in self._ops if op.family is None or profile.has(op.family)])

    def commands(self, profile: Profile) -> tuple[Command[WorldT], ...]:
        """Return the kinds of commands whose family exists."""
        return tuple(
            [one for one in self._commands if one.family is None or profile.has(one.family)]
        )

    def begin(self, world: WorldT) -> None:
        """Draw what holds for the whole history."""
        for begin in self._begins:
            begin(world)

    def audit(self, world: WorldT) -> None:
        """Judge a history that is over."""
        for audit in self._audits:
            audit(world)
