"""The files of a sessions' folder: what two names hold, and how they come to hold more.

It decides in which order a session becomes durable under both of its names. It refuses to
know what should be written, and who may write.

    versioned name:  sibling ─▶ write ─▶ sync ─▶ rename ─▶ sync its folder
    public name:     second name for that file ─▶ rename ─▶ sync the folder

The public name is replaced by one rename, so there is no moment without it.
"""

import errno
from typing import Final

from protocol.base.ports import Entropy, FileStatus, Filesystem
from protocol.base.private_directory import (
    UNSAFE_ERRNOS,
    close_quietly,
    open_private_directory,
    reason_of,
)
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_READ_BYTES, SESSION_BYTES_MAX, SESSIONS_LISTED_MAX
from runnerd.runs.run_file import RunFolder, failures_as
from runnerd.runs.sessions.layout import (
    BACKUP_SUFFIX,
    Absent,
    Legacy,
    Place,
    PublicFound,
    Versioned,
    VersionFound,
    backup_name,
    is_version_folder,
    public_name,
    session_of_public,
    session_of_version,
)
from runnerd.runs.sessions.legacy import LegacySession, read_legacy
from runnerd.runs.sessions.locks import is_lock_name
from runnerd.runs.sessions.log import SessionLog, looks_versioned, scan
from runnerd.runs.sessions.records import damaged

_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR)
_TEMP_SUFFIX: Final = ".tmp"


class SessionFiles:
    """An open folder of sessions. One thread at a time may use an instance.

    A folder whose sync failed takes no more changes through this instance (R4).
    """

    def __init__(self, fs: Filesystem, entropy: Entropy, path: str, directory: int) -> None:
        self.fs = fs
        self._entropy = entropy
        self._path = path
        self.folder = RunFolder(fs, entropy, directory)
        self._below: dict[str, RunFolder] = {}

    @classmethod
    def for_writing(cls, fs: Filesystem, entropy: Entropy, path: str) -> "SessionFiles":
        """Open a folder, made if it is absent and kept for this user alone.

        Raises what `open_private_directory` raises.
        """
        return cls(fs, entropy, path, open_private_directory(fs, path, _is_of_a_session))

    @classmethod
    def for_reading(cls, fs: Filesystem, entropy: Entropy, path: str) -> "SessionFiles | None":
        """Open a folder as it is, None if there is none; raises ``session_restore_failed``."""
        try:
            return cls(fs, entropy, path, fs.open_directory(path))
        except OSError as error:
            if error.errno in _NO_FOLDER:
                return None
            raise damaged(reason_of(error)) from error
        except ValueError:
            return None

    def close(self) -> None:
        """Let go of every folder."""
        for folder in (*self._below.values(), self.folder):
            close_quietly(self.fs, folder.directory)
        self._below.clear()

    def list_sessions(self) -> list[str]:
        """Return the ids of all sessions that have a public or a versioned name, sorted."""
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            found = [session_of_public(name) for name in self._names(self.folder)]
            found += [session_of_version(place.name) for place in self._places()]
        return sorted(dict.fromkeys(name for name in found if name is not None))

    def has(self, session_id: str) -> bool:
        """Tell whether a session has a name, whatever it holds."""
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            return self.folder.status(public_name(session_id)) is not None or bool(
                self._places_of(session_id)
            )

    def survey(self, session_id: str) -> tuple[PublicFound, tuple[VersionFound, ...]]:
        """Return what the names of a session hold, without changing anything.

        Raises PrpError ``session_restore_failed`` if the disk does not tell.
        """
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            places = self._places_of(session_id)
            versions = tuple(self._version(place, session_id) for place in places)
            return self._public(session_id, versions), versions

    def is_one_file(self, session_id: str, place: Place, status: FileStatus) -> bool:
        """Tell whether both names of a session are the file that has this status."""
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            versioned = self._opened(place.folder, is_made=False).status(place.name)
            return versioned == status == self.folder.status(public_name(session_id))

    def backup(self, session_id: str) -> bytes | None:
        """Return the backup of a legacy file; raises ``session_restore_failed``."""
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            name = backup_name(session_id)
            return None if self.folder.status(name) is None else _content(self.folder, name)[1]

    def write_backup(self, session_id: str, source: bytes) -> None:
        """Keep a legacy file byte for byte, and look at what was kept.

        Raises PrpError ``session_migration_conflict`` if another backup is there,
        ``session_migration_failed`` or ``durability_barrier_failed``.
        """
        known = self.backup(session_id)
        if known is not None and known != source:
            reason = "the backup is not a copy of the public file"
            raise PrpError(ErrorCode.SESSION_MIGRATION_CONFLICT, reason)
        with failures_as(ErrorCode.SESSION_MIGRATION_FAILED):
            # Also if it is there: whoever wrote it may have died before it was durable.
            self._publish(self.folder, backup_name(session_id), source)
        if self.backup(session_id) != source:
            raise PrpError(ErrorCode.SESSION_MIGRATION_FAILED, "the backup is not what was written")

    def publish_version(self, place: Place, content: bytes, failure: ErrorCode) -> None:
        """Make a content durable under the versioned name.

        Raises PrpError with the code ``failure`` if the old file surely stands,
        ``durability_barrier_failed`` if either may be found.
        """
        if len(content) > SESSION_BYTES_MAX:
            raise PrpError(failure, "larger than a reader accepts")
        with failures_as(failure):
            folder = self._opened(place.folder, is_made=True)
            self._publish(folder, place.name, content)

    def publish_alias(self, place: Place, session_id: str) -> None:
        """Make the public name a second name of the versioned file, in place of what has it.

        Raises PrpError ``session_alias_failed`` if the old file surely stands,
        ``durability_barrier_failed`` if either may be found.
        """
        public = public_name(session_id)
        with failures_as(ErrorCode.SESSION_ALIAS_FAILED):
            self.folder.remove_leftovers(public, backup_name(session_id))
            source = self._opened(place.folder, is_made=False)
            temp = self.folder.sibling_name(public)
            self.fs.link_into(source.directory, place.name, self.folder.directory, temp)
            self.folder.put_in_place(temp, public)

    def version_folder(self, place: Place) -> RunFolder:
        """Return the open folder of a versioned file that is there."""
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            return self._opened(place.folder, is_made=False)

    def _publish(self, folder: RunFolder, name: str, content: bytes) -> None:
        folder.remove_leftovers(name)
        folder.publish(name, (content,))

    def _public(self, session_id: str, versions: tuple[VersionFound, ...]) -> PublicFound:
        name = public_name(session_id)
        status = self.folder.status(name)
        if status is None:
            return Absent()
        for version in versions:
            if version.found.identity == status.identity:
                return version.found
        status, data = _content(self.folder, name)
        if looks_versioned(data):
            return Versioned(status.identity, _scanned(data, session_id))
        return Legacy(_legacy(data, session_id))

    def _version(self, place: Place, session_id: str) -> VersionFound:
        status, data = _content(self._opened(place.folder, is_made=False), place.name)
        return VersionFound(place, Versioned(status.identity, _scanned(data, session_id)))

    def _places_of(self, session_id: str) -> list[Place]:
        return [place for place in self._places() if session_of_version(place.name) == session_id]

    def _places(self) -> list[Place]:
        return [
            Place(folder, name)
            for folder in sorted(filter(is_version_folder, self._names(self.folder)))
            if self._is_directory(folder)
            for name in sorted(self._names(self._opened(folder, is_made=False)))
            if session_of_version(name) is not None
        ]

    def _is_directory(self, name: str) -> bool:
        status = self.folder.status(name)
        return status is not None and status.is_directory

    def _names(self, folder: RunFolder) -> list[str]:
        names = self.fs.list_directory(folder.directory, SESSIONS_LISTED_MAX + 1)
        if len(names) > SESSIONS_LISTED_MAX:
            raise damaged("more names than one listing looks at")
        return names

    def _opened(self, name: str, *, is_made: bool) -> RunFolder:
        if name not in self._below:
            if is_made:
                path = f"{self._path}/{name}"
                directory = open_private_directory(self.fs, path, _is_version)
            else:
                directory = self.fs.open_directory_in(self.folder.directory, name)
            self._below[name] = RunFolder(self.fs, self._entropy, directory)
        return self._below[name]


def _content(folder: RunFolder, name: str) -> tuple[FileStatus, bytes]:
    """Return a file's bytes, with the status that it had when they were read."""
    descriptor = _open(folder, name)
    try:
        status = folder.fs.fstat(descriptor)
        if not status.is_regular:
            raise damaged(f"{name} is not a regular file")
        parts, size = list[bytes](), 0
        while data := folder.fs.read(descriptor, RUN_READ_BYTES):
            parts.append(data)
            size += len(data)
            if size > SESSION_BYTES_MAX:
                raise damaged(f"{name} is larger than {SESSION_BYTES_MAX} bytes")
        return status, b"".join(parts)
    finally:
        close_quietly(folder.fs, descriptor)


def _open(folder: RunFolder, name: str) -> int:
    try:
        return folder.fs.open_read(folder.directory, name)
    except OSError as error:
        if error.errno in UNSAFE_ERRNOS:
            raise damaged(f"{name}: {reason_of(error)}") from error
        raise


def _scanned(data: bytes, session_id: str) -> SessionLog | PrpError:
    try:
        return scan(data, session_id)
    except PrpError as error:
        return error


def _legacy(data: bytes, session_id: str) -> LegacySession | PrpError:
    try:
        return read_legacy(data, session_id)
    except PrpError as error:
        return error


def _is_of_a_session(name: str) -> bool:
    """Tell whether a file or folder of sessions, ours or the original's, has the name."""
    if is_version_folder(name):
        return True
    stem = name.removeprefix(".").partition(".")[0]
    is_file = name.removeprefix(".").startswith(public_name(stem))
    return is_lock_name(name, stem) or (
        session_of_public(public_name(stem)) is not None
        and is_file
        and name.endswith((public_name(stem), BACKUP_SUFFIX, _TEMP_SUFFIX, ".alias"))
    )


def _is_version(name: str) -> bool:
    return session_of_version(name) is not None
