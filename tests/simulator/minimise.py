"""A failing history made small: families dropped, tail cut, draws deleted, draws zeroed.

It decides which smaller history to try next; one is kept only if it breaks the same
invariant. It refuses to know what a draw means.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import structs

from tests.simulator.stacks import replay
from tests.simulator.tape import Tape, tape_of
from tests.simulator.verdict import Outcome

BUDGET_S: Final = 30.0


def minimise(
    outcome: Outcome, budget_s: float = BUDGET_S, run: Callable[[Tape], Outcome] = replay
) -> Tape:
    """Return the smallest failing tape that was found in the time given.

    Args:
        run: runs the history of a tape.
    """
    search = _Search(tape_of(outcome), time.monotonic() + budget_s, run)
    search.drop_families(sorted(outcome.families))
    search.cut_tail()
    while search.delete_draws() and search.has_time:
        continue
    search.zero_draws()
    search.cut_tail()
    return search.best


class _Search:
    def __init__(self, first: Tape, deadline: float, run: Callable[[Tape], Outcome]) -> None:
        self.best = first
        self._run = run
        self._deadline = deadline

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _fails(self, candidate: Tape) -> bool:
        outcome = self._run(candidate)
        if outcome.violation is None or outcome.violation.number != self.best.invariant:
            return False
        # What was drawn is what counts: values behind the last draw fall away.
        self.best = structs.replace(tape_of(outcome), seed=self.best.seed)
        return True

    def drop_families(self, families: list[str]) -> None:
        for family in families:
            if self.has_time and family not in self.best.disabled:
                disabled = (*self.best.disabled, family)
                self._fails(structs.replace(self.best, disabled=disabled))

    def cut_tail(self) -> None:
        size = self.best.steps_max // 2
        while size and self.has_time:
            shorter = structs.replace(self.best, steps_max=self.best.steps_max - size)
            if shorter.steps_max < 1 or not self._fails(shorter):
                size //= 2

    def delete_draws(self) -> bool:
        """Delete runs of draws, long ones first; True if anything could go."""
        before = _size(self.best)
        for name in sorted(self.best.draws):
            size = len(self._values(name))
            while size and self.has_time:
                for start in self._starts(name, size):
                    values = self._values(name)
                    if start < len(values):
                        self._try(name, values[:start] + values[start + size :])
                size //= 2
        return _size(self.best) < before

    def zero_draws(self) -> None:
        """Replace draws by the calmest outcome."""
        for name in sorted(self.best.draws):
            place = 0
            while place < len(self._values(name)) and self.has_time:
                values = self._values(name)
                if values[place]:
                    self._try(name, (*values[:place], 0, *values[place + 1 :]))
                place += 1

    def _values(self, name: str) -> tuple[int, ...]:
        return self.best.draws.get(name, ())

    def _starts(self, name: str, size: int) -> Iterator[int]:
        start = len(self._values(name)) - size
        while start >= 0 and self.has_time:
            yield start
            start -= size

    def _try(self, name: str, values: tuple[int, ...]) -> bool:
        return self._fails(structs.replace(self.best, draws={**self.best.draws, name: values}))


def _size(tape: Tape) -> int:
    return sum(len(values) for values in tape.draws.values())
