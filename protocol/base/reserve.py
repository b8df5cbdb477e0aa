"""Preallocated bytes beside a file, into which it can be rewritten when the disk is full (R15).

It decides how many bytes are kept and when they are used up. It refuses to know what is
written and when a disk counts as full: that is `atomic_file`.

    absent ─hold─▶ held ─write_into─▶ (renamed over the file: its old bytes are free) ─hold─▶ held
"""

import errno
from typing import Final

from protocol.base.ports import Filesystem
from protocol.base.private_directory import FILE_MODE, check_private_file, close_quietly
from protocol.limits import RESERVE_STEP_BYTES

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
"""What a disk answers that has no room, in blocks, in inodes or in this user's share."""


class Reserve:
    """One file of allocated bytes. Its content means nothing; nobody ever reads it.

    What is written into it needs no new room, and nobody else can take the room first, as
    somebody could if it were given back before.
    """

    def __init__(
        self,
        fs: Filesystem,
        *,
        name: str,
        extra_bytes: int,
        step_bytes: int = RESERVE_STEP_BYTES,
    ) -> None:
        """Keep room for a rewrite that is ``extra_bytes`` longer than the present file."""
        self._fs = fs
        self._extra = extra_bytes
        self._step = step_bytes
        self.name = name
        self.size = 0
        """Bytes that are allocated; 0 while there is no reserve."""
        self.is_short = False
        """The disk had no room for what is to be kept."""

    def wanted(self, content_bytes: int) -> int:
        """Return the size to be kept beside a file of this size, in coarse steps."""
        needed = content_bytes + self._extra
        return (needed // self._step + 2) * self._step

    def adopt(self, directory: int) -> None:
        """Take over what a dead process kept; PrpError ``state_unsafe`` if it is not private."""
        try:
            descriptor = self._fs.open_write(directory, self.name)
        except OSError:
            return
        try:
            status = self._fs.fstat(descriptor)
            check_private_file(self._fs, status, self.name)
            self.size = status.size_bytes
        except OSError:
            return
        finally:
            close_quietly(self._fs, descriptor)

    def hold(self, directory: int, content_bytes: int) -> None:
        """Make or lengthen the reserve if it is too small; a full disk makes it short.

        Any other failure leaves what there is: the file itself does not depend on it. The
        name is not made durable; a start that misses it makes another.
        """
        wanted = self.wanted(content_bytes)
        # Lengthened only when a step is used up, so not by every event.
        if self.size >= wanted - self._step and not self.is_short:
            return
        if self.size >= wanted:
            self.is_short = False
            return
        try:
            self._allocate(directory, wanted)
        except OSError as error:
            self.is_short = error.errno in NO_SPACE
        else:
            self.size, self.is_short = wanted, False

    def fits(self, size: int) -> bool:
        """Tell whether so many bytes can be written without asking the disk for room."""
        return self.size >= size

    def write_into(self, directory: int, data: bytes) -> str:
        """Turn the reserve into a durable sibling that holds ``data``, and return its name.

        The reserve is used up, also if this raises OSError.
        """
        self.size = 0
        descriptor = self._fs.open_write(directory, self.name)
        try:
            check_private_file(self._fs, self._fs.fstat(descriptor), self.name)
            written = 0
            while written < len(data):
                count = self._fs.write(descriptor, memoryview(data)[written:])
                if count == 0:
                    raise OSError(errno.EIO, "the disk takes no more bytes")
                written += count
            self._fs.truncate(descriptor, len(data))
            self._fs.sync(descriptor)
        except BaseException:
            close_quietly(self._fs, descriptor)
            raise
        self._fs.close(descriptor)
        return self.name

    def give_up(self, directory: int) -> None:
        """Remove the file, whatever it holds."""
        self.size = 0
        try:
            self._fs.unlink(directory, self.name)
        except OSError:
            return

    def _allocate(self, directory: int, size: int) -> None:
        if self.size == 0:
            self.give_up(directory)
            descriptor = self._fs.create_exclusive(directory, self.name, FILE_MODE)
        else:
            descriptor = self._fs.open_write(directory, self.name)
        try:
            self._fs.allocate(descriptor, size)
        except OSError:
            close_quietly(self._fs, descriptor)
            if self.size == 0:
                # A half of one would be taken for whole by the next start.
                self.give_up(directory)
            raise
        self._fs.close(descriptor)
