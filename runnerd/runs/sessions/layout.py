"""Where a session lies, and what opening it must do with what is found there.

It decides names, and from two names' contents the one thing to do or the refusal. It
refuses to touch a disk.

    <folder>/<id>.jsonl                        the public name, the one that others know
    <folder>/--<directory>--/<time>_<id>.jsonl the versioned name, a hard link to the same file

Both names are kept, as the original has them: a public name that was lost or replaced is
given back from the versioned one. But neither depends on the link. A copied folder has two
files with one content; a stopped publication leaves one file that continues the other. As a
session only grows, the longer one then holds all of both and gets both names. Two files of
which neither continues the other are a conflict for a person, and nothing is changed.

    public / versioned   none       whole          incomplete     damaged    several
    absent               create     open           conflict       damaged    conflict
    legacy               migrate    open if made   migrate if     conflict   conflict
                                    from this      begun so
    versioned            open       open if one    conflict       conflict   open if one is
                                    continues                                the same file
    damaged              damaged    conflict       conflict       conflict   damaged if one is
    neither              invalid    conflict       conflict       conflict   conflict
"""

import enum
from typing import Final, TypeAlias

import msgspec

from protocol.base.clock import UnixMs
from protocol.errors import ErrorCode, PrpError
from protocol.timestamps import rfc3339_ms
from runnerd.runs.sessions.legacy import LegacySession, convert
from runnerd.runs.sessions.log import SessionLog
from runnerd.runs.sessions.records import (
    Entry,
    Header,
    LaneRecord,
    Migration,
    Mutation,
    check_session_id,
)

SUFFIX: Final = ".jsonl"
BACKUP_SUFFIX: Final = ".v3.backup"

Identity: TypeAlias = tuple[int, int]


class Place(msgspec.Struct, frozen=True):
    """A versioned name: a folder below the sessions' folder, and a name in it."""

    folder: str
    name: str


class Absent(msgspec.Struct, frozen=True):
    """Nothing has the name."""


class Legacy(msgspec.Struct, frozen=True):
    """A legacy session, or the reason why it is none."""

    session: LegacySession | PrpError


class Versioned(msgspec.Struct, frozen=True):
    """A versioned session, or the reason why it cannot be read back."""

    identity: Identity
    log: SessionLog | PrpError


PublicFound: TypeAlias = Absent | Legacy | Versioned


class VersionFound(msgspec.Struct, frozen=True):
    """What a versioned name holds."""

    place: Place
    found: Versioned


class Step(enum.Enum):
    """What opening a session must do."""

    CREATE = "create"
    OPEN = "open"
    MIGRATE = "migrate"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The step, with what it needs."""

    step: Step
    place: Place | None = None
    """The versioned name that is there already."""
    log: SessionLog | None = None
    """To open, or the begun target of a migration."""
    legacy: LegacySession | None = None
    """To migrate."""
    is_settled: bool = False
    """To open, and nothing has to be changed on the disk."""


def public_name(session_id: str) -> str:
    """Return the name under which others know a session."""
    return session_id + SUFFIX


def backup_name(session_id: str) -> str:
    """Return the name of the byte for byte copy of a legacy file."""
    return public_name(session_id) + BACKUP_SUFFIX


def place_of(header: Header) -> Place:
    """Return the versioned name of a session."""
    directory = header.cwd[1:] if header.cwd[:1] in ("/", "\\") else header.cwd
    for separator in "/\\:":
        directory = directory.replace(separator, "-")
    try:
        time = rfc3339_ms(UnixMs(header.created_at))
    except ValueError:
        time = str(header.created_at)
    time = time.replace(":", "-").replace(".", "-")
    return Place(f"--{directory}--", f"{time}_{public_name(header.session_id)}")


def is_version_folder(name: str) -> bool:
    """Tell whether a name is that of a folder with versioned names."""
    return name.startswith("--") and name.endswith("--") and len(name) >= len("----")


def session_of_version(name: str) -> str | None:
    """Return whose versioned name it is, None if it is none."""
    _, separator, rest = name.partition("_")
    return _session_of(rest) if separator else None


def session_of_public(name: str) -> str | None:
    """Return whose public name it is, None if it is none."""
    return _session_of(name)


def decide(public: PublicFound, versions: tuple[VersionFound, ...]) -> Plan:
    """Return what opening a session must do; the table stands above.

    Raises PrpError: ``session_layout_conflict`` where only a person can tell what is
    right, ``session_restore_failed`` for a damaged file, ``session_migration_invalid``
    for a public file that is no session.

    Source: durable-runs 7, 10.1 and 10.10.
    """
    same = [version for version in versions if _is_same(public, version)]
    if len(versions) > 1 and not same:
        raise _conflict("several versioned files have this id")
    version = next(iter(same or versions), None)
    match public:
        case Absent():
            return _without_public(version)
        case Legacy():
            return _from_legacy(public, version)
        case Versioned():
            return _from_versioned(public, version)


def continues(log: SessionLog, mutations: list[Mutation]) -> bool:
    """Tell whether a session begins with what mutations of a migration made."""
    made = log.mutations[: len(mutations)]
    return [_shape(one) for one in made] == [_shape(one) for one in mutations]


def _without_public(version: VersionFound | None) -> Plan:
    if version is None:
        return Plan(step=Step.CREATE)
    log = _whole(version.found)
    if _migration(log) is not None:
        raise _conflict("a migration was begun and its source is gone: put the backup back")
    return Plan(step=Step.OPEN, place=version.place, log=log)


def _from_legacy(public: Legacy, version: VersionFound | None) -> Plan:
    legacy = public.session
    if version is None:
        if isinstance(legacy, PrpError):
            raise legacy
        return Plan(step=Step.MIGRATE, legacy=legacy)
    log = version.found.log
    if isinstance(legacy, PrpError) or isinstance(log, PrpError):
        raise _conflict("the public file and the versioned one do not belong together")
    migration = log.header.migration
    if migration is None or migration.source_sha256 != legacy.sha256:
        raise _conflict("the versioned file was not made from the public one")
    if not migration.is_complete:
        return Plan(step=Step.MIGRATE, place=version.place, log=log, legacy=legacy)
    try:
        is_made = continues(log, convert(legacy))
    except PrpError:
        is_made = False
    if not is_made:
        raise _conflict("the versioned file lacks what the public one holds")
    return Plan(step=Step.OPEN, place=version.place, log=log)


def _from_versioned(public: Versioned, version: VersionFound | None) -> Plan:
    if version is None or _is_same(public, version):
        log = _whole(public)
        if _migration(log) is not None:
            raise _conflict("the public file is an unfinished migration: put the backup back")
        if version is None:
            return Plan(step=Step.OPEN, log=log)
        is_settled = not log.needs_mending
        return Plan(step=Step.OPEN, place=version.place, log=log, is_settled=is_settled)
    one, other = public.log, version.found.log
    if isinstance(one, PrpError) or isinstance(other, PrpError):
        raise _conflict("the public file and the versioned one differ, and one is damaged")
    longer, shorter = (one, other) if len(one.content) > len(other.content) else (other, one)
    if not longer.content.startswith(shorter.content) or _migration(longer) is not None:
        raise _conflict("neither the public file nor the versioned one continues the other")
    return Plan(step=Step.OPEN, place=version.place, log=longer)


def _is_same(public: PublicFound, version: VersionFound) -> bool:
    return isinstance(public, Versioned) and public.identity == version.found.identity


def _whole(found: Versioned) -> SessionLog:
    if isinstance(found.log, PrpError):
        raise found.log
    return found.log


def _migration(log: SessionLog) -> Migration | None:
    """Return the marker of a migration that is not complete."""
    migration = log.header.migration
    return None if migration is None or migration.is_complete else migration


def _shape(mutation: Mutation) -> tuple[object, ...]:
    match mutation:
        case Entry():
            return (mutation.seq, mutation.entry_type, mutation.entry_id, mutation.parent_id)
        case LaneRecord():
            return (mutation.seq, mutation.record_type, mutation.record_id)
        case _:
            return (mutation,)


def _session_of(name: str) -> str | None:
    session_id = name.removesuffix(SUFFIX)
    if session_id == name:
        return None
    try:
        check_session_id(session_id)
    except PrpError:
        return None
    return session_id


def _conflict(reason: str) -> PrpError:
    return PrpError(ErrorCode.SESSION_LAYOUT_CONFLICT, reason)
