"""Every choice of a simulated world is one draw: enumerated, seeded or replayed.

It decides which outcome happens. It refuses to know what an outcome means.
"""

import random
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

ResultT = TypeVar("ResultT")


class Choices(Protocol):
    """Where a simulated world asks which of several outcomes happens."""

    def choose(self, label: str, options: int) -> int:
        """Return a number from 0 to ``options`` - 1; 0 is the calmest outcome."""
        ...


class Seeded:
    """Draws that follow from a seed alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, label: str, options: int) -> int:
        return self._random.randrange(options)


class Tape:
    """Draws that were written down; behind their end every draw is 0."""

    def __init__(self, values: tuple[int, ...] = ()) -> None:
        self._values = values
        self.drawn: list[tuple[str, int, int]] = []

    def choose(self, label: str, options: int) -> int:
        place = len(self.drawn)
        value = self._values[place] if place < len(self._values) else 0
        assert value < options, f"the tape does not fit at {label}"
        self.drawn.append((label, options, value))
        return value

    def following(self) -> tuple[int, ...] | None:
        """Return the tape after this one in depth-first order, or None after the last."""
        values = [value for _, _, value in self.drawn]
        while values:
            _, options, _ = self.drawn[len(values) - 1]
            if values[-1] + 1 < options:
                return (*values[:-1], values[-1] + 1)
            values.pop()
        return None


def explore(
    run: Callable[[Choices], ResultT], *, exhaustive_max: int, samples: int, seed: int
) -> Iterator[ResultT]:
    """Run every outcome if there are at most ``exhaustive_max``, else that many and samples.

    The samples follow from ``seed``, so that a second pass sees the same ones.
    """
    tape = Tape()
    for _ in range(exhaustive_max):
        yield run(tape)
        if (values := tape.following()) is None:
            return
        tape = Tape(values)
    for number in range(samples):
        yield run(Seeded(seed * samples + number))
