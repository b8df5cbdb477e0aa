"""Bytes of a versioned session to its tree, and mutations to bytes.

It decides which bytes are a whole session, which end in a torn line, and which are damaged.
It refuses to open files and to mend anything: it says what the whole part is.

    every line but the last       JSON, valid, next in sequence, else damaged
    last line without LF          valid: whole, LF is missing · no JSON: torn · else damaged
    last line with LF             like every other: a newline says that it was written whole
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.json_lines import has_no_json, parse_json, spell_json
from runnerd.runs.sessions.records import (
    Header,
    Mutation,
    damaged,
    header_members,
    mutation_members,
    read_header,
    read_mutation,
)
from runnerd.runs.sessions.tree import SessionTree

LF: Final = b"\n"


class SessionMark(msgspec.Struct, frozen=True):
    """Which content a handle has seen; another one is never the same."""

    size_bytes: int
    sha256: str


class Marking:
    """The mark of a content that grows."""

    def __init__(self, content: bytes) -> None:
        self._size = 0
        self._digest = hashlib.sha256()
        self.add(content)

    def add(self, lines: bytes) -> None:
        """Let the content grow."""
        self._size += len(lines)
        self._digest.update(lines)

    @property
    def mark(self) -> SessionMark:
        """The mark of the content so far."""
        return SessionMark(self._size, self._digest.hexdigest())


class SessionLog(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its bytes tell it."""

    header: Header
    mutations: tuple[Mutation, ...]
    content: bytes
    """The whole part, every line with its LF."""
    needs_mending: bool
    """The bytes are not the content: a torn tail follows, or the last LF is missing."""

    @property
    def mark(self) -> SessionMark:
        """The mark of the content."""
        return mark_of(self.content)

    def tree(self) -> SessionTree:
        """Return a tree of its own with every mutation applied."""
        tree = SessionTree()
        for mutation in self.mutations:
            tree.apply(mutation)
        return tree


def mark_of(content: bytes) -> SessionMark:
    """Return the mark of a content."""
    return Marking(content).mark


def scan(data: bytes, session_id: str) -> SessionLog:
    """Return the session that bytes are.

    Raises PrpError ``session_restore_failed`` naming the first damaged line.

    Source: durable-runs 7 and 10.10, faults R19.
    """
    *lines, rest = data.split(LF)
    is_torn = bool(lines) and bool(rest) and _is_torn(rest)
    if rest and not is_torn:
        lines.append(rest)
    if not lines:
        raise damaged("there is no header")
    header = read_header(_parsed(1, lines[0]), session_id)
    tree, mutations = SessionTree(), list[Mutation]()
    for number, line in enumerate(lines[1:], start=2):
        value = _parsed(number, line)
        try:
            mutations.append(read_mutation(value))
            tree.apply(mutations[-1])
        except PrpError as error:
            raise damaged(f"line {number}: {error.message}") from None
    content = data
    if is_torn:
        content = data[: -len(rest)]
    elif rest:
        content = data + LF
    return SessionLog(
        header=header,
        mutations=tuple(mutations),
        content=content,
        needs_mending=bool(rest),
    )


def looks_versioned(data: bytes) -> bool:
    """Tell whether the first line is meant as a header of a versioned session."""
    try:
        parsed = parse_json(data.partition(LF)[0])
    except PrpError:
        return False
    return (
        parsed is not None and isinstance(parsed.json, dict) and parsed.json.get("kind") == "header"
    )


def encode_session(header: Header, mutations: Iterable[Mutation]) -> bytes:
    """Return the bytes of a whole session; raises PrpError ``message_invalid``."""
    return _line(header_members(header)) + encode_mutations(mutations)


def encode_mutations(mutations: Iterable[Mutation]) -> bytes:
    """Return the lines of mutations, each with its LF; raises PrpError ``message_invalid``."""
    return b"".join(_line(mutation_members(mutation)) for mutation in mutations)


def _line(members: dict[str, JsonValue]) -> bytes:
    return spell_json(members) + LF


def _parsed(number: int, line: bytes) -> JsonValue:
    try:
        parsed = parse_json(line)
    except PrpError as error:
        raise damaged(f"line {number}: {error.message}") from None
    if parsed is None:
        raise damaged(f"line {number}: not JSON")
    if parsed.may_be_infinite and has_no_json(parsed.json):
        raise damaged(f"line {number}: a number that no reader keeps")
    return parsed.json


def _is_torn(rest: bytes) -> bool:
    try:
        if parse_json(rest) is not None:
            return False
        if parse_json(rest.decode(errors="replace").encode()) is None:
            return True
    except PrpError as error:
        raise damaged(f"the last line: {error.message}") from None
    # A line that is whole but for some bytes was damaged, not cut.
    raise damaged("the last line: not UTF-8")
