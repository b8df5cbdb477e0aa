"""The swarm profile: which kinds of trouble exist at all in one history, and how much of each.

It decides what is left out, which matters as much as what is there: with everything on,
restarts hide backlog bugs and drops hide replay bugs. It refuses to know what a family does.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.draws import Draws

OFF, RARE, STORM = 0, 1, 2
_NAMES = ("off", "rare", "storm")
_DRAWN: Final[tuple[int, ...]] = (OFF, OFF, RARE, STORM)


@dataclass
class Profile:
    """What was drawn before the first step; printed with the seed."""

    families: dict[str, int]
    facts: dict[str, object] = field(default_factory=dict[str, object])
    """Everything else that was drawn for the whole history, for the printed line."""

    def level(self, family: str) -> int:
        """Return `OFF`, `RARE` or `STORM`."""
        return self.families.get(family, OFF)

    def has(self, family: str) -> bool:
        """Tell whether the family exists in this history."""
        return self.families.get(family, OFF) != OFF

    def __str__(self) -> str:
        drawn = [f"{name}:{_NAMES[level]}" for name, level in self.families.items()]
        return ",".join([*drawn, *(f"{name}={value}" for name, value in self.facts.items())])


def draw_profile(
    draws: Draws,
    families: Sequence[str],
    disabled: Collection[str] = (),
    needed: Collection[str] = (),
) -> Profile:
    """Let each family exist with probability one half, in one of two intensities.

    Args:
        disabled: families that are off whatever was drawn; no other draw moves by that.
        needed: families that are in a storm whatever was drawn.
    """
    stream = draws.stream("profile")
    drawn: dict[str, int] = stream.pick_each(families, _DRAWN)
    drawn.update(dict.fromkeys(needed, STORM))
    drawn.update(dict.fromkeys(drawn.keys() & set(disabled), OFF))
    return Profile(drawn)
