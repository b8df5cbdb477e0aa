"""Who may open and who may write a session: kernel locks, and a look at the original's.

It decides who waits and who is refused. It refuses to remove a lock that it did not take:
a kernel lock ends with its holder, and a lock file of the original is for a person.

    .<id>.open.lock  .<id>.write.lock              ours: permanent, under a kernel lock (R9)
    <id>.jsonl.open.lock  <id>.jsonl.write.lock    the original's
"""

import enum
from typing import Final

from protocol.base.ports import Filesystem
from protocol.errors import ErrorCode, PrpError
from protocol.limits import SESSION_OPEN_TIMEOUT_MS
from runnerd.runs.run_file import failures_as
from runnerd.runs.run_lock import HeldLock, RunLocks, read_foreign_lock

ADVICE: Final = "prove that nobody uses the session, back up lock and session, remove the lock"


class LockKind(enum.StrEnum):
    """What a lock is for."""

    OPEN = "open"
    WRITE = "write"


class SessionLocks:
    """The locks of the sessions in one folder."""

    def __init__(
        self, fs: Filesystem, locks: RunLocks, open_timeout_ms: int = SESSION_OPEN_TIMEOUT_MS
    ) -> None:
        self._fs = fs
        self._locks = locks
        self._open_timeout_ms = open_timeout_ms

    def lock_open(self, directory: int, session_id: str) -> HeldLock:
        """Become the only one who opens a session, for a short time.

        Raises PrpError ``session_open_locked`` after a bounded wait,
        ``session_lock_recovery_required`` for a lock of the original that nobody living
        has, ``state_unsafe`` if our lock file is not a private file.
        """
        held: list[HeldLock] = []

        def is_ours() -> bool:
            held[:] = filter(None, [self._try(directory, session_id, LockKind.OPEN)])
            return bool(held)

        if not self._locks.wait(is_ours, self._open_timeout_ms):
            raise _busy(LockKind.OPEN)
        [lock] = held
        return self._beside_the_original(directory, session_id, LockKind.OPEN, lock)

    def lock_write(self, directory: int, session_id: str) -> HeldLock:
        """Become the one writer of a session, without waiting.

        Raises PrpError ``session_write_locked``; the others as `lock_open`.
        """
        lock = self._try(directory, session_id, LockKind.WRITE)
        if lock is None:
            raise _busy(LockKind.WRITE)
        return self._beside_the_original(directory, session_id, LockKind.WRITE, lock)

    def _try(self, directory: int, session_id: str, kind: LockKind) -> HeldLock | None:
        try:
            return self._locks.try_lock(directory, f".{session_id}.{kind}.lock")
        except PrpError as error:
            if error.code is not ErrorCode.STATE_LOCKED:
                raise
            return None

    def _beside_the_original(
        self, directory: int, session_id: str, kind: LockKind, lock: HeldLock
    ) -> HeldLock:
        try:
            self._refuse_foreign(directory, session_id, kind)
        except BaseException:
            lock.release()
            raise
        return lock

    def _refuse_foreign(self, directory: int, session_id: str, kind: LockKind) -> None:
        name = f"{session_id}.jsonl.{kind}.lock"

        def is_decided() -> bool:
            found = read_foreign_lock(self._fs, directory, name)
            return found is None or not found.may_end(self._locks)

        timeout_ms = self._open_timeout_ms if kind is LockKind.OPEN else 0
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            if not self._locks.wait(is_decided, timeout_ms):
                raise _busy(kind)
            if read_foreign_lock(self._fs, directory, name) is not None:
                reason = f"{name} has no living owner: {ADVICE}"
                raise PrpError(ErrorCode.SESSION_LOCK_RECOVERY_REQUIRED, reason)


def is_lock_name(name: str, session_id: str) -> bool:
    """Tell whether a name is that of a lock of a session, ours or the original's."""
    return any(
        name in (f".{session_id}.{kind}.lock", f"{session_id}.jsonl.{kind}.lock")
        for kind in LockKind
    )


def _busy(kind: LockKind) -> PrpError:
    if kind is LockKind.OPEN:
        return PrpError(ErrorCode.SESSION_OPEN_LOCKED, "another process opens the session")
    return PrpError(ErrorCode.SESSION_WRITE_LOCKED, "another process writes the session")
