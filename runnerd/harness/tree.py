"""The end of a process tree: TERM, a grace, then KILL until nothing is left.

It decides when which signal is sent and when the end is proven. It refuses to know how the
processes of a tree are found, and how to wait: it yields, so a loop or a sleep can drive it.
"""

import signal
import time
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol

from protocol.limits import HARNESS_KILL_MS_MAX, HARNESS_POLL_MS
from runnerd.harness.proc import Process, boot_id, send

Ending = Generator[float, None, int]
"""Yields pauses in seconds, any of which may be cut short; returns how many processes are left."""

_MS_PER_S: Final = 1_000


class Tree(Protocol):
    """A way to find the processes that belong together."""

    def members(self) -> Iterator[Process]:
        """Yield every member that lives; none means that none is left.

        Raises OSError when it cannot look, which proves nothing.
        """
        ...


class Grace:
    """How long processes may take to end by themselves; it can only become shorter."""

    def __init__(self, grace_ms: int) -> None:
        self._deadline_s = time.monotonic() + grace_ms / _MS_PER_S

    def shorten(self, grace_ms: int) -> None:
        """End at the latest in ``grace_ms`` from now."""
        self._deadline_s = min(self._deadline_s, time.monotonic() + grace_ms / _MS_PER_S)

    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline_s


def ending(tree: Tree, grace: Grace) -> Ending:
    """End every process of ``tree``, also those that appear meanwhile, in bounded time.

    Each member gets TERM once, and CONT so that a stopped one can obey. After the grace
    whoever is left or appears is killed, look after look, until a look finds nobody.

    Returns:
        How many processes are left, 0 only if a look proved it; at least 1 when the
        processes could not be looked at.

    Source: runner-behaviour 12, "Supervision"; architecture 8.4.
    """
    left = yield from _signal_until(tree, (signal.SIGTERM, signal.SIGCONT), grace.is_over)
    if left:
        patience = Grace(HARNESS_KILL_MS_MAX)
        left = yield from _signal_until(tree, (signal.SIGKILL,), patience.is_over)
    return left


def end_now(tree: Tree, grace_ms: int) -> int:
    """Drive `ending` with plain sleeps. Returns how many processes are left."""
    steps = ending(tree, Grace(grace_ms))
    while True:
        try:
            pause_s = next(steps)
        except StopIteration as stop:
            left: int = stop.value
            return left
        time.sleep(pause_s)


def _signal_until(
    tree: Tree, signals: tuple[signal.Signals, ...], is_over: Callable[[], bool]
) -> Ending:
    told: set[tuple[int, int]] = set()
    while True:
        left = _signal_members(tree, signals, told)
        if not left or is_over():
            return left
        yield HARNESS_POLL_MS / _MS_PER_S


def _signal_members(
    tree: Tree, signals: tuple[signal.Signals, ...], told: set[tuple[int, int]]
) -> int:
    count = 0
    try:
        boot = boot_id()
        for member in tree.members():
            count += 1
            if member.key not in told:
                # At once, not after the look: a process that forks and exits in turns is
                # caught only while its number is fresh.
                send(member, boot, *signals)
                told.add(member.key)
    except OSError:
        return max(count, 1)
    return count
