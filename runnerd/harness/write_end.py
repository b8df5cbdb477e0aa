"""The writing end of a pipe to a harness: never waits, and says when something was taken.

It decides when bytes leave. It refuses to know what they say, and how many may wait: whoever
gives them keeps that bounded.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable


class WriteEnd:
    """A pipe that a harness reads from; owns its descriptor.

    A program that closed its end costs what was meant for it, and nothing else.
    """

    def __init__(
        self, descriptor: int, loop: asyncio.AbstractEventLoop, taken: Callable[[int], None]
    ) -> None:
        """Take a descriptor over.

        Args:
            taken: is told the number of each piece when the pipe has all of it.
        """
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._loop = loop
        self._taken = taken
        self._pieces: deque[tuple[int | None, memoryview]] = deque()
        self._is_waiting = False

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def write(self, data: bytes, number: int | None = None) -> None:
        """Write after everything that was given before; nothing happens once it is closed."""
        if self._descriptor is not None:
            self._pieces.append((number, memoryview(data)))
            if not self._is_waiting:
                self._go_on()

    def close(self) -> None:
        """Give the descriptor up and drop what was not taken. Any number of calls do the same."""
        self._wait(False)
        self._pieces.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _go_on(self) -> None:
        while self._descriptor is not None and self._pieces:
            number, piece = self._pieces[0]
            try:
                count = os.write(self._descriptor, piece)
            except BlockingIOError:
                self._wait(True)
                return
            except OSError:
                # Nobody reads any more; that alone says nothing about the program's work.
                self.close()
                return
            if count < len(piece):
                self._pieces[0] = (number, piece[count:])
                continue
            self._pieces.popleft()
            if number is not None:
                self._taken(number)
        self._wait(False)

    def _wait(self, wanted: bool) -> None:
        if wanted != self._is_waiting and self._descriptor is not None:
            self._is_waiting = wanted
            if wanted:
                self._loop.add_writer(self._descriptor, self._go_on)
            else:
                self._loop.remove_writer(self._descriptor)
