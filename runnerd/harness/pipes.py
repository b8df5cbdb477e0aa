"""The reading end of a pipe from a harness: never waits, never reads for ever.

It decides when a pipe is at its end. It refuses to know what is written in it.
"""

import fcntl
import os
import struct
import termios

from protocol.limits import HARNESS_PIPE_READ_BYTES


class ReadEnd:
    """A pipe that a harness writes into; owns its descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._left: int | None = None

    @property
    def descriptor(self) -> int:
        """The open descriptor, to be watched."""
        assert self._descriptor is not None, "a closed pipe is not watched"
        return self._descriptor

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def read(self) -> bytes | None:
        """Return what can be read at once: None if nothing yet, empty at the end."""
        size = (
            HARNESS_PIPE_READ_BYTES
            if self._left is None
            else min(self._left, HARNESS_PIPE_READ_BYTES)
        )
        try:
            data = os.read(self.descriptor, size)
        except BlockingIOError:
            return None
        if self._left is not None:
            self._left -= len(data)
        return data

    def end_with_present(self) -> None:
        """Take what the pipe holds now as all there will ever be.

        For a pipe whose writers are gone this changes nothing; it ends one that a stranger
        keeps open.
        """
        if self._descriptor is not None:
            answer = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
            (self._left,) = struct.unpack("i", answer)

    def close(self) -> None:
        """Give the descriptor up. Any number of calls do the same."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
