"""strace around a real daemon: one fault at one system call, and what was really struck (6.1).

It decides how a call is struck and how that is seen. It refuses to judge what follows.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from tests.process.daemon import Daemon
from tests.runnerd.peer_server import PATIENCE_S

CALLS = "fsync,fdatasync,rename,renameat,renameat2,openat,write,unlinkat,sendto,recvfrom"
_INSTALL = ("apt-get", "install", "-y", "-qq", "strace")


@functools.cache
def strace() -> str | None:
    """Return where strace is, None if it is not here, cannot be had or may not trace.

    Where a package manager and the right to use it are at hand, it is installed once.
    """
    if shutil.which("strace") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(_INSTALL, capture_output=True, timeout=120)
    found = shutil.which("strace")
    if found is None or subprocess.run([found, "-qq", "true"], capture_output=True).returncode:
        return None
    return found


def need_strace() -> str:
    """Return where strace is, or skip the test."""
    found = strace()
    if found is None:
        pytest.skip("strace is not here or may not trace")
    return found


class TracedDaemon(Daemon):
    """A daemon below strace: signals go to the daemon, its end is told by strace."""

    def __init__(self, folder: Path, arguments: Sequence[str], *injections: str) -> None:
        self.trace = folder / "trace"
        options = ["-f", "-qq", "-y", "-o", str(self.trace), "-e"]
        options += [f"trace={CALLS}"]
        for each in injections:
            options += ["-e", f"inject={each}"]
        super().__init__(arguments, wrapper=(need_strace(), *options, "--"))

    @property
    def pid(self) -> int:
        """The daemon's own process id, 0 once it is gone."""
        tracer = self.process.pid
        children = Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split()
        return int(children[0]) if children else 0

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End all that is traced: strace waits for the daemon's program too."""
        if self.process.poll() is None:
            for pid in reversed(_descendants(self.process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        super().kill()

    def struck(self) -> list[str]:
        """Return the calls that were answered with an error or delayed, as strace has them."""
        lines = self.trace.read_text(errors="replace").splitlines()
        return [line for line in lines if "(INJECTED" in line or "(DELAYED" in line]

    def calls_after(self, struck: str) -> list[str]:
        """Return what the same thread asked for after a struck call."""
        lines = self.trace.read_text(errors="replace").splitlines()
        thread = struck.split()[0]
        return [
            line.removeprefix(thread).strip()
            for line in lines[lines.index(struck) + 1 :]
            if line.split()[0] == thread
        ]


def _descendants(pid: int) -> list[int]:
    """Return children before their own, as far as they can be seen."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found


@contextlib.contextmanager
def traced(folder: Path, arguments: Sequence[str], *injections: str) -> Generator[TracedDaemon]:
    """Run a daemon below strace for the length of a test."""
    started = TracedDaemon(folder, arguments, *injections)
    try:
        yield started
    finally:
        started.kill()


@contextlib.contextmanager
def attached(pid: int, folder: Path, *injections: str) -> Generator[Path]:
    """Strike the calls of a running daemon from now on; yields the trace."""
    trace = folder / "attached"
    options = ["-f", "-y", "-o", str(trace), "-e", "trace=clone,clone3,vfork,fork,fsync"]
    for each in injections:
        options += ["-e", f"inject={each}"]
    with subprocess.Popen(
        [need_strace(), *options, "-p", str(pid)], stderr=subprocess.PIPE, text=True
    ) as tracer:
        assert tracer.stderr is not None
        try:
            for line in tracer.stderr:
                if "attached" in line:
                    break
            yield trace
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=PATIENCE_S)
