"""What is to be said of one session, found out without changing anything.

It decides what of a session can be proven from its files. It refuses to mend, and to choose
words for people.
"""

import enum
import hashlib

import msgspec
from msgspec.structs import replace

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.files import SessionFiles
from runnerd.runs.sessions.layout import (
    Absent,
    Legacy,
    PublicFound,
    Versioned,
    continues,
    decide,
)
from runnerd.runs.sessions.legacy import LegacySession, convert, read_legacy
from runnerd.runs.sessions.log import SessionLog
from runnerd.runs.sessions.records import damaged
from runnerd.runs.sessions.tree import SessionTree


class Form(enum.StrEnum):
    """What the public name holds."""

    ABSENT = "absent"
    LEGACY = "legacy"
    VERSIONED = "versioned"
    NEITHER = "neither"


class Outlook(enum.StrEnum):
    """What opening the session would do."""

    OPEN = "open"
    MEND = "mend"
    MIGRATE = "migrate"
    REFUSE = "refuse"


class BackupState(enum.StrEnum):
    """What lies beside a session that was made from a legacy file."""

    NONE = "none"
    SOURCE = "source"
    """Byte for byte the file that the session was or would be made from."""
    OTHER = "other"


class SessionAccount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session."""

    session_id: str
    form: Form
    versions: int
    """Files with a versioned name."""
    backup: BackupState
    outlook: Outlook
    cwd: str | None = None
    name: str | None = None
    messages: int | None = None
    """Of the conversation as it would be shown."""
    entries: int | None = None
    """On all branches."""
    seq: int | None = None
    bytes: int | None = None
    migrated: bool = False
    code: ErrorCode | None = None
    """Why opening is refused, or what is not as it should be."""
    words: str = ""


def account_of(files: SessionFiles, session_id: str) -> SessionAccount:
    """Return what there is to say of a session.

    The code of the account is the one with which opening would be refused, or
    ``session_migration_conflict`` for a session whose backup is not what it was made from
    or holds what the session lacks. Raises PrpError ``session_restore_failed`` if the disk
    does not tell.
    """
    public, versions = files.survey(session_id)
    backup = files.backup(session_id)
    account = SessionAccount(
        session_id=session_id,
        form=_form(public),
        versions=len(versions),
        backup=BackupState.NONE if backup is None else BackupState.OTHER,
        outlook=Outlook.REFUSE,
    )
    try:
        plan = decide(public, versions)
        if plan.legacy is not None:
            return _of_legacy(account, plan.legacy, backup)
        if plan.log is None:
            raise damaged("there is no such session")
        outlook = Outlook.OPEN if plan.is_settled else Outlook.MEND
        return _of_versioned(replace(account, outlook=outlook), plan.log, backup)
    except PrpError as error:
        return replace(account, code=error.code, words=error.message)


def _of_legacy(
    account: SessionAccount, legacy: LegacySession, backup: bytes | None
) -> SessionAccount:
    if backup is not None and backup != legacy.source:
        reason = "the backup is not a copy of the public file"
        raise PrpError(ErrorCode.SESSION_MIGRATION_CONFLICT, reason)
    tree = SessionTree()
    for mutation in convert(legacy):
        tree.apply(mutation)
    return replace(
        _counted(account, tree),
        outlook=Outlook.MIGRATE,
        backup=account.backup if backup is None else BackupState.SOURCE,
        cwd=legacy.cwd,
        bytes=len(legacy.source),
    )


def _of_versioned(account: SessionAccount, log: SessionLog, backup: bytes | None) -> SessionAccount:
    found = replace(_counted(account, log.tree()), cwd=log.header.cwd, bytes=len(log.content))
    migration = log.header.migration
    if migration is None:
        return found
    found = replace(found, migrated=True)
    if backup is None:
        return replace(found, words="the backup of its legacy file is gone")
    if hashlib.sha256(backup).hexdigest() != migration.source_sha256:
        return _misfit(found, "the backup is not what the session was made from")
    found = replace(found, backup=BackupState.SOURCE)
    try:
        is_kept = continues(log, convert(read_legacy(backup, log.header.session_id)))
    except PrpError as error:
        return _misfit(found, f"the backup: {error.message}")
    return found if is_kept else _misfit(found, "the session lacks what its backup holds")


def _counted(account: SessionAccount, tree: SessionTree) -> SessionAccount:
    return replace(
        account,
        name=tree.name,
        messages=len(tree.messages()),
        entries=tree.entry_count,
        seq=tree.seq,
    )


def _misfit(account: SessionAccount, words: str) -> SessionAccount:
    return replace(account, code=ErrorCode.SESSION_MIGRATION_CONFLICT, words=words)


def _form(public: PublicFound) -> Form:
    match public:
        case Absent():
            return Form.ABSENT
        case Versioned():
            return Form.VERSIONED
        case Legacy():
            is_legacy = isinstance(public.session, LegacySession)
            return Form.LEGACY if is_legacy else Form.NEITHER
