"""The way from a legacy file to a versioned one, in steps that each leave the source whole.

It decides the order of the steps and what the target's header says. It refuses to know who
else is at work: the caller holds both locks of the session.

    backup ─▶ marker "incomplete" ─▶ convert ─▶ versioned file, marker "complete"
           ─▶ found by listing and read again ─▶ public name, last

A file whose lines do not hang together is refused before any of this, and leaves nothing.
One that only the versioned form cannot hold leaves its backup and the incomplete marker: a
later version may go on from there. The legacy file is never written, only its name is given
to the target at the end, by one rename.
"""

import msgspec

from protocol.base.clock import UnixMs
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.files import SessionFiles
from runnerd.runs.sessions.layout import Place, Plan, backup_name, place_of
from runnerd.runs.sessions.legacy import LegacySession, convert
from runnerd.runs.sessions.log import SessionLog, encode_session
from runnerd.runs.sessions.records import Header, Migration, with_migration


def migrate(files: SessionFiles, session_id: str, plan: Plan, cwd: str | None, now: UnixMs) -> None:
    """Make the versioned session of a legacy file, and give it the public name.

    Args:
        plan: a migration, new or begun.
        cwd: working directory of the session; None keeps that of the legacy file.

    Raises:
        PrpError: ``session_migration_conflict`` if another backup is there;
            ``session_migration_unsupported`` or ``session_migration_invalid`` for what
            cannot be converted; ``session_migration_failed`` or ``session_alias_failed``
            for a disk that refused; ``durability_barrier_failed`` if a published file may
            not be found again. The public name then holds the legacy file, except after
            the last one, when either may be found.

    Source: durable-runs 7, recovery SOP 4.
    """
    assert plan.legacy is not None, "a migration has a source"
    legacy = plan.legacy
    files.write_backup(session_id, legacy.source)
    header = _header(session_id, legacy, plan.log, cwd, now)
    place = plan.place or place_of(header)
    if plan.place is None:
        content = encode_session(_marked(header, legacy, is_complete=False), ())
        files.publish_version(place, content, ErrorCode.SESSION_MIGRATION_FAILED)
    content = encode_session(_marked(header, legacy, is_complete=True), convert(legacy))
    files.publish_version(place, content, ErrorCode.SESSION_MIGRATION_FAILED)
    _check_target(files, session_id, place, content)
    files.publish_alias(place, session_id)


def _header(
    session_id: str,
    legacy: LegacySession,
    begun: SessionLog | None,
    cwd: str | None,
    now: UnixMs,
) -> Header:
    """Return the header of the target, still without its marker."""
    created_at: int = now if legacy.created_at is None else legacy.created_at
    directory = legacy.cwd if cwd is None else cwd
    if begun is not None:
        created_at, directory = begun.header.created_at, begun.header.cwd
    return Header(
        session_id=session_id,
        created_at=created_at,
        cwd=directory,
        legacy_parent_session_path=legacy.parent_session,
        metadata=legacy.metadata,
    )


def _marked(header: Header, legacy: LegacySession, *, is_complete: bool) -> Header:
    migration = Migration(
        source_sha256=legacy.sha256,
        is_complete=is_complete,
        backup_file=backup_name(header.session_id),
    )
    return msgspec.structs.replace(header, metadata=with_migration(header.metadata, migration))


def _check_target(files: SessionFiles, session_id: str, place: Place, content: bytes) -> None:
    """Find the target by listing and read it back, before the public name depends on it."""
    _, versions = files.survey(session_id)
    for version in versions:
        log = version.found.log
        if version.place == place and isinstance(log, SessionLog) and log.content == content:
            return
    reason = "the versioned file is not what was written"
    raise PrpError(ErrorCode.SESSION_MIGRATION_FAILED, reason)
