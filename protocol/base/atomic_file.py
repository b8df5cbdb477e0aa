"""One private file that is only ever replaced whole (D7).

It decides which file may be trusted and in which order a replacement becomes durable. It
refuses to know what the content means, and never repairs it or picks an older copy.

    create sibling ─▶ write ─▶ sync ─▶ close ─▶ rename ─▶ sync directory ─▶ durable
        └──────────── fails: the old file stands ────┘         └─ fails: either file stands
"""

import errno
from collections.abc import Collection
from typing import Final

from protocol.base.ports import Entropy, Filesystem
from protocol.base.private_directory import (
    FILE_MODE,
    UNSAFE_ERRNOS,
    check_private_file,
    close_quietly,
    open_private_directory,
    reason_of,
    unsafe,
)
from protocol.base.proven_content import disclose, enclose
from protocol.base.reserve import NO_SPACE, Reserve
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LEFTOVER_NAMES_MAX

_TEMP_RANDOM_BYTES: Final = 16
_TEMP_SUFFIX: Final = ".tmp"
_HEX: Final = frozenset("0123456789abcdef")


class WriteFailed(PrpError):
    """A replacement failed: what was gated on it must not leave (R4).

    ``renamed`` is False if the old file surely stands (``storage_write_failed``: a new
    attempt is allowed) and True if either file may be found later
    (``storage_is_undecided``: the process ends).
    """

    def __init__(self, errno: int, *, renamed: bool, reason: str = "") -> None:
        code = ErrorCode.STORAGE_SYNC_FAILED if renamed else ErrorCode.STORAGE_WRITE_FAILED
        super().__init__(code, reason)
        self.errno = errno
        self.renamed = renamed


class AtomicFile:
    """The file ``name`` in ``directory``, whose lock this process holds.

    Call `open_directory` first. One thread at a time may use an instance. ``neighbours``
    are the names of the program's other files in the directory. ``reserve`` is room for a
    replacement on a full disk; without one such a replacement fails.
    """

    def __init__(
        self,
        fs: Filesystem,
        entropy: Entropy,
        *,
        directory: str,
        name: str,
        schema: str,
        size_max: int,
        neighbours: Collection[str] = (),
        reserve: Reserve | None = None,
    ) -> None:
        self._fs = fs
        self._entropy = entropy
        self._path = directory
        self._name = name
        self._schema = schema
        self._size_max = size_max
        self._neighbours = neighbours
        self._reserve = reserve
        self.is_tight = False
        """The disk had no room, and `find_room` has not found any since."""
        self._directory: int | None = None
        self._size = 0
        self._is_undecided = False

    def open_directory(self) -> None:
        """Create or tighten the directory and keep it open; see `open_private_directory`."""
        assert self._directory is None, "the directory is open already"
        self._directory = open_private_directory(self._fs, self._path, self._is_ours)

    def adopt_reserve(self) -> None:
        """Take over the room that an earlier process kept, before the first replacement."""
        if self._reserve is not None:
            self._reserve.adopt(self._opened())

    @property
    def had_content(self) -> bool:
        """True if a reserve was adopted: one is made only beside a file that is durable."""
        return self._reserve is not None and self._reserve.size > 0

    def close(self) -> None:
        """Let go of the directory."""
        if self._directory is not None:
            close_quietly(self._fs, self._directory)
            self._directory = None

    def remove_leftovers(self) -> int:
        """Remove siblings that dead writers left, and return how many.

        Looks at a bounded number of names and touches only those of its own making; what
        cannot be removed is harmless and stays. Source: faults S20.
        """
        removed = 0
        try:
            names = self._fs.list_directory(self._opened(), LEFTOVER_NAMES_MAX)
        except OSError:
            return removed
        for name in names:
            if self._is_leftover(name) and self._discard(name) is None:
                removed += 1
        return removed

    def read(self) -> bytes | None:
        """Return the content, or None if there is no file.

        What is returned is durable, even if its writer died between rename and directory
        sync. Nothing is repaired. Raises PrpError ``state_unsafe`` (symlink, not a regular
        file, another user's, mode, second name), ``state_version_unsupported``,
        ``state_foreign``, ``state_corrupt``, ``storage_read_failed`` or
        ``storage_is_undecided``.

        Source: runner-behaviour 3, faults R24 and I8.
        """
        try:
            data = self._read_file()
        except OSError as error:
            if error.errno in UNSAFE_ERRNOS:
                raise unsafe(f"{self._name}: {reason_of(error)}") from error
            raise PrpError(ErrorCode.STORAGE_READ_FAILED, reason_of(error)) from error
        if data is None:
            return None
        content = disclose(self._schema, data)
        self._sync_directory()
        return content

    def recover(self) -> bytes | None:
        """Read as `read` does, then publish the content anew; for a process that starts.

        If the last process ended on a failed directory sync, the kernel may report the
        next sync of the same entries as done without doing it. A new entry cannot be
        taken for done. Raises what `read` raises, and ``storage_sync_failed`` if nothing
        can be published, e.g. on a full disk. Source: faults R4, S09.
        """
        content = self.read()
        if content is not None:
            try:
                self.replace(content)
            except WriteFailed as error:
                # A start has nothing to fence: what it loaded may not be durable, so it ends.
                raise PrpError(ErrorCode.STORAGE_SYNC_FAILED, error.message) from error
        return content

    def replace(self, body: bytes) -> None:
        """Make ``body``, a JSON value, the durable content of the file.

        When this returns, data and name are durable. Raises WriteFailed. A descriptor
        whose sync failed is never synchronised again: the kernel forgets what it could
        not write and would report success (faults S06).
        """
        if self._is_undecided:
            raise WriteFailed(errno.EIO, renamed=True, reason="an earlier failure left two answers")
        data = enclose(self._schema, body)
        if len(data) > self._size_max:
            # What could not be loaded again must not replace what can.
            raise WriteFailed(errno.EFBIG, renamed=False, reason="larger than a load accepts")
        temp = self._written(data)
        try:
            self._fs.rename(self._opened(), temp, self._name)
        except OSError as error:
            # A sibling that is gone was renamed after all, whatever the call reported.
            self._is_undecided = isinstance(self._discard(temp), FileNotFoundError)
            raise self._failure(error, renamed=self._is_undecided) from error
        self._sync_directory()
        self._hold_reserve(len(data))

    def find_room(self) -> None:
        """Ask a disk that had no room again; `is_tight` tells what came of it.

        There must be room for a replacement and the whole reserve beside the one that is
        kept, so that room at the margin is not found and lost in turns (R16).
        """
        if not self.is_tight or self._reserve is None:
            return
        probe = self._temp_name(self._entropy.token_bytes(_TEMP_RANDOM_BYTES).hex())
        try:
            descriptor = self._fs.create_exclusive(self._opened(), probe, FILE_MODE)
        except OSError:
            return
        try:
            self._fs.allocate(descriptor, self._reserve.wanted(self._size))
        except OSError as error:
            has_room = error.errno not in NO_SPACE
        else:
            has_room = True
        close_quietly(self._fs, descriptor)
        self._discard(probe)
        if has_room:
            self.is_tight = False
            self._hold_reserve(self._size)

    def _hold_reserve(self, size: int) -> None:
        self._size = size
        if self._reserve is not None:
            self._reserve.hold(self._opened(), size)
            self.is_tight = self.is_tight or self._reserve.is_short

    def _written(self, data: bytes) -> str:
        """Return the name of a durable sibling with ``data``; on a full disk, the reserve."""
        temp = self._temp_name(self._entropy.token_bytes(_TEMP_RANDOM_BYTES).hex())
        try:
            self._write_sibling(temp, data)
        except WriteFailed as error:
            if error.errno not in NO_SPACE:
                raise
            self.is_tight = True
            if self._reserve is None or not self._reserve.fits(len(data)):
                raise
            return self._write_into_reserve(self._reserve, data)
        return temp

    def _write_into_reserve(self, reserve: Reserve, data: bytes) -> str:
        try:
            return reserve.write_into(self._opened(), data)
        except OSError as error:
            reserve.give_up(self._opened())
            raise self._failure(error, renamed=False) from error

    def _opened(self) -> int:
        assert self._directory is not None, "open_directory comes first"
        return self._directory

    def _read_file(self) -> bytes | None:
        try:
            descriptor = self._fs.open_read(self._opened(), self._name)
        except FileNotFoundError:
            return None
        try:
            status = self._fs.fstat(descriptor)
            check_private_file(self._fs, status, self._name)
            return self._read_bounded(descriptor, status.size_bytes)
        finally:
            close_quietly(self._fs, descriptor)

    def _read_bounded(self, descriptor: int, size_expected: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size <= self._size_max and size_expected <= self._size_max:
            part = self._fs.read(descriptor, min(size_expected, self._size_max) + 1)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
        reason = f"{self._name} is larger than {self._size_max} bytes"
        raise PrpError(ErrorCode.STATE_CORRUPT, reason)

    def _write_sibling(self, temp: str, data: bytes) -> None:
        """Create the sibling with its data durable; its name need not be."""
        try:
            descriptor = self._fs.create_exclusive(self._opened(), temp, FILE_MODE)
        except OSError as error:
            # Nothing is removed here: a name that exists is not of this attempt.
            raise self._failure(error, renamed=False) from error
        try:
            try:
                self._write_all(descriptor, data)
                self._fs.sync(descriptor)
            except OSError:
                close_quietly(self._fs, descriptor)
                raise
            self._fs.close(descriptor)
        except OSError as error:
            self._discard(temp)
            raise self._failure(error, renamed=False) from error

    def _write_all(self, descriptor: int, data: bytes) -> None:
        written = self._fs.write(descriptor, data)
        while written < len(data):
            count = self._fs.write(descriptor, memoryview(data)[written:])
            if count == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes")
            written += count

    def _sync_directory(self) -> None:
        try:
            self._fs.sync(self._opened())
        except OSError as error:
            self._is_undecided = True
            raise self._failure(error, renamed=True) from error

    def _failure(self, error: OSError, *, renamed: bool) -> WriteFailed:
        return WriteFailed(error.errno or errno.EIO, renamed=renamed, reason=reason_of(error))

    def _discard(self, temp: str) -> OSError | None:
        """Remove a sibling as far as that is possible; the next start removes the rest."""
        try:
            self._fs.unlink(self._opened(), temp)
        except OSError as error:
            return error
        return None

    def _temp_name(self, random: str) -> str:
        return _temp_of(self._name, random)

    def _is_ours(self, name: str) -> bool:
        names = (self._name, *self._neighbours, *([self._reserve.name] if self._reserve else []))
        return name in names or self._is_leftover(name)

    def _is_leftover(self, name: str) -> bool:
        return is_leftover(self._name, name)


def is_leftover(name: str, other: str) -> bool:
    """Tell whether ``other`` is a sibling that a dead writer of the file ``name`` left."""
    random = other.removeprefix(f".{name}.").removesuffix(_TEMP_SUFFIX)
    return (
        len(random) == 2 * _TEMP_RANDOM_BYTES
        and _HEX.issuperset(random)
        and other == _temp_of(name, random)
    )


def _temp_of(name: str, random: str) -> str:
    return f".{name}.{random}{_TEMP_SUFFIX}"
