"""Digests of the newest committed events, so that a redelivery can be told from a conflict.

It decides which digests are still held. It refuses to know what they were computed from.
"""

from typing import Final

import msgspec

from protocol.ids import SourceSeq
from protocol.limits import DIGEST_WINDOW_EVENTS

DIGEST_BYTES: Final = 32
_CHUNK_EVENTS: Final = 256
_CHUNK_BYTES: Final = _CHUNK_EVENTS * DIGEST_BYTES
_CHUNKS_MAX: Final = DIGEST_WINDOW_EVENTS // _CHUNK_EVENTS


class DigestWindow(msgspec.Struct, frozen=True, kw_only=True):
    """At least the newest ``DIGEST_WINDOW_EVENTS`` digests, and fewer than 256 more.

    Full chunks are shared between successive windows, so that an event copies at most one
    chunk whatever the history.
    """

    first_seq: SourceSeq = SourceSeq(1)
    chunks: tuple[bytes, ...] = ()
    tail: bytes = b""


def window_of(first_seq: SourceSeq, digests: bytes) -> DigestWindow:
    """Return the window over joined digests that begin with the event ``first_seq``."""
    assert len(digests) % DIGEST_BYTES == 0, "a digest has 32 bytes"
    full = len(digests) - len(digests) % _CHUNK_BYTES
    chunks = tuple(digests[at : at + _CHUNK_BYTES] for at in range(0, full, _CHUNK_BYTES))
    dropped = max(0, len(chunks) - _CHUNKS_MAX)
    return DigestWindow(
        first_seq=SourceSeq(first_seq + dropped * _CHUNK_EVENTS),
        chunks=chunks[dropped:],
        tail=digests[full:],
    )


def appended(window: DigestWindow, digest: bytes) -> DigestWindow:
    """Return the window with the digest of the next event."""
    assert len(digest) == DIGEST_BYTES, "a digest has 32 bytes"
    tail = window.tail + digest
    if len(tail) < _CHUNK_BYTES:
        return DigestWindow(first_seq=window.first_seq, chunks=window.chunks, tail=tail)
    if len(window.chunks) < _CHUNKS_MAX:
        return DigestWindow(first_seq=window.first_seq, chunks=(*window.chunks, tail))
    return DigestWindow(
        first_seq=SourceSeq(window.first_seq + _CHUNK_EVENTS),
        chunks=(*window.chunks[1:], tail),
    )


def digest_at(window: DigestWindow, seq: SourceSeq) -> bytes | None:
    """Return the digest of event ``seq``, or None if it is older or newer than the window."""
    index = seq - window.first_seq
    if index < 0:
        return None
    chunk, place = divmod(index, _CHUNK_EVENTS)
    if chunk > len(window.chunks):
        return None
    held = window.tail if chunk == len(window.chunks) else window.chunks[chunk]
    return held[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES] or None


assert _CHUNKS_MAX * _CHUNK_EVENTS == DIGEST_WINDOW_EVENTS
