"""Named streams of draws that all follow from one seed, written down as they are made.

It decides the value of every draw. It refuses to know what is drawn: what a stream's name
and a draw's label mean is known to those who ask.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

Recording = Mapping[str, Sequence[int]]
"""The values of each stream, in order; behind their end every draw is 0, the calmest outcome."""


class Stream:
    """Draws under one name; switching off what one stream serves shifts no other stream."""

    __slots__ = ("_next", "drawn")

    def __init__(self, following: Callable[[int], int]) -> None:
        self._next = following
        self.drawn: list[tuple[str, int, int]] = []
        """Label, number of options and value of every draw so far."""

    def choose(self, label: str, options: int) -> int:
        """Return a number from 0 to ``options`` - 1; 0 is the calmest outcome."""
        value = self._next(options)
        self.drawn.append((label, options, value))
        return value

    def chance(self, label: str, percent: int) -> bool:
        """Return True in about ``percent`` of 100 cases."""
        return self.choose(label, 100) >= 100 - percent

    def pick(self, label: str, items: Sequence[ItemT]) -> ItemT:
        """Return one of ``items``; the first is the calmest."""
        return items[self.choose(label, len(items))]

    def between(self, label: str, low: int, high: int) -> int:
        """Return a number from ``low``, the calmest, to ``high``."""
        return low + self.choose(label, high - low + 1)


class Draws:
    """The streams of one history, from a seed or from a recording of an earlier one."""

    def __init__(self, seed: int, recording: Recording | None = None) -> None:
        self.seed = seed
        self._recording = recording
        self._streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """Return the stream of this name."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Stream(self._source(name))
        return found

    def recorded(self) -> dict[str, list[int]]:
        """Return the values of all draws so far."""
        return {
            name: [value for _, _, value in stream.drawn]
            for name, stream in sorted(self._streams.items())
        }

    def labels(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield stream, label, options and value of every draw, stream by stream."""
        for name, stream in sorted(self._streams.items()):
            for label, options, value in stream.drawn:
                yield name, label, options, value

    def _source(self, name: str) -> Callable[[int], int]:
        if self._recording is not None:
            return _replayed(self._recording.get(name, ()))
        # The first bits of a text seed are hashed, so neighbouring seeds share nothing.
        uniform = random.Random(f"{self.seed}/{name}").random
        return lambda options: int(uniform() * options)


def _replayed(values: Sequence[int]) -> Callable[[int], int]:
    remaining = iter(values)
    # An edited recording may ask for an outcome that no longer exists: the last one that does.
    return lambda options: min(next(remaining, 0), options - 1)
