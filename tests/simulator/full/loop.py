"""An event loop of one simulated process: virtual time, one callback at a time.

It decides the order of callbacks, first in, first out, as asyncio does. It refuses to sleep,
to start threads and to open sockets: transports and threads are simulated beside it.
"""

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVarTuple, cast

from tests.simulator.machine import Machine

Ts = TypeVarTuple("Ts")

_MS: Final = 1000


class VirtualLoop:
    """What the product asks of a loop, and nothing else."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self.is_dead = False

    # --- what asyncio and the product call ----------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        """CLOCK_MONOTONIC, which does not count suspension."""
        return self._machine.mono_ms / _MS

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, as_loop(self), context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        due_ms = self._machine.mono_ms + math.ceil(max(0.0, delay) * _MS)
        handle = asyncio.TimerHandle(due_ms / _MS, callback, args, as_loop(self), context)
        heapq.heappush(self._timers, (due_ms, next(self._order), handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=as_loop(self))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        # A process that dies leaves tasks and answers behind; that is no fault.
        if "pending" not in message and "never retrieved" not in message:
            raise context.get("exception") or AssertionError(message)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        # It stays in the heap until it is due; asyncio's own handle asks for this method.
        return

    # --- the world's side -------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if a callback can run now."""
        if self.is_dead:
            return False
        while self._ready and self._ready[0].cancelled():
            self._ready.popleft()
        if self._ready:
            return True
        next_ms = self._next_ms()
        return next_ms != _NEVER_MS and next_ms <= self._machine.mono_ms

    def due_in_ms(self) -> int | None:
        """Return how long it is until the next timer, None if there is none."""
        if self.is_dead:
            return None
        due_ms = self._next_ms()
        return None if due_ms == _NEVER_MS else max(0, due_ms - self._machine.mono_ms)

    def run_one(self) -> None:
        """Run one callback; what it raises is raised."""
        now_ms = self._machine.mono_ms if self._timers else 0
        while self._timers and self._timers[0][0] <= now_ms:
            self._ready.append(heapq.heappop(self._timers)[2])
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                asyncio._set_running_loop(as_loop(self))
                try:
                    # What asyncio's own `_run` would catch and print is a fault of ours (I18).
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                finally:
                    asyncio._set_running_loop(None)
                return

    def kill(self) -> None:
        """End with the process: nothing of it runs any more."""
        self.is_dead = True
        self._ready.clear()
        self._timers.clear()

    def _next_ms(self) -> int:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else _NEVER_MS


_NEVER_MS: Final = 2**62


def as_loop(loop: VirtualLoop) -> asyncio.AbstractEventLoop:
    """Return a loop under the type by which asyncio and the product know it."""
    return cast(asyncio.AbstractEventLoop, loop)


@contextlib.contextmanager
def running(loop: VirtualLoop) -> Generator[None]:
    """Let ``asyncio.get_running_loop`` return this loop."""
    asyncio._set_running_loop(as_loop(loop))
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
