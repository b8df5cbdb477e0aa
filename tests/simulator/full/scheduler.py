"""Which ready task runs next: uniformly, by priorities that change, or in turn with delays.

It decides by the strategy of the seed. It refuses to know what a task does.
"""

from typing import Final

from tests.simulator.draws import Stream

STRATEGIES: Final = ("round robin", "uniform", "priorities")
_CHANGES_MAX: Final = 3
_PRIORITIES: Final = 1000


class Scheduler:
    """Picks one of several names, step by step."""

    def __init__(self, stream: Stream, strategy: str, steps: int) -> None:
        self._stream = stream
        self._strategy = strategy
        self._step = 0
        self._last: dict[str, int] = {}
        self._priority: dict[str, int] = {}
        self._changes: set[int] = set()
        if strategy == "priorities":
            count = stream.between("change points", 1, _CHANGES_MAX)
            self._changes = {stream.choose("change at", max(1, steps)) for _ in range(count)}

    def pick(self, names: list[str]) -> int:
        """Return the place of the task that runs."""
        self._step += 1
        if len(names) == 1:
            return 0
        if self._strategy == "first":
            return 0
        if self._strategy == "uniform":
            return self._stream.choose("task", len(names))
        if self._strategy == "priorities":
            return self._highest(names)
        return self._longest_waiting(names)

    def _highest(self, names: list[str]) -> int:
        for name in names:
            if name not in self._priority:
                self._priority[name] = self._stream.choose("priority", _PRIORITIES) + 1
        place = max(range(len(names)), key=lambda index: self._priority[names[index]])
        if self._step in self._changes:
            # From here on the leader comes behind everyone else.
            self._priority[names[place]] = -self._step
        return place

    def _longest_waiting(self, names: list[str]) -> int:
        order = sorted(range(len(names)), key=lambda index: self._last.get(names[index], 0))
        # A bounded delay: now and then somebody else goes first.
        place = order[1] if self._stream.chance("delayed", 5) else order[0]
        self._last[names[place]] = self._step
        return place
