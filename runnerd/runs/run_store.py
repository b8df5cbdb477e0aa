"""A folder of run logs: who reads, who writes, and under which lock.

It decides when a log is opened, mended or refused. It refuses to know what the records
mean, and lets a reader wait for no writer of ours.
"""

import errno
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Final

import msgspec

from protocol.base.ports import Entropy, Filesystem
from protocol.base.private_directory import close_quietly, open_private_directory, reason_of
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_LOCK_TIMEOUT_MS, RUNS_LISTED_MAX
from runnerd.runs.log_facts import LogFacts
from runnerd.runs.records import Durability, RunRecord, check_run_id
from runnerd.runs.run_file import RUN_SUFFIX, RunFolder, run_file_name
from runnerd.runs.run_lock import HeldLock, RunLocks, lock_run, refuse_foreign_lock
from runnerd.runs.run_log import EMPTY_LOG, LogEnd, LogFormat, LogScanner
from runnerd.runs.run_writer import Acknowledgement, Boundary, RunWriter

_NO_FOLDER: Final = (errno.ENOENT, errno.ENOTDIR)


class RunLog(msgspec.Struct, frozen=True):
    """A whole log in memory."""

    records: tuple[RunRecord, ...]
    end: LogEnd


class OpenRun:
    """A run that this process alone writes, until `close` or its end."""

    def __init__(
        self, writer: RunWriter, lock: HeldLock, forget: "Callable[[OpenRun], None]"
    ) -> None:
        self._writer = writer
        self._lock = lock
        self._forget = forget

    @property
    def run_id(self) -> str:
        """Whose log it is."""
        return self._writer.run_id

    @property
    def facts(self) -> LogFacts:
        """The end of the log: last sequence, whether it is finished or verified."""
        return self._writer.facts

    @property
    def boundary(self) -> Boundary:
        """A file outlives the process."""
        return Boundary.PROCESS_CRASH

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        """Make a record the next one; see `RunWriter.append`."""
        return self._writer.append(record, durability)

    def records(self) -> Iterator[RunRecord]:
        """Yield the records from the disk, in order; see `RunWriter.records`."""
        return self._writer.records()

    def close(self) -> None:
        """Let go of the file, then of the lock; a second time does nothing."""
        self._writer.close()
        self._lock.release()
        self._forget(self)


class RunStore:
    """The logs of one folder. One thread at a time may use an instance.

    Nothing is created before the first record is written.
    """

    def __init__(
        self,
        fs: Filesystem,
        entropy: Entropy,
        locks: RunLocks,
        folder: str,
        *,
        new_format: LogFormat = LogFormat.CHAINED,
        lock_timeout_ms: int = RUN_LOCK_TIMEOUT_MS,
    ) -> None:
        self._fs = fs
        self._entropy = entropy
        self._locks = locks
        self._path = folder
        self._new_format = new_format
        self._lock_timeout_ms = lock_timeout_ms
        self._folder: RunFolder | None = None
        self._is_private = False
        self._last: RunWriter | None = None
        """The writer of the last append here, so that the next one need not read the log."""
        self._open_runs: list[OpenRun] = []
        self._counts: dict[str, int] = {}
        """Records of each run that was open here, when it was let go."""

    def list_runs(self) -> list[str]:
        """Return the ids of all runs with a log, in the order of their names.

        Raises PrpError ``run_state_failed`` if the folder cannot be read or holds more
        names than `RUNS_LISTED_MAX`.
        """
        folder = self._existing()
        if folder is None:
            return []
        try:
            names = self._fs.list_directory(folder.directory, RUNS_LISTED_MAX + 1)
        except OSError as error:
            raise _failed(error) from error
        if len(names) > RUNS_LISTED_MAX:
            raise PrpError(ErrorCode.RUN_STATE_FAILED, "more names than one listing looks at")
        ids = (name.removesuffix(RUN_SUFFIX) for name in names if name.endswith(RUN_SUFFIX))
        return sorted(run_id for run_id in ids if _is_run_id(run_id))

    def scan(self, run_id: str, *, mends: bool = True) -> Iterator[RunRecord]:
        """Yield the records of a run, in persisted order, in the memory of one piece.

        What a writer of ours is just adding is left out. Nothing may be concluded from the
        records before the last one came: damage may follow.

        Args:
            mends: whether a torn tail without a living writer is cut at the end.

        Raises:
            PrpError: ``invalid_run_id``; ``run_state_locked`` for a lock file of the
                original; ``run_state_corrupt`` at the first damage, the file is untouched;
                ``run_state_failed`` for a failure of the disk.

        Source: durable-runs 2, faults R19, R24, I22.
        """
        end = yield from self._pass(run_id)
        if end.is_torn and mends:
            self._mend(run_id)

    def read(self, run_id: str, *, mends: bool = True) -> RunLog:
        """Return a whole log; empty if there is none. See `scan`."""
        records: list[RunRecord] = []
        end = self.visit(run_id, records.append)
        if end.is_torn and mends:
            self._mend(run_id)
        return RunLog(tuple(records), end)

    def visit(self, run_id: str, take: Callable[[RunRecord], None]) -> LogEnd:
        """Hand each record to ``take`` and return how the log ends; nothing is mended.

        Nothing may be concluded before this returns. Raises what `scan` raises.
        """
        passing = self._pass(run_id)
        while True:
            try:
                take(next(passing))
            except StopIteration as stop:
                end: LogEnd = stop.value
                return end

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        """Add one record under the run's lock; see `RunWriter.append`.

        For occasional writers: who writes a whole run uses `open_run`. Raises also
        ``run_state_locked`` if another writer stays longer than the timeout.
        """
        check_run_id(record.run_id)
        folder = self._private()
        lock = self._lock(folder, record.run_id)
        try:
            return self._writer(folder, record.run_id).append(record, durability)
        finally:
            lock.release()

    def barrier(self, run_id: str, durability: Durability) -> Acknowledgement:
        """Make a run's records as durable as asked for; see `RunWriter.barrier`."""
        check_run_id(run_id)
        if durability is Durability.ORDINARY:
            return Acknowledgement(
                requested=durability, achieved=durability, boundary=Boundary.PROCESS_CRASH
            )
        folder = self._existing()
        if folder is None or folder.status(run_file_name(run_id)) is None:
            raise PrpError(ErrorCode.DURABILITY_BARRIER_FAILED, "there is no file")
        folder = self._private()
        lock = self._lock(folder, run_id)
        try:
            return self._writer(folder, run_id).barrier(durability)
        finally:
            lock.release()

    def open_run(self, run_id: str) -> OpenRun:
        """Become the writer of a run, new or old, until it is closed.

        Returns:
            The run, loaded, mended and published anew. Raises PrpError
            ``run_state_locked`` naming the holder, ``run_state_conflict`` for a log that has
            fewer records than it had here, and what `RunWriter.load` raises.
        """
        check_run_id(run_id)
        if not self._open_runs and self._is_replaced():
            self.close()
        folder = self._private()
        lock = self._lock(folder, run_id)
        writer = RunWriter(folder, run_id, self._new_format)
        try:
            writer.load()
            if writer.facts.last_sequence < self._counts.get(run_id, 0):
                raise PrpError(ErrorCode.RUN_STATE_CONFLICT, "the file is older than it was")
        except BaseException:
            writer.close()
            lock.release()
            raise
        run = OpenRun(writer, lock, self._closed)
        self._open_runs.append(run)
        return run

    def close(self) -> None:
        """Let go of the folder, and before of every run that is still open in it."""
        for run in tuple(self._open_runs):
            run.close()
        self._forget()
        if self._folder is not None:
            close_quietly(self._fs, self._folder.directory)
            self._folder = None
            self._is_private = False

    def _pass(self, run_id: str) -> Generator[RunRecord, None, LogEnd]:
        check_run_id(run_id)
        folder = self._existing()
        if folder is None:
            return EMPTY_LOG
        scanner = LogScanner(run_id)
        refuse_foreign_lock(self._fs, self._locks, folder.directory, run_id, self._lock_timeout_ms)
        try:
            with closing(folder.pieces(run_file_name(run_id))) as pieces:
                for piece in pieces:
                    yield from scanner.feed(piece)
        except FileNotFoundError:
            return EMPTY_LOG
        except OSError as error:
            raise _failed(error) from error
        records, end = scanner.finish()
        yield from records
        return end

    def _mend(self, run_id: str) -> None:
        """Cut a torn tail, unless a living writer is about to complete it."""
        folder = self._existing()
        assert folder is not None, "the log was read from it"
        try:
            lock = lock_run(self._fs, self._locks, folder.directory, run_id, timeout_ms=0)
        except PrpError as error:
            if error.code is ErrorCode.RUN_STATE_LOCKED:
                return
            raise
        writer = RunWriter(folder, run_id, self._new_format)
        try:
            writer.load()
        finally:
            writer.close()
            lock.release()

    def _lock(self, folder: RunFolder, run_id: str) -> HeldLock:
        return lock_run(self._fs, self._locks, folder.directory, run_id, self._lock_timeout_ms)

    def _writer(self, folder: RunFolder, run_id: str) -> RunWriter:
        """Return the writer of the last append if it still knows the log, else a new one."""
        last = self._last
        if last is not None and last.run_id == run_id:
            if last.is_current():
                return last
            self._forget()
            if last.is_gone():
                raise PrpError(ErrorCode.RUN_STATE_CONFLICT, "the file was taken away")
        self._forget()
        writer = RunWriter(folder, run_id, self._new_format)
        writer.load()
        self._last = writer
        return writer

    def _closed(self, run: OpenRun) -> None:
        if run in self._open_runs:
            self._open_runs.remove(run)
            self._counts[run.run_id] = max(self._counts.get(run.run_id, 0), run.facts.last_sequence)

    def _forget(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None

    def _existing(self) -> RunFolder | None:
        if self._folder is None:
            try:
                directory = self._fs.open_directory(self._path)
            except OSError as error:
                if error.errno in _NO_FOLDER:
                    return None
                raise _failed(error) from error
            except ValueError:
                return None
            self._folder = RunFolder(self._fs, self._entropy, directory)
        return self._folder

    def _is_replaced(self) -> bool:
        """Tell whether readers look into another folder than the one that is open."""
        if self._folder is None:
            return False
        try:
            directory = self._fs.open_directory(self._path)
        except OSError:
            return True
        try:
            found, known = self._fs.fstat(directory), self._fs.fstat(self._folder.directory)
            return found.identity != known.identity
        except OSError as error:
            raise _failed(error) from error
        finally:
            close_quietly(self._fs, directory)

    def _private(self) -> RunFolder:
        """Return the folder, made and kept for this user alone."""
        if self._folder is None or not self._is_private:
            self.close()
            directory = open_private_directory(self._fs, self._path, _is_of_a_run)
            self._folder = RunFolder(self._fs, self._entropy, directory)
            self._is_private = True
        return self._folder


def _is_of_a_run(name: str) -> bool:
    """Tell whether a file of a run, of ours or of the original, has the name."""
    run_id, _, kind = name.removeprefix(".").partition(".")
    return _is_run_id(run_id) and kind.partition(".")[0] in ("jsonl", "lock")


def _is_run_id(text: str) -> bool:
    try:
        check_run_id(text)
    except PrpError:
        return False
    return True


def _failed(error: OSError) -> PrpError:
    return PrpError(ErrorCode.RUN_STATE_FAILED, reason_of(error))
