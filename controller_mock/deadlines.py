"""The deadlines of all runs, of which only the earliest needs a timer.

It decides which runs are due. It refuses to read a clock and to know what a deadline is for.
"""

import heapq
import itertools

from controller_mock.run_slot import RunSlot
from protocol.base.clock import MonoMs


class Deadlines:
    """At most one deadline for each run; changing one costs the logarithm of their number."""

    def __init__(self) -> None:
        self._heap: list[tuple[MonoMs, int, RunSlot]] = []
        self._order = itertools.count()

    def set(self, slot: RunSlot, deadline: MonoMs | None) -> None:
        """Replace a run's deadline."""
        if deadline == slot.deadline:
            return
        slot.deadline = deadline
        if deadline is not None:
            heapq.heappush(self._heap, (deadline, next(self._order), slot))

    def take_due(self, now: MonoMs) -> list[RunSlot]:
        """Return the runs whose deadline has come; they have none any more."""
        due: list[RunSlot] = []
        while (earliest := self.earliest()) is not None and earliest <= now:
            _, _, slot = heapq.heappop(self._heap)
            slot.deadline = None
            due.append(slot)
        return due

    def earliest(self) -> MonoMs | None:
        """Return the next deadline of any run."""
        # An entry whose run has another deadline by now was replaced.
        while self._heap and self._heap[0][2].deadline != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
