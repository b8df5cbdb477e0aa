"""Edits of a log on its disk, and what a reader must say of each (faults M01, M02).

It decides the verdict that R19 and the format of the original ask for. It refuses to know
how a reader works: it is given one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import RunRecord
from runnerd.runs.run_log import LogEnd, LogFormat, encode_line, spell_record
from tests.crash.run_logs import RUN, record

COUNT = 4


class Reader(Protocol):
    """What a log scanner does."""

    def feed(self, data: bytes) -> list[RunRecord]: ...

    def finish(self) -> tuple[list[RunRecord], LogEnd]: ...


class MakeReader(Protocol):
    """Makes a reader of one run's log."""

    def __call__(self, run_id: str) -> Reader: ...


@dataclass(frozen=True)
class Edit:
    """The bytes of an edited log; ``left`` records are found, or None: it fails closed."""

    name: str
    data: bytes
    left: int | None


def lines_of(log_format: LogFormat, count: int = COUNT) -> list[bytes]:
    """Return the lines of a whole log."""
    chain = b""
    lines: list[bytes] = []
    for sequence in range(1, count + 1):
        line = encode_line(spell_record(record(sequence)), log_format, chain)
        chain = line.chain
        lines.append(line.line)
    return lines


def edits(log_format: LogFormat) -> Iterator[Edit]:
    """Yield every edit of a log of `COUNT` records."""
    lines = lines_of(log_format)
    whole = b"".join(lines)
    yield Edit("nothing", whole, COUNT)
    yield from _torn_tails(log_format, lines)
    if log_format is LogFormat.CHAINED:
        yield from _flips(lines)
        yield from _flips(lines[:1])
    for place in range(COUNT - 1):
        rest = [*lines[:place], *lines[place + 1 :]]
        yield Edit(f"line {place} lost", b"".join(rest), None)
        swapped = [*lines]
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
        yield Edit(f"line {place} swapped with the next", b"".join(swapped), None)
        cut = [*lines]
        cut[place] = cut[place][:30] + b"\n"
        yield Edit(f"line {place} cut", b"".join(cut), None)
        joined = [*lines]
        joined[place] = joined[place][:-1]
        yield Edit(f"line {place} without its end", b"".join(joined), None)
    for place in range(COUNT):
        twice = [*lines[: place + 1], *lines[place:]]
        yield Edit(f"line {place} twice", b"".join(twice), None)
        zeroed = [*lines]
        zeroed[place] = bytes(len(zeroed[place]) - 1) + b"\n"
        yield Edit(f"line {place} zeroed", b"".join(zeroed), None)
        blank = [*lines[:place], b"\n", *lines[place:]]
        is_plain = log_format is LogFormat.PLAIN
        yield Edit(f"blank line before {place}", b"".join(blank), COUNT if is_plain else None)


def _flips(lines: list[bytes]) -> Iterator[Edit]:
    """Yield a log of ours with one bit changed, for each byte but the last line end."""
    whole = b"".join(lines)
    for place in range(len(whole) - 1):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 7
        yield Edit(f"bit changed in byte {place}", bytes(flipped), None)


def _torn_tails(log_format: LogFormat, lines: list[bytes]) -> Iterator[Edit]:
    front = b"".join(lines[:-1])
    for length in range(1, len(lines[-1]) - 1):
        yield Edit(f"cut at {length}", front + lines[-1][:length], COUNT - 1)
    is_plain = log_format is LogFormat.PLAIN
    yield Edit("no line end", front + lines[-1][:-1], COUNT if is_plain else COUNT - 1)
    yield Edit("NUL tail", front + bytes(100), COUNT - 1)
    yield Edit("NUL tail with a line end", front + bytes(100) + b"\n", None)
    yield Edit("broken line with a line end", front + lines[-1][:40] + b"\n", None)
    for length in range(1, len(lines[0]) - 1):
        yield Edit(f"the only line cut at {length}", lines[0][:length], None)


def violations(make_reader: MakeReader, log_format: LogFormat) -> Iterator[str]:
    """Yield each edit of which a reader says something else."""
    for edit in edits(log_format):
        if (found := _found(make_reader, edit.data)) != edit.left:
            yield f"I22 {log_format.value}, {edit.name}: found {found}, not {edit.left}"


def _found(make_reader: MakeReader, data: bytes) -> int | str | None:
    reader = make_reader(RUN)
    try:
        records = [*reader.feed(data[:7]), *reader.feed(data[7:])]
        last, end = reader.finish()
    except PrpError as error:
        return None if error.code is ErrorCode.RUN_STATE_CORRUPT else error.code.value
    records += last
    if records != [record(sequence) for sequence in range(1, len(records) + 1)]:
        return "other records"
    if end.record_count != len(records):
        return "another count"
    again = make_reader(RUN)
    if [*again.feed(data[: end.complete_bytes]), *again.finish()[0]] != records:
        return "a whole part that is not whole"
    return len(records)
