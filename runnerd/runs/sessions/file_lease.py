"""The one writer of a session's file: append, sync, and take back what did not become durable.

It decides when lines count as written. It refuses to know what they mean, and never reports
success for lines that the next reader may not find.
"""

from collections.abc import Callable

from protocol.base.ports import FileStatus
from protocol.base.private_directory import close_quietly, reason_of
from protocol.errors import ErrorCode, PrpError
from protocol.limits import SESSION_BYTES_MAX
from runnerd.runs.run_file import RunFolder, failures_as
from runnerd.runs.run_lock import HeldLock
from runnerd.runs.sessions.log import Marking, SessionMark, mark_of


class FileLease:
    """The right to write one session; its lock is held until `close`.

    Args:
        marking: of what the file holds, which is durable under both names.
        publish: makes a content durable under both names.
        lock: released by `close`.
    """

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        marking: Marking,
        publish: Callable[[bytes], None],
        lock: HeldLock,
    ) -> None:
        self._folder = folder
        self._name = name
        self.marking = marking
        self._publish = publish
        self._lock: HeldLock | None = lock
        self._descriptor: int | None = None
        self._seen: FileStatus | None = None
        self._open()

    @property
    def mark(self) -> SessionMark:
        """What the session holds now."""
        return self.marking.mark

    @property
    def left(self) -> FileStatus | None:
        """The file as a closed lease left it, None if that is not known."""
        return self._seen if self._lock is None else None

    def append(self, lines: bytes) -> SessionMark:
        """Add whole lines; see `WriteLease.append`."""
        if self._descriptor is None:
            raise PrpError(ErrorCode.SESSION_WRITE_LEASE_INVALID, "open the session again")
        size = self.mark.size_bytes
        if size + len(lines) > SESSION_BYTES_MAX:
            raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, "larger than a reader accepts")
        self._check_name(size)
        try:
            self._folder.write_all(self._descriptor, lines)
            self._folder.fs.sync(self._descriptor)
        except OSError as error:
            self._take_back(error)
        self._check_name(size + len(lines))
        self.marking.add(lines)
        return self.mark

    def close(self) -> None:
        """Let go of the file, then of the lock."""
        self._drop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open(self) -> None:
        with failures_as(ErrorCode.SESSION_RESTORE_FAILED):
            self._descriptor = self._folder.fs.open_append(self._folder.directory, self._name)
            try:
                self._seen = self._folder.fs.fstat(self._descriptor)
            except OSError:
                self._drop()
                raise

    def _take_back(self, cause: OSError) -> None:
        """Publish what was acknowledged; the descriptor that failed is not used again (R4)."""
        self._drop()
        self._seen = None
        try:
            with failures_as(ErrorCode.STORAGE_WRITE_FAILED):
                content = b"".join(self._folder.pieces(self._name, self.mark.size_bytes))
            if mark_of(content) != self.mark:
                raise PrpError(ErrorCode.SESSION_SNAPSHOT_STALE, "the file is another one")
            self._publish(content)
            self._open()
        except PrpError as error:
            reason = f"{reason_of(cause)}; taking it back: {error.message}"
            raise PrpError(ErrorCode.DURABILITY_BARRIER_FAILED, reason) from cause
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, reason_of(cause)) from cause

    def _check_name(self, size_bytes: int) -> None:
        """Refuse to write, or to acknowledge, what is in a file that no reader will find."""
        assert self._seen is not None, "the file is open"
        try:
            with failures_as(ErrorCode.DURABILITY_BARRIER_FAILED):
                found = self._folder.status(self._name)
            expected = (self._seen.identity, size_bytes)
            if found is None or (found.identity, found.size_bytes) != expected:
                reason = "the file was taken away or changed by someone else"
                raise PrpError(ErrorCode.SESSION_SNAPSHOT_STALE, reason)
        except PrpError:
            self._drop()
            self._seen = None
            raise
        self._seen = found

    def _drop(self) -> None:
        if self._descriptor is not None:
            close_quietly(self._folder.fs, self._descriptor)
            self._descriptor = None
