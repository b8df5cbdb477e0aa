"""A planted bug: text edits of the product, and the invariants that may notice it.

It decides when an edit is stale. It refuses to touch the tree that it was read from.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


class Stale(Exception):
    """An edit does not fit the product any more; a stale bug is a failure."""


@dataclass(frozen=True)
class Edit:
    """One passage of a file, and what stands there instead."""

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the file in a copy of the tree."""
        file = root / self.path
        if not file.is_file():
            raise Stale(f"{self.path} is gone")
        text = file.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise Stale(f"{self.path} has {text.count(self.old)} times: {self.old.strip()!r}")
        file.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True)
class Bug:
    """One bug of faults.md section 7 under its number; a letter tells variants apart."""

    number: str
    words: str
    dies_by: tuple[str, ...]
    edits: tuple[Edit, ...]
    stack: Literal["short", "full", "runs", "traces"] = "short"
    """Where it is hunted; ``traces`` compares two runs of one seed (I23)."""
    needs: tuple[str, ...] = ()
    """Families without which it cannot show: they are on in every history of the hunt."""


@dataclass(frozen=True)
class Elsewhere:
    """A bug of section 7 that no simulated history can show, and who kills it."""

    number: str
    words: str
    why: str
