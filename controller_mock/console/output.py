"""Standard output and standard error without a loop that waits for their readers.

It decides that lines leave in order and that a reader who has gone stops nothing. It
refuses to know what the lines say.
"""

import asyncio
import contextlib
import os
import sys
from typing import Final

from controller_mock.io.writer import Writer

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
                except OSError:
                    self._gone.add(descriptor)
                    raise


def put_out(data: bytes) -> None:
    """Write to standard output before a loop runs, or beside it; a reader who left is no fault."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader has seen enough; the interpreter's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ignore(outcome: object) -> None:
    """A failed write is remembered by `Output`."""
