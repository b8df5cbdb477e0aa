"""Requests to stop, from the first moment of the process to the last.

It decides which signals ask for a stop and counts them. It refuses to stop anything.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from runnerd.core.inputs import StopRequested

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_DRAIN_BYTES: Final = 512


class StopSignals:
    """Counts SIGTERM and SIGINT: first for a poll on `descriptor`, then for an event loop."""

    def __init__(self, noted: list[int] | None = None) -> None:
        """Begin with signals that another handler has noted, and goes on to until `install`."""
        self._count = 0
        self._waiting: list[int] = [] if noted is None else noted
        self._ignored: list[int] = []
        self.descriptor, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def install(self) -> None:
        """Take over both signals; from now on neither ends the process by itself."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in _STOPS:
            if signal.signal(number, self._note) == signal.SIG_IGN:
                self._ignored.append(number)

    def give_back(self) -> None:
        """Let both signals end the process by themselves again, at once if one has arrived."""
        signal.set_wakeup_fd(-1)
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN if number in self._ignored else signal.SIG_DFL)
        for waiting in self._waiting:
            signal.raise_signal(waiting)

    @property
    def is_waiting(self) -> bool:
        """True while a request has not been taken."""
        return bool(self._waiting)

    def take(self) -> "list[StopRequested]":
        """Return the requests since the last call, in order."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, _DRAIN_BYTES)
        waiting, self._waiting = self._waiting, []
        return [self._counted(number) for number in waiting]

    def attach(
        self, loop: "asyncio.AbstractEventLoop", post: "Callable[[StopRequested], None]"
    ) -> None:
        """Post every request from now on, in the loop, beginning with those not yet taken.

        The loop must own the signals: it has but one way to be woken by any of them.
        """
        for number in _STOPS:
            loop.add_signal_handler(number, self._post, number, post)
        for waiting in self.take():
            post(waiting)

    def ignore(self) -> None:
        """Take no further request: the process is ending already."""
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)

    def close(self) -> None:
        """Give the descriptors up."""
        os.close(self.descriptor)
        os.close(self._wake)

    def _post(self, number: int, post: "Callable[[StopRequested], None]") -> None:
        post(self._counted(number))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(number)

    def _counted(self, number: int) -> "StopRequested":
        # Imported here: signals are listened to before the core is loaded.
        from runnerd.core.inputs import StopRequested

        self._count += 1
        return StopRequested(signal=number, count=self._count)
