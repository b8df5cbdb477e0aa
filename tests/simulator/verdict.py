"""What a history ends with: nothing wrong, or one invariant that did not hold.

It decides how a broken invariant is spelled. It refuses to know any invariant.
"""

from dataclasses import dataclass, field

from tests.simulator.draws import Draws


class Violation(Exception):
    """An invariant did not hold; ``number`` is its name in faults.md section 2, e.g. ``I2``."""

    def __init__(self, number: str, words: str) -> None:
        super().__init__(f"{number} {words}")
        self.number = number
        self.words = words


@dataclass
class Outcome:
    """One history: how it went, and everything that is needed to run it again."""

    stack: str
    draws: Draws
    profile: str
    violation: Violation | None = None
    step: int = 0
    steps: int = 0
    virtual_ms: int = 0
    trace: list[object] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Names of the "sometimes" facts that happened."""
