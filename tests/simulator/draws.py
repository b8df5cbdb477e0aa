"""Named streams of draws that all follow from one seed, written down as they are made.

It decides the value of every draw. It refuses to know what is drawn: what a stream's name
and a draw's label mean is known to those who ask.
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count, islice, repeat
from typing import Final, TypeVar

ItemT = TypeVar("ItemT")

Recording = Mapping[str, Sequence[int]]
"""The values of each stream, in order; behind their end every draw is 0, the calmest outcome."""


class Stream:
    """Draws under one name; switching off what one stream serves shifts no other stream."""

    __slots__ = ("_words", "drawn")

    def __init__(self, words: Iterator[int]) -> None:
        """Draw from numbers below 2**32."""
        self._words = words
        self.drawn: list[tuple[str, int, int]] = []
        """Label, number of options and value of every draw so far."""

    def choose(self, label: str, options: int) -> int:
        """Return a number from 0 to ``options`` - 1; 0 is the calmest outcome."""
        value = next(self._words) * options >> 32
        self.drawn.append((label, options, value))
        return value

    def chance(self, label: str, percent: int) -> bool:
        """Return True in about ``percent`` of 100 cases."""
        return self.choose(label, 100) >= 100 - percent

    def pick(self, label: str, items: Sequence[ItemT]) -> ItemT:
        """Return one of ``items``; the first is the calmest."""
        return items[self.choose(label, len(items))]

    def pick_each(self, labels: Sequence[str], items: Sequence[ItemT]) -> dict[str, ItemT]:
        """Return one of ``items`` for each label."""
        options = len(items)
        values = [word * options >> 32 for word in islice(self._words, len(labels))]
        self.drawn += zip(labels, repeat(options), values, strict=False)
        return dict(zip(labels, [items[value] for value in values], strict=True))

    def weighed(self, label: str, weights: Sequence[int], none: int = 0) -> int | None:
        """Return the place of one of the weights, None for as often as ``none`` weighs."""
        edges = list(accumulate(weights, initial=none))
        drawn = self.choose(label, edges[-1]) if edges[-1] else -1
        return None if drawn < none else bisect_right(edges, drawn) - 1

    def between(self, label: str, low: int, high: int) -> int:
        """Return a number from ``low``, the calmest, to ``high``."""
        return low + self.choose(label, high - low + 1)


class _Replayed(Stream):
    """Draws that were written down."""

    __slots__ = ()

    def choose(self, label: str, options: int) -> int:
        # An edited recording may ask for an outcome that no longer exists: the last that does.
        value = min(next(self._words, 0), options - 1)
        self.drawn.append((label, options, value))
        return value

    def pick_each(self, labels: Sequence[str], items: Sequence[ItemT]) -> dict[str, ItemT]:
        return {label: self.pick(label, items) for label in labels}


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
            found = self._streams[name] = self._new(name)
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

    def _new(self, name: str) -> Stream:
        if self._recording is not None:
            return _Replayed(iter(self._recording.get(name, ())))
        return Stream(_words(f"{self.seed}/{name}"))


def _words(text: str) -> Iterator[int]:
    """Yield numbers that follow from a text; neighbouring texts share nothing."""
    # A generator of the library would cost more to seed than a history draws from it.
    for block in count():
        digest = hashlib.blake2b(f"{text}/{block}".encode()).digest()
        yield from _BLOCK.unpack(digest)


_BLOCK: Final = struct.Struct("<16I")
