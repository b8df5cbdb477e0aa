"""The lines of a versioned session as values: a header, then entries, lanes, facts, records.

It decides what a line must have to be one. It refuses to know which line may follow which:
that is `tree`, and how lines lie in a file: that is `log`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import SAFE_INTEGER_MAX, SESSION_ID_LENGTH_MAX
from runnerd.runs.records import whole_number

SESSION_VERSION: Final = 4
LEGACY_VERSION: Final = 3
MAIN_LANE: Final = "main"
MIGRATION_MEMBER: Final = "coremindMigration"
"""Member of a header's metadata that tells from which legacy file the session came."""

ENTRY_TYPES: Final = frozenset(
    {
        "message",
        "model_change",
        "thinking_level_change",
        "active_tools_change",
        "compaction",
        "branch_summary",
        "custom",
    }
)
RECORD_TYPES: Final = frozenset(
    {
        "operation_started",
        "abort_requested",
        "operation_finished",
        "step_attempt",
        "tool_started",
        "queue_enqueued",
        "queue_cancelled",
        "write_deferred",
        "usage",
    }
)

JsonObject: TypeAlias = Mapping[str, JsonValue]

_ID: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_NOTHING: Final[JsonObject] = MappingProxyType({})
_ENTRY_MEMBERS: Final = ("kind", "lane", "type", "id", "seq", "parentId", "timestamp")
_RECORD_MEMBERS: Final = ("kind", "lane", "type", "id", "seq", "timestamp")


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """The marker of a session that was made from a legacy file."""

    source_sha256: str
    is_complete: bool
    backup_file: str


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    session_id: str
    created_at: int
    """Milliseconds since 1970."""
    cwd: str
    parent_session_id: str | None = None
    legacy_parent_session_path: str | None = None
    metadata: JsonObject | None = None

    @property
    def migration(self) -> Migration | None:
        """The marker, None if the session was made by no migration."""
        return _migration_in(self.metadata)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the tree; with a lane it becomes that lane's leaf."""

    seq: int
    entry_id: str
    entry_type: str
    parent_id: str | None
    timestamp: int
    """Milliseconds since 1970."""
    lane: str | None = MAIN_LANE
    members: JsonObject = _NOTHING
    """What the type adds, e.g. `message`."""


class LaneMove(msgspec.Struct, frozen=True, kw_only=True):
    """A lane, new or old, now ends at this entry; None is the root."""

    seq: int
    lane: str
    leaf_id: str | None


class NameFact(msgspec.Struct, frozen=True, kw_only=True):
    """The session's name; None takes it away."""

    seq: int
    name: str | None


class LabelFact(msgspec.Struct, frozen=True, kw_only=True):
    """An entry's label; None takes it away."""

    seq: int
    target_id: str
    label: str | None


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a lane beside its entries."""

    seq: int
    record_id: str
    record_type: str
    timestamp: int
    lane: str = MAIN_LANE
    members: JsonObject = _NOTHING


Mutation: TypeAlias = Entry | LaneMove | NameFact | LabelFact | LaneRecord


def check_session_id(session_id: str) -> None:
    """Refuse an id that is not a plain file name: PrpError ``invalid_session_id``."""
    if len(session_id) > SESSION_ID_LENGTH_MAX or _ID.fullmatch(session_id) is None:
        raise PrpError(ErrorCode.INVALID_SESSION_ID, "an id is letters, digits, _ and -")


def read_header(value: JsonValue, session_id: str) -> Header:
    """Return the header that a JSON value is.

    Raises PrpError ``session_restore_failed`` naming what is wrong, also for the header of
    another session. Source: durable-runs 7.
    """
    members = _object(value, "the header")
    if members.get("kind") != "header" or whole_number(members.get("version")) != SESSION_VERSION:
        raise damaged("not the header of a session of this version")
    if _text(members, "id") != session_id:
        raise damaged("the header of another session")
    parent, path = members.get("parentSessionId"), members.get("legacyParentSessionPath")
    if not isinstance(parent, str | None) or not isinstance(path, str | None):
        raise damaged("a parent session that is no text")
    if parent is not None and path is not None:
        raise damaged("two parent sessions")
    metadata = members.get("metadata")
    if "metadata" in members and not isinstance(metadata, dict):
        raise damaged("metadata that is no object")
    assert isinstance(metadata, dict | None)
    return Header(
        session_id=session_id,
        created_at=_number(members, "createdAt"),
        cwd=_text(members, "cwd"),
        parent_session_id=parent,
        legacy_parent_session_path=path,
        metadata=metadata,
    )


def read_mutation(value: JsonValue) -> Mutation:
    """Return the mutation that a JSON value is.

    Raises PrpError ``session_restore_failed`` naming what is wrong; a type that this
    program does not know is wrong, since nothing may be skipped.
    """
    members = _object(value, "a line")
    seq = _number(members, "seq", 1)
    match members.get("kind"):
        case "entry":
            return _entry(members, seq)
        case "lane":
            lane, leaf = _text(members, "lane"), _text_or_null(members, "leafId")
            return LaneMove(seq=seq, lane=lane, leaf_id=leaf)
        case "fact":
            return _fact(members, seq)
        case "record":
            return _record(members, seq)
        case _:
            raise damaged("a line of an unknown kind")


def header_members(header: Header) -> dict[str, JsonValue]:
    """Return the header as the JSON object that is written."""
    members: dict[str, JsonValue] = {
        "kind": "header",
        "version": SESSION_VERSION,
        "id": header.session_id,
        "createdAt": header.created_at,
        "cwd": header.cwd,
    }
    if header.parent_session_id is not None:
        members["parentSessionId"] = header.parent_session_id
    if header.legacy_parent_session_path is not None:
        members["legacyParentSessionPath"] = header.legacy_parent_session_path
    if header.metadata is not None:
        members["metadata"] = dict(header.metadata)
    return members


def mutation_members(mutation: Mutation) -> dict[str, JsonValue]:
    """Return a mutation as the JSON object that is written."""
    members: dict[str, JsonValue]
    match mutation:
        case Entry():
            members = {
                "kind": "entry",
                **_given("lane", mutation.lane),
                "type": mutation.entry_type,
                "id": mutation.entry_id,
                "seq": mutation.seq,
                "parentId": mutation.parent_id,
                "timestamp": mutation.timestamp,
            }
            return members | _others(mutation.members, _ENTRY_MEMBERS)
        case LaneMove():
            lane, leaf = mutation.lane, mutation.leaf_id
            return {"kind": "lane", "seq": mutation.seq, "lane": lane, "leafId": leaf}
        case NameFact():
            members = {"kind": "fact", "seq": mutation.seq, "fact": "name"}
            return members | _given("name", mutation.name)
        case LabelFact():
            members = {"kind": "fact", "seq": mutation.seq, "fact": "label"}
            return members | {"targetId": mutation.target_id} | _given("label", mutation.label)
        case LaneRecord():
            members = {
                "kind": "record",
                "lane": mutation.lane,
                "type": mutation.record_type,
                "id": mutation.record_id,
                "seq": mutation.seq,
                "timestamp": mutation.timestamp,
            }
            return members | _others(mutation.members, _RECORD_MEMBERS)


def with_migration(metadata: JsonObject | None, migration: Migration) -> JsonObject:
    """Return a header's metadata with the marker in it."""
    return {
        **(metadata or {}),
        MIGRATION_MEMBER: {
            "schemaVersion": 1,
            "sourceFormat": LEGACY_VERSION,
            "sourceSha256": migration.source_sha256,
            "complete": migration.is_complete,
            "backupFile": migration.backup_file,
        },
    }


def damaged(what: str) -> PrpError:
    """Return the refusal of a session that cannot be read back."""
    return PrpError(ErrorCode.SESSION_RESTORE_FAILED, what)


def _migration_in(metadata: JsonObject | None) -> Migration | None:
    marker = None if metadata is None else metadata.get(MIGRATION_MEMBER)
    if not isinstance(marker, dict):
        return None
    digest, complete = marker.get("sourceSha256"), marker.get("complete")
    backup = marker.get("backupFile")
    if (
        whole_number(marker.get("schemaVersion")) == 1
        and whole_number(marker.get("sourceFormat")) == LEGACY_VERSION
        and isinstance(digest, str)
        and isinstance(complete, bool)
        and isinstance(backup, str)
    ):
        return Migration(source_sha256=digest, is_complete=complete, backup_file=backup)
    return None


def _given(name: str, value: str | None) -> dict[str, JsonValue]:
    return {} if value is None else {name: value}


def _others(members: JsonObject, reserved: tuple[str, ...]) -> dict[str, JsonValue]:
    return {name: value for name, value in members.items() if name not in reserved}


def _entry(members: dict[str, JsonValue], seq: int) -> Entry:
    entry_type = _text(members, "type")
    if entry_type not in ENTRY_TYPES:
        raise damaged("an entry of an unknown type")
    rest = _others(members, _ENTRY_MEMBERS)
    if (misfit := misfit_of_entry(entry_type, rest)) is not None:
        raise damaged(misfit)
    return Entry(
        seq=seq,
        entry_id=_text(members, "id"),
        entry_type=entry_type,
        parent_id=_text_or_null(members, "parentId"),
        timestamp=_number(members, "timestamp"),
        lane=_text(members, "lane") if "lane" in members else None,
        members=rest,
    )


def misfit_of_entry(entry_type: str, members: JsonObject) -> str | None:
    """Tell what a context could not be built from, None if it can."""
    match entry_type:
        case "message" if not isinstance(members.get("message"), dict):
            return "a message entry without a message"
        case "compaction" | "branch_summary" if not isinstance(members.get("summary"), str):
            return f"a {entry_type.replace('_', ' ')} without a summary"
        case "compaction" if not _is_messages(members.get("retainedTail", [])):
            return "a compaction whose retained tail is no list of messages"
        case "custom" if not isinstance(members.get("customType"), str):
            return "a custom entry without its type"
        case _:
            return None


def _is_messages(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _fact(members: dict[str, JsonValue], seq: int) -> NameFact | LabelFact:
    match members.get("fact"):
        case "name":
            name = _text(members, "name") if "name" in members else None
            return NameFact(seq=seq, name=name)
        case "label":
            label = _text(members, "label") if "label" in members else None
            return LabelFact(seq=seq, target_id=_text(members, "targetId"), label=label)
        case _:
            raise damaged("an unknown fact")


def _record(members: dict[str, JsonValue], seq: int) -> LaneRecord:
    record_type = _text(members, "type")
    if record_type not in RECORD_TYPES:
        raise damaged("a record of an unknown type")
    return LaneRecord(
        seq=seq,
        record_id=_text(members, "id"),
        record_type=record_type,
        timestamp=_number(members, "timestamp"),
        lane=_text(members, "lane"),
        members=_others(members, _RECORD_MEMBERS),
    )


def _object(value: JsonValue, what: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise damaged(f"{what} is no object")
    return value


def _text(members: dict[str, JsonValue], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise damaged(f"{name} is no text")
    return value


def _text_or_null(members: dict[str, JsonValue], name: str) -> str | None:
    value = members.get(name, 0)
    if not isinstance(value, str | None):
        raise damaged(f"{name} is neither text nor null")
    return value


def _number(members: dict[str, JsonValue], name: str, minimum: int = 0) -> int:
    value = whole_number(members.get(name))
    if value is None or not minimum <= value <= SAFE_INTEGER_MAX:
        raise damaged(f"{name} is no whole number in its range")
    return value
