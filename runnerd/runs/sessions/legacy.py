"""The session file of version 3, and what it becomes.

It decides whether a legacy file can be kept in full by the versioned form, before anything
is written. It refuses to know where either lies.

    read      every line JSON, header, shape, ids once, parents, targets, one branch at a time
    convert   every type known, every time and target readable; one line is one mutation

A leaf line moves the lane; labels and names become facts. None of them is an entry any
more, so what hung on one hangs on what it stood for.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.json_lines import has_no_json, parse_json
from runnerd.runs.records import JSON_BLANKS, is_instant, whole_number
from runnerd.runs.sessions.records import (
    ENTRY_TYPES,
    LEGACY_VERSION,
    MAIN_LANE,
    Entry,
    JsonObject,
    LabelFact,
    LaneMove,
    Mutation,
    NameFact,
    misfit_of_entry,
)

LEAF: Final = "leaf"
LABEL: Final = "label"
NAME: Final = "session_info"

_ENVELOPE: Final = ("type", "id", "parentId", "timestamp")
_SUPERSEDED: Final = ("firstKeptEntryId",)
"""Members of a compaction in whose place the versioned form has a retained tail."""
_LINE_ENDS: Final = re.compile(r"[\r\n]+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LegacyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line behind the header; ids in it are those of entries in the versioned form."""

    line: int
    entry_id: str
    entry_type: str
    parent_id: str | None
    target_id: str | None = None
    """Of a leaf or a label."""
    misfit: str | None = None
    """What keeps the line from being converted, although it hangs together with the others."""
    timestamp: str
    members: JsonObject


class LegacySession(msgspec.Struct, frozen=True, kw_only=True):
    """A legacy file whose lines hang together."""

    session_id: str
    cwd: str
    created_at: int | None
    """Milliseconds since 1970, None if the header's time cannot be read."""
    parent_session: str | None
    metadata: JsonObject | None
    entries: tuple[LegacyEntry, ...]
    source: bytes

    @property
    def sha256(self) -> str:
        """The digest of the file, which a marker names."""
        return hashlib.sha256(self.source).hexdigest()


def read_legacy(source: bytes, session_id: str) -> LegacySession:
    """Return the legacy session that bytes are.

    Raises PrpError ``session_migration_invalid`` naming the line: not JSON (a torn tail is
    not mended), a wrong header, an entry without its shape, an id that stands twice, a
    parent or a target that does not stand before it, an entry that leaves its branch
    without a leaf line. Blank lines are skipped.

    Source: durable-runs 7 and 10.1.
    """
    lines = _lines(source)
    number, header = next(lines, (1, None))
    if header is None:
        raise invalid("there is no header")
    _check_header(number, header, session_id)
    parent, metadata = header.get("parentSession"), header.get("metadata")
    assert isinstance(parent, str | None), "checked with the header"
    assert isinstance(metadata, dict | None), "checked with the header"
    return LegacySession(
        session_id=session_id,
        cwd=str(header["cwd"]),
        created_at=instant_ms(str(header["timestamp"])),
        parent_session=parent,
        metadata=metadata,
        entries=tuple(_Tree().entries(lines)),
        source=source,
    )


def convert(legacy: LegacySession) -> list[Mutation]:
    """Return the mutations that keep all of a legacy session.

    Raises PrpError ``session_migration_unsupported`` for a type that the versioned form
    cannot hold, ``session_migration_invalid`` for a time that cannot be read or lies
    before 1970, and for a target or name that is none.

    Source: durable-runs 7.
    """
    return [_converted(entry, seq) for seq, entry in enumerate(legacy.entries, start=1)]


def instant_ms(text: str) -> int | None:
    """Return an ISO 8601 instant as milliseconds since 1970; without a zone it is UTC.

    None if it cannot be read or lies before.
    """
    if not is_instant(text):
        return None
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1) if aware >= _EPOCH else None


def invalid(what: str) -> PrpError:
    """Return the refusal of a file that is no whole legacy session."""
    return PrpError(ErrorCode.SESSION_MIGRATION_INVALID, what)


class _Tree:
    """The lines so far, and what each that is no entry any more stood for."""

    def __init__(self) -> None:
        self._stands_for: dict[str, str | None] = {}
        self._leaf: str | None = None

    def entries(self, lines: Iterator[tuple[int, dict[str, JsonValue]]]) -> Iterator[LegacyEntry]:
        for number, members in lines:
            try:
                yield self._entry(number, members)
            except PrpError as error:
                raise invalid(f"line {number}: {error.message}") from None

    def _entry(self, number: int, members: dict[str, JsonValue]) -> LegacyEntry:
        entry_id, entry_type = members.get("id"), members.get("type")
        parent, timestamp = members.get("parentId", 0), members.get("timestamp")
        if not (
            isinstance(entry_id, str)
            and isinstance(entry_type, str)
            and isinstance(parent, str | None)
            and isinstance(timestamp, str)
        ):
            raise invalid("an entry without its shape")
        if entry_id in self._stands_for:
            raise invalid("an id that stands twice")
        rest = {name: value for name, value in members.items() if name not in _ENVELOPE}
        if (misfit := misfit_of_entry(entry_type, rest)) is not None:
            raise invalid(misfit)
        parent_id = self._resolved(parent)
        target_id, misfit = self._target(entry_type, members)
        self._stands_for[entry_id] = self._place(entry_type, entry_id, parent_id, target_id)
        return LegacyEntry(
            line=number,
            entry_id=entry_id,
            entry_type=entry_type,
            parent_id=parent_id,
            target_id=target_id,
            timestamp=timestamp,
            members=rest,
            misfit=misfit,
        )

    def _place(
        self, entry_type: str, entry_id: str, parent_id: str | None, target_id: str | None
    ) -> str | None:
        """Let a line take its place, and return what it stands for."""
        if entry_type == LEAF:
            self._leaf = target_id
            return target_id
        if entry_type in (LABEL, NAME):
            return parent_id
        if parent_id != self._leaf:
            raise invalid("an entry that leaves its branch without a leaf line")
        self._leaf = entry_id
        return entry_id

    def _target(
        self, entry_type: str, members: dict[str, JsonValue]
    ) -> tuple[str | None, str | None]:
        """Return the target of a leaf or label, or what is wrong with a line's reference."""
        target = members.get("targetId", 0)
        match entry_type:
            case "leaf" if target is None:
                return None, None
            case "leaf" | "label" if isinstance(target, str) and target:
                target_id = self._resolved(target)
                if entry_type == LABEL and target_id is None:
                    raise invalid("a label on nothing")
                return target_id, None
            case "leaf" | "label":
                return None, "a target that is no id"
            case "branch_summary" if not members.get("fromId"):
                return None, "a branch summary that comes from nowhere"
            case "session_info" if not isinstance(members.get("name"), str):
                return None, "a name that is no text"
            case _:
                return None, None

    def _resolved(self, entry_id: str | None) -> str | None:
        if entry_id is None:
            return None
        if entry_id not in self._stands_for:
            raise invalid("an id that does not stand before it")
        return self._stands_for[entry_id]


def _lines(source: bytes) -> Iterator[tuple[int, dict[str, JsonValue]]]:
    for number, line in enumerate(source.split(b"\n"), start=1):
        try:
            parsed = parse_json(line)
        except PrpError as error:
            raise invalid(f"line {number}: {error.message}") from None
        if parsed is None:
            if not line.decode(errors="replace").strip(JSON_BLANKS):
                continue
            raise invalid(f"line {number}: not JSON")
        if not isinstance(parsed.json, dict):
            raise invalid(f"line {number}: no object")
        if parsed.may_be_infinite and has_no_json(parsed.json):
            raise invalid(f"line {number}: a number that no reader keeps")
        yield number, parsed.json


def _check_header(number: int, header: dict[str, JsonValue], session_id: str) -> None:
    if header.get("type") != "session" or whole_number(header.get("version")) != LEGACY_VERSION:
        raise invalid(f"line {number}: not the header of a legacy session")
    if header.get("id") != session_id:
        raise invalid(f"line {number}: the header of another session")
    if not isinstance(header.get("timestamp"), str) or not isinstance(header.get("cwd"), str):
        raise invalid(f"line {number}: a header without time or directory")
    if not isinstance(header.get("parentSession", ""), str):
        raise invalid(f"line {number}: a parent session that is no text")
    if not isinstance(header.get("metadata", {}), dict):
        raise invalid(f"line {number}: metadata that is no object")


def _converted(entry: LegacyEntry, seq: int) -> Mutation:
    timestamp = instant_ms(entry.timestamp)
    if timestamp is None:
        raise invalid(f"line {entry.line}: a time that cannot be read")
    if entry.misfit is not None:
        raise invalid(f"line {entry.line}: {entry.misfit}")
    match entry.entry_type:
        case "leaf":
            return LaneMove(seq=seq, lane=MAIN_LANE, leaf_id=entry.target_id)
        case "label":
            assert entry.target_id is not None, "read with its target"
            label = entry.members.get("label")
            text = label.strip(JSON_BLANKS) if isinstance(label, str) else ""
            return LabelFact(seq=seq, target_id=entry.target_id, label=text or None)
        case "session_info":
            name = _LINE_ENDS.sub(" ", str(entry.members["name"])).strip(JSON_BLANKS)
            return NameFact(seq=seq, name=name)
        case entry_type if entry_type in ENTRY_TYPES:
            return Entry(
                seq=seq,
                entry_id=entry.entry_id,
                entry_type=entry_type,
                parent_id=entry.parent_id,
                timestamp=timestamp,
                members=_members(entry),
            )
        case _:
            reason = f"line {entry.line}: a type that the versioned form cannot hold"
            raise PrpError(ErrorCode.SESSION_MIGRATION_UNSUPPORTED, reason)


def _members(entry: LegacyEntry) -> JsonObject:
    if entry.entry_type != "compaction":
        return entry.members
    kept = {name: value for name, value in entry.members.items() if name not in _SUPERSEDED}
    return {"retainedTail": [], **kept}
