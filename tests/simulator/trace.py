"""The trace of a history: what happened, in order, its hash (I23) and its story.

It decides which two histories count as the same. It refuses to know what an entry means.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, TypeGuard

import msgspec

STORY_LINE_LENGTH_MAX: Final = 150


def trace_hash(trace: Iterable[object]) -> str:
    """Return a digest of everything that happened, in hex."""
    digest = hashlib.sha256()
    for entry in trace:
        digest.update(_words(entry).encode("utf-8", "replace"))
        digest.update(b"\n")
    return digest.hexdigest()


def story(trace: Iterable[object], lines_max: int = 40) -> list[str]:
    """Return the last entries in words, numbered."""
    told = list(trace)
    first = max(0, len(told) - lines_max)
    return [f"{number} {_cut(_words(entry))}" for number, entry in enumerate(told[first:], first)]


def _is_tuple(entry: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(entry, tuple)


def _words(entry: object) -> str:
    if _is_tuple(entry):
        return " ".join(_words(part) for part in entry)
    if isinstance(entry, str):
        return entry
    text = _ENCODER.encode(entry).decode()
    return text if isinstance(entry, int) or entry is None else f"{type(entry).__name__} {text}"


def _plain(value: object) -> str:
    """Spell what JSON cannot carry, the same in every process: never an address."""
    return f"<{type(value).__name__} {value}>" if isinstance(value, Exception) else "<redacted>"


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def _cut(text: str) -> str:
    return text if len(text) <= STORY_LINE_LENGTH_MAX else text[: STORY_LINE_LENGTH_MAX - 1] + "…"
