"""Adopts what a killed runner leaves behind, so that no process outlives the command line.

It decides which children are orphans and ends them. It refuses to know whose they were: a
process that owns other children names their pids, and those are never touched.

A killed runner's harness is handed to the nearest subreaper. It is the restarted runner's
task to end it; what is then still alive when everything is over is ended here.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_PEEK: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT
_SWEEPS_MAX: Final = 10_000
"""Bound on a sweep of processes that keep forking; each round kills all that exist."""


def become_subreaper() -> bool:
    """Let orphaned descendants become children of this process; False where that is impossible.

    Source: prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def children() -> set[int]:
    """Return the pids of this process's children, dead ones that nobody waited for included."""
    try:
        return _listed_children()
    except FileNotFoundError:
        return _scanned_children()


def reap_orphans(owned: Collection[int] = ()) -> int:
    """Bury children that are dead and not ``owned``; return how many were buried.

    A dead process that nobody waits for still has its pid, which looks like life to a
    runner that must prove an old harness gone. Call it after every SIGCHLD, and again when
    an owned child was waited for: until then that one hides the dead behind it.
    """
    buried = 0
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, _PEEK)) is not None and dead.si_pid not in owned:
            os.waitpid(dead.si_pid, 0)
            buried += 1
    return buried


def end_orphans(owned: Collection[int] = ()) -> int:
    """Kill and bury every child that is not ``owned``, and theirs; return how many.

    Killing a child hands its own children over, so the sweep ends only when none is left.
    """
    ended = 0
    for _ in range(_SWEEPS_MAX):
        orphans = children() - set(owned)
        if not orphans:
            break
        for pid in orphans:
            # A child that is not waited for keeps its pid, so the signal cannot go astray.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
                ended += 1
    return ended


def _listed_children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def _scanned_children() -> set[int]:
    # A kernel may be built without the list; then every process says who its parent is.
    found: set[int] = set()
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_bytes().rpartition(b")")[2]
                if int(after_name.split()[1]) == own:
                    found.add(int(entry.name))
    return found
