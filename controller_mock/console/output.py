"""Standard output and standard error without a loop that waits for their readers.

It decides that lines leave in order and that a reader who has gone stops nothing. It
refuses to know what the lines say.
"""

import asyncio
import contextlib
import errno
import os
from typing import Final

from controller_mock.io.writer import Writer
from protocol.errors import ErrorCode, PrpError

STDOUT: Final = 1
STDERR: Final = 2


class Output:
    """One thread writes to both descriptors, so a slow terminal never costs a lease."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writer = Writer(loop)
        self._gone: set[int] = set()

    def line(self, text: str) -> None:
        """Put text for a person on standard error."""
        data = text.encode("utf-8", "replace")
        self._writer.submit(lambda: self._write(STDERR, data), _ignore)

    async def text(self, data: bytes) -> None:
        """Put the agent's output on standard output; return when its reader has taken it."""
        await self._writer.call(lambda: self._write(STDOUT, data))

    async def close(self) -> None:
        """Return when everything is written."""
        await self._writer.close()

    def _write(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        # The run goes on without a reader; its events are in the store.
        with contextlib.suppress(OSError):
            while rest and descriptor not in self._gone:
                try:
                    rest = rest[os.write(descriptor, rest) :]
                except BlockingIOError:
                    os.set_blocking(descriptor, True)
                except OSError as error:
                    self._gone.add(descriptor)
                    if descriptor == STDOUT and error.errno != errno.EPIPE:
                        self._write(STDERR, _told(error))
                    raise


def _told(error: OSError) -> bytes:
    reason = os.strerror(error.errno or 0)
    return (
        f"controller-mock: standard output: {reason}; what the program prints is stored and no"
        " longer shown\n"
    ).encode()


def put_out(data: bytes) -> None:
    """Write to standard output where no `Output` does; a reader who has left is no fault.

    Raises:
        PrpError: ``storage_write_failed``, e.g. for a file on a full disk.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(STDOUT, rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        words = f"standard output: {os.strerror(error.errno or 0)}"
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, words) from None


def _ignore(outcome: object) -> None:
    """A failed write is remembered by `Output`."""
