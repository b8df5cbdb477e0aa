"""Ways to spoil good input: bytes, pieces, and members of JSON.

It decides what hostile input looks like. It refuses to know who reads it.
"""

import json
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from protocol.canonical_json import JsonValue

_Place: TypeAlias = tuple[dict[str, JsonValue] | list[JsonValue], Any]
"""An object or list, and a name or number in it."""

PIECES: Final = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\r\n",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(b"null", b"true", b"-0", b"NaN", b"1e999", b"9" * 400, b"9007199254740993", b'"\\ud800"'),
    *(b"[" * 200, b'{"a":' * 70, b'{"a":1,"a":2}', b"A: b\r\n", b"%s%n", b"--", b"../..", b"\\"),
    *("\u2028".encode(), "é😀".encode(), b"x" * 70_000),
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 2**53, 2**53 + 1, 2**64, -(2**63), 10**30, 1e300),
    *("", "x", "\0", "\ud800", "é", "x" * 5_000, "../x", "1", "a" * 64, "sha256:" + "0" * 64),
    *([], {}, [None], {"a": 1}, [[]], {"": {}}, [1, 1]),
)


@st.composite
def spoiled_bytes(draw: st.DrawFn, sample: bytes) -> bytes:
    """Return a sample with a few of its bytes changed, dropped, doubled or joined by others."""
    data = sample
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(data)))
        last = draw(st.integers(first, min(len(data), first + 40)))
        match draw(st.integers(0, 5)):
            case 0 if data:
                at = min(first, len(data) - 1)
                data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
            case 1:
                data = data[:first] + data[last:]
            case 2:
                data = data[:last] + data[first:]
            case 3:
                data = data[:first]
            case _:
                data = data[:first] + draw(st.sampled_from(PIECES)) + data[last:]
    return data


@st.composite
def spoiled_json(draw: st.DrawFn, sample: bytes) -> bytes:
    """Return JSON with one member or item of a sample replaced, dropped, renamed or added."""
    value = json.loads(sample)
    places = list(_places(value))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(places))
        other = draw(st.sampled_from(VALUES))
        if isinstance(holder, dict):
            match draw(st.integers(0, 3)):
                case 0:
                    holder.pop(key, None)
                case 1:
                    holder[f"{key}x"] = holder.pop(key, None)
                case _:
                    holder[key] = other
        elif key < len(holder):
            holder[key] = other
    return json.dumps(value).encode()


def _places(value: JsonValue) -> list[_Place]:
    found: list[_Place] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += [(value, key), *_places(inner)]
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += [(value, number), *_places(inner)]
    return found


def spoiled(sample: bytes) -> st.SearchStrategy[bytes]:
    """Return everything that may take the place of a sample, the sample itself among it."""
    ways = [st.just(sample), st.binary(max_size=200), spoiled_bytes(sample)]
    first, _, _ = sample.partition(b"\n")
    try:
        if _places(json.loads(first)):
            rest = sample[len(first) :]
            ways.append(spoiled_json(first).map(lambda line: line + rest))
    except ValueError:
        pass
    return st.one_of(ways)
