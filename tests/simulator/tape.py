"""A history written down: enough to run it again, and small enough to be kept.

It decides the form of the file. It refuses to know what the draws mean.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.simulator.verdict import Outcome


class Tape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The draws of one history, and the invariant that it broke when it was written."""

    stack: str
    seed: int
    invariant: str
    words: str
    disabled: tuple[str, ...] = ()
    """Families that are off whatever is drawn."""
    needed: tuple[str, ...] = ()
    """Families that are in a storm whatever is drawn."""
    steps_max: int = 10**6
    draws: dict[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        """Return the file's name."""
        return f"{self.invariant}-{self.stack}-{self.seed}.json"


def tape_of(outcome: Outcome) -> Tape:
    """Return the tape of a history that has just failed."""
    assert outcome.violation is not None, "only a failure is worth a tape"
    return Tape(
        stack=outcome.stack,
        seed=outcome.draws.seed,
        invariant=outcome.violation.number,
        words=outcome.violation.words,
        disabled=tuple(sorted(outcome.disabled)),
        needed=tuple(sorted(outcome.needed)),
        steps_max=outcome.steps,
        draws={name: _kept(values) for name, values in outcome.draws.recorded().items()},
    )


def _kept(values: Sequence[int]) -> tuple[int, ...]:
    """Leave out what a replay supplies: behind its end every draw is 0."""
    end = len(values)
    while end and values[end - 1] == 0:
        end -= 1
    return tuple(values[:end])


def write(tape: Tape, folder: Path) -> Path:
    """Store a tape under its own name and return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / tape.name
    path.write_bytes(msgspec.json.format(msgspec.json.encode(tape), indent=0) + b"\n")
    return path


def read(path: Path) -> Tape:
    """Return the tape in a file."""
    return msgspec.json.decode(path.read_bytes(), type=Tape)
