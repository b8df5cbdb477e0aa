"""The processes below this one: it adopts their orphans, and it alone waits for them.

It decides which living processes came from the harness. It refuses to end them: `tree` does.
"""

import ctypes
import os
from collections.abc import Iterator
from typing import Final

from protocol.limits import HARNESS_LOOKS_MAX
from runnerd.harness.proc import Process, boot_id, children, is_same, read_process

_PR_SET_CHILD_SUBREAPER: Final = 36


class Descendants:
    """Every process below this one, except those of this process's own session.

    A harness is started in a session of its own and nobody can enter another session, so
    whatever shares ours was started by someone else. As a subreaper this process becomes
    the parent of whatever loses its own, by a double fork or by ``setsid``: nothing that a
    harness starts can leave the tree while this process lives. The first process of a
    container gets every orphan of the container in any case, and takes all for its own.

    Source: architecture 8.4, prctl(2).
    """

    def __init__(self) -> None:
        self._own_pid = os.getpid()
        self._own_session = os.getsid(0)
        self._boot = boot_id()
        self._statuses: dict[int, int | None] = {}

    def adopt_orphans(self, *, adopt: bool) -> None:
        """Become the parent of orphaned descendants, or no longer. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def watch(self, pid: int) -> None:
        """Keep the wait status of this child when it ends."""
        self._statuses[pid] = None

    def forget(self, pid: int) -> None:
        """Keep the wait status of this child no longer."""
        self._statuses.pop(pid, None)

    def status(self, pid: int) -> int | None:
        """Return the wait status of a watched child, None while nobody saw it end."""
        return self._statuses.get(pid)

    def reap(self) -> None:
        """Wait for every child that has ended."""
        for pid, _ in self._children():
            self._wait(pid)

    def members(self) -> Iterator[Process]:
        """Yield every living descendant; yield none only if there is none.

        The kernel's list of our own children is exact, since only we take entries off it.
        A child that had ended may have handed us its children after the list was read:
        then it is read again.
        """
        for _ in range(HARNESS_LOOKS_MAX):
            ended = lives = False
            for pid, child in self._children():
                if self._wait(pid):
                    ended = True
                else:
                    lives = True
                    yield child
                    yield from self._below(child)
            if lives or not ended:
                return
        raise BlockingIOError("children end faster than they can be looked at")

    def _children(self) -> Iterator[tuple[int, Process]]:
        for pid in children(self._own_pid, self._boot):
            child = read_process(pid, self._boot)
            if child is not None and child.birth.session_id != self._own_session:
                yield pid, child

    def _wait(self, pid: int) -> bool:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if ended and pid in self._statuses:
            self._statuses[pid] = status
        return ended != 0

    def _below(self, top: Process) -> Iterator[Process]:
        parents = [top]
        while parents:
            parent = parents.pop()
            found = [
                child
                for pid in children(parent.birth.pid, self._boot)
                if (child := read_process(pid, self._boot)) is not None
                and child.parent_pid == parent.birth.pid
                and not child.is_dead
            ]
            # The parent's number may have passed to a stranger between the two reads.
            if found and is_same(parent, self._boot):
                yield from found
                parents += found
