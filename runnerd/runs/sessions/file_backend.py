"""Sessions in a folder: opened, migrated, given back their names, and written by one.

It decides which locks are held while a plan is carried out. It refuses to make plans (that
is `layout`), and never removes a session.
"""

import msgspec

from protocol.base.clock import UnixMs
from protocol.base.ports import Entropy, Filesystem
from protocol.errors import ErrorCode, PrpError
from protocol.limits import SESSION_OPEN_TIMEOUT_MS
from runnerd.runs.run_lock import HeldLock, RunLocks
from runnerd.runs.sessions.backend import Opened, Opening
from runnerd.runs.sessions.file_lease import FileLease
from runnerd.runs.sessions.files import SessionFiles
from runnerd.runs.sessions.layout import Place, Plan, Step, decide, place_of
from runnerd.runs.sessions.locks import SessionLocks
from runnerd.runs.sessions.log import Marking, SessionLog, SessionMark, encode_session
from runnerd.runs.sessions.migration import migrate
from runnerd.runs.sessions.records import Header, check_session_id, damaged


class _Written(msgspec.Struct, frozen=True):
    """Where this process wrote last, so that the next lease need not read the session."""

    session_id: str
    place: Place
    lease: FileLease


class FileSessions:
    """The sessions of one folder. One thread at a time may use an instance.

    Nothing is created before a session is opened. A failed sync of a folder ends what this
    instance may change in it.
    """

    def __init__(
        self,
        fs: Filesystem,
        entropy: Entropy,
        locks: RunLocks,
        folder: str,
        *,
        open_timeout_ms: int = SESSION_OPEN_TIMEOUT_MS,
    ) -> None:
        self._fs = fs
        self._entropy = entropy
        self._path = folder
        self._locks = SessionLocks(fs, locks, open_timeout_ms)
        self._files: SessionFiles | None = None
        self._written: _Written | None = None

    def list_sessions(self) -> list[str]:
        """Return the ids of all sessions of the folder, sorted; nothing is changed.

        Raises PrpError ``session_restore_failed`` if the disk does not tell.
        """
        files = SessionFiles.for_reading(self._fs, self._entropy, self._path)
        if files is None:
            return []
        try:
            return files.list_sessions()
        finally:
            files.close()

    def exists(self, session_id: str) -> bool:
        """Tell whether a session has a name, whatever it holds; nothing is changed."""
        check_session_id(session_id)
        files = SessionFiles.for_reading(self._fs, self._entropy, self._path)
        if files is None:
            return False
        try:
            return files.has(session_id)
        finally:
            files.close()

    def open(self, session_id: str, cwd: str | None, now: UnixMs) -> Opened:
        """Return a session: made, opened, mended, or migrated from its legacy file.

        Args:
            cwd: working directory of a session that is made or migrated here; None keeps
                that of a legacy file, and makes no session.

        Returns:
            The session, under both names. Or raises PrpError, and the public name holds
            what it held: ``invalid_session_id``; ``session_open_locked``,
            ``session_write_locked``, ``session_lock_recovery_required``, ``state_unsafe``;
            what `decide` and `migrate` raise; ``storage_write_failed`` or
            ``session_alias_failed`` for a disk that refused. After
            ``durability_barrier_failed`` the old or the new file may be found, and
            opening again, by a new instance, converges.

        Source: durable-runs 7.
        """
        check_session_id(session_id)
        files = self._opened()
        lock = self._locks.lock_open(files.folder.directory, session_id)
        try:
            plan = decide(*files.survey(session_id))
            if plan.is_settled:
                return Opened(_log(plan), Opening.OPENED)
            try:
                return self._settle(files, session_id, cwd, now)
            except PrpError as error:
                if error.code is not ErrorCode.SESSION_WRITE_LOCKED or plan.step is not Step.OPEN:
                    raise
                # Its writer is about to complete what looks unfinished.
                return Opened(_log(plan), Opening.OPENED)
        finally:
            lock.release()

    def lease(self, session_id: str, seen: SessionMark) -> FileLease:
        """Become the one writer of a session that is still what was ``seen``.

        What a dead writer left may count as written without being on the disk, so it is
        published anew before anything is added to it (R4, faults S09).

        Raises PrpError ``session_write_locked``, ``session_lock_recovery_required``,
        ``session_snapshot_stale``, and what `open` raises.
        """
        check_session_id(session_id)
        files = self._opened()
        lock = self._locks.lock_write(files.folder.directory, session_id)
        try:
            lease = self._continued(files, session_id, seen, lock)
            if lease is None:
                lease = self._begun(files, session_id, seen, lock)
        except BaseException:
            lock.release()
            raise
        return lease

    def close(self) -> None:
        """Let go of the folder; leases stay what they are."""
        self._written = None
        if self._files is not None:
            self._files.close()
            self._files = None

    def _opened(self) -> SessionFiles:
        if self._files is None:
            self._files = SessionFiles.for_writing(self._fs, self._entropy, self._path)
        return self._files

    def _settle(self, files: SessionFiles, session_id: str, cwd: str | None, now: UnixMs) -> Opened:
        lock = self._locks.lock_write(files.folder.directory, session_id)
        try:
            return _settle(files, session_id, cwd, now)
        finally:
            lock.release()

    def _continued(
        self, files: SessionFiles, session_id: str, seen: SessionMark, lock: HeldLock
    ) -> FileLease | None:
        """Go on where this process stopped, if nobody touched the file since."""
        last = self._written
        if last is None or last.session_id != session_id or last.lease.mark != seen:
            return None
        status = last.lease.left
        if status is None or not files.is_one_file(session_id, last.place, status):
            return None
        return self._leased(files, session_id, last.place, last.lease.marking, lock)

    def _begun(
        self, files: SessionFiles, session_id: str, seen: SessionMark, lock: HeldLock
    ) -> FileLease:
        plan = decide(*files.survey(session_id))
        if plan.step is not Step.OPEN or _log(plan).mark != seen:
            raise PrpError(ErrorCode.SESSION_SNAPSHOT_STALE, "open the session again")
        log = _log(plan)
        place = plan.place or place_of(log.header)
        _publish(files, session_id, place, log.content)
        return self._leased(files, session_id, place, Marking(log.content), lock)

    def _leased(
        self,
        files: SessionFiles,
        session_id: str,
        place: Place,
        marking: Marking,
        lock: HeldLock,
    ) -> FileLease:
        def publish(content: bytes) -> None:
            _publish(files, session_id, place, content)

        lease = FileLease(files.version_folder(place), place.name, marking, publish, lock)
        self._written = _Written(session_id, place, lease)
        return lease


def _settle(files: SessionFiles, session_id: str, cwd: str | None, now: UnixMs) -> Opened:
    """Do what is to be done, and read what came of it."""
    plan = decide(*files.survey(session_id))
    if plan.is_settled:
        return Opened(_log(plan), Opening.OPENED)
    opening = Opening.MENDED
    match plan.step:
        case Step.CREATE:
            if cwd is None:
                raise damaged("there is no such session")
            header = Header(session_id=session_id, created_at=now, cwd=cwd)
            _publish(files, session_id, place_of(header), encode_session(header, ()))
            opening = Opening.CREATED
        case Step.MIGRATE:
            migrate(files, session_id, plan, cwd, now)
            opening = Opening.MIGRATED
        case Step.OPEN:
            log = _log(plan)
            _publish(files, session_id, plan.place or place_of(log.header), log.content)
    found = decide(*files.survey(session_id))
    if not found.is_settled:
        raise PrpError(ErrorCode.SESSION_ALIAS_FAILED, "the names are not what was published")
    return Opened(_log(found), opening)


def _publish(files: SessionFiles, session_id: str, place: Place, content: bytes) -> None:
    """Make a content durable, under the public name last."""
    files.publish_version(place, content, ErrorCode.STORAGE_WRITE_FAILED)
    files.publish_alias(place, session_id)


def _log(plan: Plan) -> SessionLog:
    assert plan.log is not None, "what is opened was read"
    return plan.log
