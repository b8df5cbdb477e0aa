"""One file of a folder: reading it in pieces, and publishing a whole new one in its place.

It decides in which order a publication becomes durable and which names are leftovers. It
refuses to know what the bytes mean, and who may write.

    create sibling ─▶ write ─▶ sync ─▶ close ─▶ rename ─▶ sync folder ─▶ durable
        └───────── fails: the old file stands ─────┘         └─ fails: either file stands
"""

import contextlib
import errno
from collections.abc import Generator, Iterable
from typing import Final

from protocol.base.ports import Entropy, FileStatus, Filesystem
from protocol.base.private_directory import FILE_MODE, close_quietly, reason_of
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LEFTOVER_NAMES_MAX, RUN_READ_BYTES

RUN_SUFFIX: Final = ".jsonl"

_TEMP_SUFFIX: Final = ".tmp"
_TEMP_RANDOM_BYTES: Final = 16
_HEX: Final = frozenset("0123456789abcdef")


class NotSynchronised(PrpError):
    """Data could not be made durable; what the name stands for says the same as before."""


class RunFolder:
    """An open folder. One thread at a time may use an instance."""

    def __init__(self, fs: Filesystem, entropy: Entropy, directory: int) -> None:
        self.fs = fs
        self.directory = directory
        self._entropy = entropy
        self._is_undecided = False

    def status(self, name: str) -> FileStatus | None:
        """Return the status of a name, or None if nothing has it.

        Raises PrpError ``run_state_failed`` if the disk does not tell.
        """
        try:
            return self.fs.status_of(self.directory, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(error) from error

    def pieces(self, name: str, size_max: int | None = None) -> Generator[bytes, None, None]:
        """Yield the bytes of a file, up to ``size_max``; FileNotFoundError if there is none.

        Other errors of the disk are OSErrors as well; what is no regular file is one. Who
        may leave early closes the generator, and with it the file.
        """
        descriptor = self.fs.open_read(self.directory, name)
        try:
            if not self.fs.fstat(descriptor).is_regular:
                raise OSError(errno.EINVAL, "not a regular file")
            left = size_max
            while left is None or left > 0:
                size = RUN_READ_BYTES if left is None else min(RUN_READ_BYTES, left)
                data = self.fs.read(descriptor, size)
                if not data:
                    return
                left = None if left is None else left - len(data)
                yield data
        finally:
            close_quietly(self.fs, descriptor)

    def publish(self, name: str, pieces: Iterable[bytes]) -> None:
        """Make ``pieces`` the durable content of a file, old or new.

        Raises PrpError: ``run_state_failed`` if the old file surely stands,
        ``durability_barrier_failed`` if it is not known which one does; then this folder
        takes no more changes, because a second sync of it could be a lie (R4).
        """
        self.put_in_place(self.write_sibling(name, pieces), name)

    def sibling_name(self, name: str) -> str:
        """Return a fresh name that `remove_leftovers` knows."""
        random = self._entropy.token_bytes(_TEMP_RANDOM_BYTES).hex()
        return f".{name}.{random}{_TEMP_SUFFIX}"

    def write_sibling(self, name: str, pieces: Iterable[bytes], mode: int = FILE_MODE) -> str:
        """Write a new file beside ``name``, its data durable, and return what it is called.

        Raises PrpError: ``run_state_failed``, and nothing is left as far as that goes.
        """
        self._check_decided()
        temp = self.sibling_name(name)
        try:
            self._write_sibling(temp, pieces, mode)
        except OSError as error:
            raise _failed(error) from error
        return temp

    def put_in_place(self, temp: str, name: str) -> None:
        """Give a sibling its name, replacing what has it; raises what `publish` raises."""
        self._check_decided()
        try:
            self.fs.rename(self.directory, temp, name)
        except OSError as error:
            # A sibling that is gone was renamed after all, whatever the call reported.
            self._is_undecided = isinstance(self.discard(temp), FileNotFoundError)
            if self._is_undecided:
                raise _barrier_failed(reason_of(error)) from error
            raise _failed(error) from error
        self.sync()

    def remove_leftovers(self, *files: str) -> None:
        """Remove siblings that dead writers of ours left, of these files or of all.

        What cannot be removed is harmless and stays.
        """
        try:
            names = self.fs.list_directory(self.directory, LEFTOVER_NAMES_MAX)
        except OSError:
            return
        for found in names:
            if (stem := _stem_of_sibling(found)) is not None and (not files or stem in files):
                self.discard(found)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """Write all of ``data``; an OSError leaves it unknown how much was written."""
        written = self.fs.write(descriptor, data)
        while written < len(data):
            count = self.fs.write(descriptor, memoryview(data)[written:])
            if count == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            written += count

    def sync_data(self, descriptor: int) -> None:
        """Make an open file's data durable; raises `NotSynchronised`."""
        try:
            self.fs.sync(descriptor)
        except OSError as error:
            raise NotSynchronised(ErrorCode.RUN_STATE_FAILED, reason_of(error)) from error

    def sync(self) -> None:
        """Make the names durable; raises PrpError ``durability_barrier_failed``."""
        self._check_decided()
        try:
            self.fs.sync(self.directory)
        except OSError as error:
            self._is_undecided = True
            raise _barrier_failed(reason_of(error)) from error

    def discard(self, temp: str) -> OSError | None:
        """Remove a sibling as far as that goes, and return what was in the way."""
        try:
            self.fs.unlink(self.directory, temp)
        except OSError as error:
            return error
        return None

    def _check_decided(self) -> None:
        if self._is_undecided:
            raise _barrier_failed("an earlier failure left two answers")

    def _write_sibling(self, temp: str, pieces: Iterable[bytes], mode: int) -> None:
        descriptor = self.fs.create_exclusive(self.directory, temp, FILE_MODE)
        try:
            try:
                for piece in pieces:
                    self.write_all(descriptor, piece)
                if mode != FILE_MODE:
                    self.fs.change_mode(descriptor, mode)
                self.sync_data(descriptor)
            except BaseException:
                close_quietly(self.fs, descriptor)
                raise
            self.fs.close(descriptor)
        except (OSError, PrpError):
            self.discard(temp)
            raise


@contextlib.contextmanager
def failures_as(code: ErrorCode) -> Generator[None]:
    """Give a failure of the disk, and ``run_state_failed`` of a folder, another code."""
    try:
        yield
    except PrpError as error:
        if error.code is not ErrorCode.RUN_STATE_FAILED:
            raise
        raise PrpError(code, error.message) from error
    except OSError as error:
        raise PrpError(code, reason_of(error)) from error


def run_file_name(run_id: str) -> str:
    """Return the name of a run's log."""
    return f"{run_id}{RUN_SUFFIX}"


def _stem_of_sibling(name: str) -> str | None:
    """Return beside which file a name of `sibling_name` stands."""
    stem, _, random = name.removesuffix(_TEMP_SUFFIX).rpartition(".")
    is_ours = (
        len(random) == 2 * _TEMP_RANDOM_BYTES
        and _HEX.issuperset(random)
        and name == f"{stem}.{random}{_TEMP_SUFFIX}"
        and stem.startswith(".")
    )
    return stem[1:] if is_ours else None


def _failed(error: OSError) -> PrpError:
    return PrpError(ErrorCode.RUN_STATE_FAILED, reason_of(error))


def _barrier_failed(reason: str) -> PrpError:
    return PrpError(ErrorCode.DURABILITY_BARRIER_FAILED, reason)
