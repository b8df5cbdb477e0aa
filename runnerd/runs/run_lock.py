"""Who may write a run: one kernel lock per run, and a look at the original's lock files.

It decides who waits and who is refused. It refuses to remove a lock that it did not take:
a kernel lock ends with its holder, and a lock file of the original is for a person.

    .<run>.lock        ours: permanent, under a kernel lock, holds who has it (R9)
    <run>.jsonl.lock   the original's: there while its writer lives, and after a crash
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from protocol.base.ports import Filesystem
from protocol.base.private_directory import UNSAFE_ERRNOS, close_quietly, reason_of
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import is_blank, whole_number

_FOREIGN_BYTES_MAX: Final = 4096


class HeldLock(Protocol):
    """A lock that this process has until it releases it or ends."""

    def release(self) -> None:
        """Give it up."""
        ...


class RunLocks(Protocol):
    """Kernel locks by name; `PosixLocks` is the real one."""

    def try_lock(self, directory: int, name: str) -> HeldLock:
        """Take a lock or raise PrpError ``state_locked``, without waiting."""
        ...

    def process_exists(self, pid: int) -> bool:
        """Tell whether a process of this machine has the number."""
        ...

    def wait(self, is_ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Ask now and then, at least once, and return the last answer."""
        ...


class ForeignLock(msgspec.Struct, frozen=True):
    """A lock file of the original; ``pid`` is None if it does not say whose it is."""

    pid: int | None

    def may_end(self, locks: RunLocks) -> bool:
        """Tell whether its owner lives, so that it may be waited for."""
        return self.pid is not None and locks.process_exists(self.pid)


def lock_file_name(run_id: str) -> str:
    """Return the name of the permanent lock file of a run; no run id can spell it."""
    return f".{run_id}.lock"


def foreign_lock_name(run_id: str) -> str:
    """Return the name under which the original locks a run."""
    return f"{run_id}.jsonl.lock"


def lock_run(
    fs: Filesystem, locks: RunLocks, directory: int, run_id: str, timeout_ms: int
) -> HeldLock:
    """Become the one writer of a run.

    Args:
        timeout_ms: how long to wait for a writer that lives; 0 asks once.

    Returns:
        The lock. Raises PrpError ``run_state_locked`` naming the holder, also for a lock
        file of the original, and ``state_unsafe`` if our lock file is not a private file.

    Source: faults R9, durable-runs 2, architecture 7.2.
    """
    held: list[HeldLock] = []
    refusals: list[PrpError] = []

    def is_ours() -> bool:
        try:
            held.append(locks.try_lock(directory, lock_file_name(run_id)))
        except PrpError as error:
            if error.code is not ErrorCode.STATE_LOCKED:
                raise
            refusals.append(error)
            del refusals[:-1]
            return False
        return True

    if not locks.wait(is_ours, timeout_ms):
        raise PrpError(ErrorCode.RUN_STATE_LOCKED, f"run {run_id}: {refusals[-1].message}")
    [lock] = held
    try:
        refuse_foreign_lock(fs, locks, directory, run_id, timeout_ms)
    except BaseException:
        lock.release()
        raise
    return lock


def refuse_foreign_lock(
    fs: Filesystem, locks: RunLocks, directory: int, run_id: str, timeout_ms: int
) -> None:
    """Wait for a living writer of the original to leave; raise PrpError ``run_state_locked``.

    A lock without a living owner is not waited for, and never removed: the message says
    what a person has to look at.
    """
    name = foreign_lock_name(run_id)
    last: list[ForeignLock] = []

    def is_decided() -> bool:
        last[:] = [lock] if (lock := read_foreign_lock(fs, directory, name)) else []
        return not last or not last[0].may_end(locks)

    is_settled = locks.wait(is_decided, timeout_ms)
    if not last:
        return
    pid = last[0].pid
    if pid is None:
        reason = f"{name} does not say whose it is"
    elif is_settled:
        reason = f"{name} is of process {pid}, which does not exist here"
    else:
        raise PrpError(ErrorCode.RUN_STATE_LOCKED, f"{name} is of process {pid}, which lives")
    advice = "prove that no writer is left, back up lock and log, then remove the lock"
    raise PrpError(ErrorCode.RUN_STATE_LOCKED, f"{reason}: {advice}")


def read_foreign_lock(fs: Filesystem, directory: int, name: str) -> ForeignLock | None:
    """Return what a lock file of the original says, None if there is none.

    Raises PrpError ``run_state_failed`` if the disk does not tell.
    """
    try:
        descriptor = fs.open_read(directory, name)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in UNSAFE_ERRNOS:
            return ForeignLock(None)
        raise _failed(name, error) from error
    try:
        return _owner_of(fs.read(descriptor, _FOREIGN_BYTES_MAX))
    except IsADirectoryError:
        return ForeignLock(None)
    except OSError as error:
        raise _failed(name, error) from error
    finally:
        close_quietly(fs, descriptor)


def _failed(name: str, error: OSError) -> PrpError:
    return PrpError(ErrorCode.RUN_STATE_FAILED, f"{name}: {reason_of(error)}")


def _owner_of(data: bytes) -> ForeignLock:
    try:
        value: JsonValue = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return ForeignLock(None)
    if not isinstance(value, dict):
        return ForeignLock(None)
    pid, nonce = whole_number(value.get("pid")), value.get("nonce")
    is_owner = pid is not None and pid > 0 and isinstance(nonce, str) and not is_blank(nonce)
    return ForeignLock(pid if is_owner else None)
