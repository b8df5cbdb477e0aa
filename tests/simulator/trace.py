"""The trace of a history: what happened, in order, and its hash (I23).

It decides which two histories count as the same. It refuses to know what an entry means.
"""

import hashlib
from collections.abc import Iterable

STORY_LINE_LENGTH_MAX = 110


def trace_hash(trace: Iterable[object]) -> str:
    """Return a digest of everything that happened, in hex."""
    digest = hashlib.sha256()
    for entry in trace:
        digest.update(repr(entry).encode("utf-8", "replace"))
        digest.update(b"\n")
    return digest.hexdigest()


def story(trace: Iterable[object], lines_max: int = 40) -> list[str]:
    """Return the last entries in words, numbered."""
    told = list(trace)
    first = max(0, len(told) - lines_max)
    return [f"{number} {_words(entry)}" for number, entry in enumerate(told[first:], first + 1)]


def _words(entry: object) -> str:
    parts = entry if isinstance(entry, tuple) else (entry,)
    text = " ".join(part if isinstance(part, str) else repr(part) for part in parts)
    if len(text) > STORY_LINE_LENGTH_MAX:
        return text[: STORY_LINE_LENGTH_MAX - 1] + "…"
    return text
