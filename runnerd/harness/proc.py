"""Processes as /proc shows them, and signals that reach only the process that was meant.

It decides who a process is and whether it still lives. It refuses to decide which processes
belong together: `tree` and `orphan` do.
"""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from typing import Final

import msgspec

from protocol.process_birth import ProcessBirth, parse_stat, same_process

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_GONE: Final = (FileNotFoundError, ProcessLookupError)
"""A /proc file of a process that ended: before it is opened, or while it is read."""

# Places in /proc/PID/stat after the name. Source: proc(5).
_STATE: Final = 0
_PARENT: Final = 1
_THREADS: Final = 17


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process at the moment it was looked at."""

    birth: ProcessBirth
    parent_pid: int
    is_dead: bool
    """It only waits to be reaped: nothing of it can run."""

    @property
    def key(self) -> tuple[int, int]:
        """What stays the same from birth to death, within one boot."""
        return self.birth.pid, self.birth.start_ticks


def boot_id() -> str:
    """Return the id of the present boot; pids and start ticks mean nothing in another one."""
    text = _read(_BOOT_ID_PATH)
    if text is None:
        raise FileNotFoundError(_BOOT_ID_PATH)
    return text.decode("ascii").strip()


def read_process(pid: int, boot: str) -> Process | None:
    """Return the process that has this number now, None if there is none.

    Raises OSError when the number cannot be looked up, which proves nothing.
    """
    text = _read(f"/proc/{pid}/stat")
    if text is None:
        return None
    fields = text.rpartition(b")")[2].split()
    # A process whose first thread ended shows Z too, but its other threads run on.
    is_dead = fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) <= 1
    try:
        birth = parse_stat(text, boot)
    except ValueError as error:
        # One that is being taken off the list of processes shows no session any more.
        if is_dead:
            return None
        raise OSError(errno.EIO, f"process {pid} cannot be understood") from error
    return Process(birth=birth, parent_pid=int(fields[_PARENT]), is_dead=is_dead)


def is_same(process: Process, boot: str) -> bool:
    """Tell whether the number still belongs to this very process, dead or alive."""
    present = read_process(process.birth.pid, boot)
    return present is not None and same_process(present.birth, process.birth)


def processes(boot: str) -> Iterator[Process]:
    """Yield every process that this one may see."""
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := read_process(int(name), boot)) is not None:
            yield process


def children(pid: int, boot: str) -> list[int]:
    """Return the numbers of a process's children, also of those not yet reaped."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return []
    if not os.path.exists("/proc/thread-self/children"):
        # A kernel without these lists: look at every process instead.
        return [process.birth.pid for process in processes(boot) if process.parent_pid == pid]
    found: list[int] = []
    for task in tasks:
        listed = _read(f"/proc/{pid}/task/{task}/children")
        found += [int(number) for number in (listed or b"").split()]
    return found


def environment(pid: int) -> list[bytes]:
    """Return the ``NAME=value`` entries a program was started with; none where they are hidden."""
    try:
        block = _read(f"/proc/{pid}/environ")
    except PermissionError:
        return []
    return block.split(b"\0") if block else []


def send(process: Process, boot: str, *signals: signal.Signals) -> None:
    """Send signals to a process if it still is the one that was looked at.

    The number may have been given to another process since. The descriptor is opened
    first and the birth compared afterwards: a process with the same birth before and after
    the opening is the one that was opened. A process of another user is left alone.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(process.birth.pid)
        try:
            if is_same(process, boot):
                for number in signals:
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except _GONE:
        return None
