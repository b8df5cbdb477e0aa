"""Where and how long measurements run.

It decides sizes. It refuses to know what is measured.
"""

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from tests.bench.figures import Figure, NotMeasured, Outcome


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done for each figure."""

    rounds: int
    """Pairs of samples."""
    burst: int
    """Events of one sample of ours."""
    upstream_burst: int
    """Events of one sample of the upstream controller."""
    singles: int
    """Events of one sample that are sent one at a time."""
    starts: int
    """Starts of each program."""
    little: int
    """Events before the first look at memory."""
    much: int
    """Events before the second."""
    memory_rounds: int
    long_history: int
    flat_rounds: int
    """Pairs of samples with a long and a short history, which differ little."""
    flat_burst: int


QUICK = Size(
    rounds=3,
    burst=2_000,
    upstream_burst=60,
    singles=15,
    starts=5,
    little=2_000,
    much=10_000,
    memory_rounds=1,
    long_history=20_000,
    flat_rounds=5,
    flat_burst=1_000,
)
FULL = Size(
    rounds=7,
    burst=5_000,
    upstream_burst=100,
    singles=25,
    starts=15,
    little=10_000,
    much=50_000,
    memory_rounds=3,
    long_history=20_000,
    flat_rounds=15,
    flat_burst=2_500,
)
LONG = msgspec.structs.replace(FULL, long_history=50_000)


class Site(msgspec.Struct, frozen=True):
    """A fresh folder on the disk that is measured, the sizes, and who is told of progress."""

    directory: Path
    size: Size
    tell: Callable[[str], None]

    def folder(self, name: str) -> Path:
        """Make a private folder of this name."""
        folder = self.directory / name
        folder.mkdir(mode=0o700)
        return folder

    def fresh_folder(self) -> Path:
        """Make a private folder that no other caller gets."""
        return Path(tempfile.mkdtemp(dir=self.directory))


Measure: TypeAlias = Callable[[Site], Awaitable[Mapping[str, Outcome]]]


class Measurement(msgspec.Struct, frozen=True):
    """Figures that come from one procedure; it returns an outcome for each name."""

    figures: tuple[Figure, ...]
    measure: Measure


def none_measured(figures: tuple[Figure, ...], reason: str) -> dict[str, Outcome]:
    """Return that none of the figures can be had here."""
    return {figure.name: NotMeasured(reason) for figure in figures}
