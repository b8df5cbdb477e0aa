"""The one writer of one run's log: append, sync, and take back what did not become durable.

It decides when a record counts as written. It refuses to know what records mean, and never
reports success for one that the next reader may not find.

    load ─▶ append ─▶ (critical: sync) ─▶ look at the name ─▶ acknowledged
      ▲        └──────── fails ──────────────┘
      └── the part before is published anew, or the log is loaded again
"""

import enum
import errno
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

import msgspec

from protocol.base.ports import FileStatus
from protocol.base.private_directory import check_private_file, close_quietly, reason_of
from protocol.base.reserve import NO_SPACE
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.log_facts import LogFacts
from runnerd.runs.log_room import LogRoom, is_an_end
from runnerd.runs.records import Durability, RunRecord
from runnerd.runs.run_file import NotSynchronised, RunFolder, run_file_name
from runnerd.runs.run_log import (
    EMPTY_LOG,
    LogEnd,
    LogFormat,
    LogScanner,
    encode_line,
    is_same_record,
    spell_record,
)

_LF: Final = b"\n"


class Boundary(enum.StrEnum):
    """What an acknowledged record survives."""

    PROCESS_CRASH = "process_crash"
    PROCESS_MEMORY = "process_memory"


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """How durable a record is that was appended."""

    requested: Durability
    achieved: Durability
    boundary: Boundary


class RunWriter:
    """The log of one run, whose lock the caller holds for as long as it uses this.

    Call `load` first. One thread at a time may use an instance.
    """

    def __init__(self, folder: RunFolder, run_id: str, new_format: LogFormat) -> None:
        self.run_id = run_id
        self._folder = folder
        self._name = run_file_name(run_id)
        self._new_format = new_format
        self._end = EMPTY_LOG
        self._facts = LogFacts()
        self._descriptor: int | None = None
        self._room = LogRoom(folder.fs)
        self._seen: FileStatus | None = None
        """The file as this writer left it; None if there is none."""
        self._is_stale = True
        self._is_closed = False

    @property
    def facts(self) -> LogFacts:
        """The end of the log: last sequence, whether it is finished or verified."""
        return self._facts

    def load(self) -> None:
        """Read the log, cut a torn tail, and publish it anew.

        A file that a dead writer left may count as written without being on the disk: what
        is decided upon it must be durable first (R4, faults S09). Raises PrpError
        ``run_state_corrupt`` (nothing was changed), ``run_state_failed`` or
        ``durability_barrier_failed``.
        """
        if self._is_closed:
            # The folder may be another one by now, and the lock another writer's.
            raise PrpError(ErrorCode.RUN_STATE_FAILED, "the run is closed")
        self._drop()
        self._folder.remove_leftovers(self._name)
        self._facts = LogFacts()
        try:
            self._end = self._scan()
        except FileNotFoundError:
            if self._seen is not None:
                raise _conflict("the file was taken away") from None
            self._end = EMPTY_LOG
        except OSError as error:
            raise _failed(error) from error
        else:
            self._publish_whole_part()
        self._is_stale = False

    def is_current(self) -> bool:
        """Tell whether nobody touched the file since this writer did."""
        return not self._is_stale and self._folder.status(self._name) == self._seen

    def is_gone(self) -> bool:
        """Tell whether the file that this writer had was taken away."""
        return self._seen is not None and self._folder.status(self._name) is None

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        """Make a record the next one, or find that it is there already.

        Returns:
            The acknowledgement: the record will be found. Raises PrpError
            ``run_state_corrupt`` or ``invalid_run_id`` for a record that no log takes,
            ``run_state_conflict`` if another record has its number, if its number is not
            the next one, or if the file was taken away or changed by someone else,
            ``durability_barrier_failed`` if it could not be synchronised,
            ``run_state_failed`` for any other failure of the disk. After the last two the
            record is gone, or the log is loaded again before anything else is done.

        Source: durable-runs 2.
        """
        body = spell_record(record)
        if record.run_id != self.run_id:
            raise PrpError(ErrorCode.RUN_STATE_CORRUPT, "a record of another run")
        with _named_after(durability):
            self._load_if_stale()
            if record.sequence > self._end.record_count:
                self._append_next(record, body, durability)
                return _acknowledged(durability)
            self._check_same(record)
        return self.barrier(durability)

    def barrier(self, durability: Durability) -> Acknowledgement:
        """Make what was appended so far as durable as asked for.

        Raises PrpError ``durability_barrier_failed`` if there is no file or it cannot be
        synchronised, ``run_state_conflict`` if it is not the one that was written.
        """
        if durability is Durability.CRITICAL:
            with _named_after(durability):
                self._load_if_stale()
            if self._descriptor is None:
                raise _barrier_failed("there is no file")
            try:
                self._folder.fs.sync(self._descriptor)
            except OSError as error:
                self._take_back()
                raise _barrier_failed(reason_of(error)) from error
            self._check_name(self._end.complete_bytes)
        return _acknowledged(durability)

    def records(self) -> Iterator[RunRecord]:
        """Yield the records from the disk, in order; raises PrpError ``run_state_failed``.

        The whole part only: what was not acknowledged is not among them.
        """
        scanner = LogScanner(self.run_id)
        try:
            with closing(self._whole_part()) as pieces:
                for piece in pieces:
                    yield from scanner.feed(piece)
        except OSError as error:
            raise _failed(error) from error
        yield from scanner.finish()[0]

    def close(self) -> None:
        """Let go of the file for good, and of the room behind it."""
        if self._descriptor is not None and not self._is_stale:
            self._room.give_back(self._descriptor, self._end.complete_bytes)
        self._drop()
        self._is_closed = True

    def _load_if_stale(self) -> None:
        if self._is_stale:
            self.load()

    def _append_next(self, record: RunRecord, body: bytes, durability: Durability) -> None:
        if record.sequence != self._end.record_count + 1:
            raise _conflict(f"record {record.sequence} behind {self._end.record_count}")
        log_format = self._end.log_format or self._new_format
        line = encode_line(body, log_format, self._end.chain)
        data = _LF + line.line if self._end.lacks_line_end else line.line
        if self._descriptor is None:
            self._create(data)
        else:
            self._add(self._descriptor, data, record, durability)
        self._end = LogEnd(
            log_format=log_format,
            record_count=record.sequence,
            complete_bytes=self._end.complete_bytes + len(data),
            is_torn=False,
            lacks_line_end=False,
            chain=line.chain,
        )
        self._facts = self._facts.after(record)

    def _scan(self) -> LogEnd:
        scanner = LogScanner(self.run_id)
        with closing(self._folder.pieces(self._name)) as pieces:
            for piece in pieces:
                self._note(scanner.feed(piece))
        records, end = scanner.finish()
        self._note(records)
        return end

    def _note(self, records: list[RunRecord]) -> None:
        for record in records:
            self._facts = self._facts.after(record)

    def _create(self, data: bytes) -> None:
        if self._folder.status(self._name) is not None:
            self._is_stale = True
            raise _conflict("the file was made by someone else")
        self._is_stale = True
        self._publish((data,))
        self._is_stale = False

    def _add(self, descriptor: int, data: bytes, record: RunRecord, durability: Durability) -> None:
        if not is_an_end(record):
            try:
                self._room.keep(descriptor, self._end.complete_bytes + len(data))
            except OSError as error:
                # Nothing was written: the run can still end in the room that is kept.
                raise _failed(error) from error
        try:
            self._folder.write_all(descriptor, data)
        except OSError as error:
            self._take_back()
            raise _failed(error) from error
        if durability is Durability.CRITICAL:
            try:
                self._folder.fs.sync(descriptor)
            except OSError as error:
                self._take_back()
                raise _barrier_failed(reason_of(error)) from error
        self._check_name(self._end.complete_bytes + len(data))

    def _check_name(self, size_bytes: int) -> None:
        """Refuse to acknowledge what is in a file that no reader will find."""
        # Until the name is seen, what was written is not known to be where readers look.
        self._is_stale = True
        found = self._folder.status(self._name)
        if found is None or (found.identity, found.size_bytes) != (self._identity(), size_bytes):
            raise _conflict("the file was taken away or changed by someone else")
        self._seen = found
        self._is_stale = False

    def _take_back(self) -> None:
        """Publish what was acknowledged; if that fails, the next use loads what there is.

        The descriptor whose write or sync failed is not used again (R4).
        """
        self._drop()
        with suppress(PrpError):
            found = self._folder.status(self._name)
            if found is not None and found.identity == self._identity():
                self._publish_whole_part()
                self._is_stale = False

    def _publish_whole_part(self) -> None:
        try:
            with closing(self._whole_part()) as pieces:
                self._publish(pieces)
        except PrpError as error:
            if error.code is not ErrorCode.RUN_STATE_FAILED or not _is_of_a_full_disk(error):
                raise
            self._write_over()

    def _write_over(self) -> None:
        """Give the disk the whole part once more, where it has no room for a second file.

        The same bytes in the same place: whatever a crash leaves of it is what was there.
        """
        fs, directory = self._folder.fs, self._folder.directory
        try:
            descriptor = fs.open_write(directory, self._name)
            try:
                status = fs.fstat(descriptor)
                check_private_file(fs, status, self._name)
                with closing(self._whole_part()) as pieces:
                    for piece in pieces:
                        self._folder.write_all(descriptor, piece)
                if status.size_bytes > self._end.complete_bytes:
                    fs.truncate(descriptor, self._end.complete_bytes)
                self._folder.sync_data(descriptor)
            finally:
                close_quietly(fs, descriptor)
            self._use_file()
        except OSError as error:
            self._drop()
            raise _failed(error) from error

    def _whole_part(self) -> Generator[bytes, None, None]:
        left = self._end.complete_bytes
        if not left:
            return
        with closing(self._folder.pieces(self._name, left)) as pieces:
            for piece in pieces:
                left -= len(piece)
                yield piece
        if left:
            raise OSError(errno.EIO, "the file is shorter than it was")

    def _identity(self) -> tuple[int, int] | None:
        return None if self._seen is None else self._seen.identity

    def _publish(self, pieces: Iterable[bytes]) -> None:
        try:
            self._folder.publish(self._name, pieces)
            self._use_file()
        except OSError as error:
            self._drop()
            raise _failed(error) from error

    def _use_file(self) -> None:
        fs = self._folder.fs
        self._descriptor = fs.open_append(self._folder.directory, self._name)
        self._room = LogRoom(fs)
        with suppress(OSError):
            self._room.keep(self._descriptor, fs.fstat(self._descriptor).size_bytes)
        self._seen = fs.fstat(self._descriptor)

    def _check_same(self, record: RunRecord) -> None:
        for found in self.records():
            if found.sequence == record.sequence:
                if is_same_record(found, record):
                    return
                raise _conflict(f"another record {record.sequence} stands already")
        raise _conflict(f"no record can have the number {record.sequence}")

    def _drop(self) -> None:
        self._is_stale = True
        if self._descriptor is not None:
            close_quietly(self._folder.fs, self._descriptor)
            self._descriptor = None


@contextmanager
def _named_after(durability: Durability) -> Generator[None]:
    """Call a failed sync of a whole file what it is to one who asked for a critical record."""
    try:
        yield
    except NotSynchronised as error:
        if durability is Durability.CRITICAL:
            raise _barrier_failed(error.message) from error
        raise


def _is_of_a_full_disk(error: PrpError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE


def _acknowledged(durability: Durability) -> Acknowledgement:
    return Acknowledgement(
        requested=durability, achieved=durability, boundary=Boundary.PROCESS_CRASH
    )


def _failed(error: OSError) -> PrpError:
    return PrpError(ErrorCode.RUN_STATE_FAILED, reason_of(error))


def _barrier_failed(reason: str) -> PrpError:
    return PrpError(ErrorCode.DURABILITY_BARRIER_FAILED, reason)


def _conflict(what: str) -> PrpError:
    return PrpError(ErrorCode.RUN_STATE_CONFLICT, what)
