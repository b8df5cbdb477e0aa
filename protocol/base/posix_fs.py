"""The real disk, clock, entropy and directory lock: the one impure file of `protocol`.

It decides which system calls and flags stand behind the ports. It refuses to know what is
stored, and what follows from an error.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from typing import Final

import msgspec

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.base.ports import FileStatus
from protocol.base.private_directory import refusal_of
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LOCK_POLL_MS

LOCK_FILE_NAME: Final = "runner.lock"

_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1_000
_OWNER_RECORD_BYTES_MAX: Final = 256
_START_TICKS_AFTER_NAME: Final = 19
"""Place of field 22 of /proc/PID/stat, counted after the process name. Source: proc(5)."""

_KEEP_SIZE: Final = 1
"""`FALLOC_FL_KEEP_SIZE`. Source: fallocate(2)."""


class PosixFilesystem:
    """The `Filesystem` port over the operating system; every descriptor is close-on-exec."""

    def effective_uid(self) -> int:
        return os.geteuid()

    def lstat(self, path: str) -> FileStatus:
        return _status(os.lstat(path))

    def read_link(self, path: str) -> str:
        return os.readlink(path)

    def status_of(self, directory: int, name: str) -> FileStatus:
        return _status(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def make_directory(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def open_directory(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def open_directory_in(self, directory: int, name: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=directory)

    def list_directory(self, directory: int, names_max: int) -> list[str]:
        names: list[str] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(names) == names_max:
                    break
                names.append(entry.name)
        return names

    def fstat(self, descriptor: int) -> FileStatus:
        return _status(os.fstat(descriptor))

    def change_mode(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def create_exclusive(self, directory: int, name: str, mode: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, mode, dir_fd=directory)

    def open_read(self, directory: int, name: str) -> int:
        # Without O_NONBLOCK a FIFO under this name would stop the start for ever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=directory)

    def open_append(self, directory: int, name: str) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=directory)

    def open_write(self, directory: int, name: str) -> int:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=directory)

    def read(self, descriptor: int, size_max: int) -> bytes:
        return os.read(descriptor, size_max)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, data)

    def allocate(self, descriptor: int, size: int) -> None:
        os.posix_fallocate(descriptor, 0, size)

    def allocate_ahead(self, descriptor: int, size: int) -> None:
        # The standard library has only the call that lengthens; most starts need neither.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        # Where both are, the plain name counts in as few bits as the machine has.
        allocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
        if allocate is None:
            raise OSError(errno.ENOSYS, "no room is taken in advance here")
        allocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        while allocate(descriptor, _KEEP_SIZE, 0, size) != 0:
            if (number := ctypes.get_errno()) != errno.EINTR:
                raise OSError(number, os.strerror(number))

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, directory: int, source: str, target: str) -> None:
        os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)

    def link(self, directory: int, source: str, target: str) -> None:
        self.link_into(directory, source, directory, target)

    def link_into(self, directory: int, source: str, target_directory: int, target: str) -> None:
        os.link(
            source,
            target,
            src_dir_fd=directory,
            dst_dir_fd=target_directory,
            follow_symlinks=False,
        )

    def unlink(self, directory: int, name: str) -> None:
        os.unlink(name, dir_fd=directory)


class SystemClock:
    """The `Clock` port: wall clock, and the local clock that counts suspension (R10)."""

    def now(self) -> Now:
        return Now(
            UnixMs(time.time_ns() // _NS_PER_MS),
            MonoMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS),
        )


class SystemEntropy:
    """The `Entropy` port: the kernel's generator."""

    def token_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class LockOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who holds a directory: for people to read; only the kernel's lock decides."""

    pid: int
    start_ticks: int | None = None
    boot_id: str | None = None
    host: str | None = None


class Lock:
    """A held lock. It ends with `release` or with the process, however that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the directory up; the lock file stays."""
        if self._descriptor is not None:
            # A child between its fork and its exec may still share the descriptor.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None


def lock_directory(path: str, name: str = LOCK_FILE_NAME) -> Lock:
    """Make this process the one writer of a private directory, without waiting.

    The lock file is permanent and never removed: whoever gets the kernel's lock on it has
    proven that no other writer is left. Its descriptor is not inherited by programs that
    this process starts.

    Args:
        path: a directory that `AtomicFile.open_directory` has accepted.

    Returns:
        The lock, to be kept for the life of the process. Raises PrpError
        ``state_locked`` naming the holder, ``state_unsafe`` if the lock file is not a
        private file of this user, or ``storage_unavailable`` if the disk is full or fails.

    Source: faults R9, architecture 7.2.
    """
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refusal_of(error, f"lock file {name}") from error
    except ValueError as error:
        raise _unsafe(name, "its path is not one that a file can have") from error
    try:
        return lock_name(directory, name)
    finally:
        os.close(directory)


def lock_name(directory: int, name: str) -> Lock:
    """Take the kernel's lock on a permanent file in an open directory, without waiting.

    Returns and raises what `lock_directory` does, which see.
    """
    try:
        return Lock(_lock_in(directory, name))
    except OSError as error:
        raise refusal_of(error, f"lock file {name}") from error
    except ValueError as error:
        raise _unsafe(name, "its path is not one that a file can have") from error


class PosixLocks:
    """Kernel locks by name, and waiting for one that another process has."""

    def try_lock(self, directory: int, name: str) -> Lock:
        """Do what `lock_name` does."""
        return lock_name(directory, name)

    def process_exists(self, pid: int) -> bool:
        """Tell whether a process has this number; one that may not be signalled exists."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            return True
        return True

    def wait(self, is_ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Ask every few milliseconds, at least once; return the last answer."""
        deadline = time.monotonic() + timeout_ms / _MS_PER_S
        while not is_ready():
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_POLL_MS / _MS_PER_S)
        return True


def _lock_in(directory: int, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        opened = os.fstat(descriptor)
        _check_private(opened, name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise PrpError(ErrorCode.STATE_LOCKED, _holder(descriptor)) from error
        # Another file under the name would let a second process hold a second lock.
        if not os.path.samestat(opened, os.stat(name, dir_fd=directory, follow_symlinks=False)):
            raise _unsafe(name, "was replaced while it was being locked")
        record = msgspec.json.encode(_this_process()) + b"\n"
        os.pwrite(descriptor, record, 0)
        os.ftruncate(descriptor, len(record))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_private(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(name, "is not a regular file")
    if status.st_uid != os.geteuid():
        raise _unsafe(name, "belongs to another user")
    if status.st_mode & 0o077:
        raise _unsafe(name, f"has mode {stat.S_IMODE(status.st_mode):04o}, not 0600")
    if status.st_nlink != 1:
        raise _unsafe(name, f"has {status.st_nlink} names")


def _unsafe(name: str, reason: str) -> PrpError:
    return PrpError(ErrorCode.STATE_UNSAFE, f"lock file {name}: {reason}")


def _holder(descriptor: int) -> str:
    """Name the holder by its own record, whose writing may still be under way."""
    line, _, _ = os.pread(descriptor, _OWNER_RECORD_BYTES_MAX, 0).partition(b"\n")
    try:
        owner = msgspec.json.decode(line, type=LockOwner)
    except msgspec.MsgspecError:
        return "the directory is in use by another process"
    return f"the directory is in use by process {owner.pid}"


def _this_process() -> LockOwner:
    try:
        after_name = _read_text("/proc/self/stat").rpartition(")")[2].split()
        return LockOwner(
            pid=os.getpid(),
            start_ticks=int(after_name[_START_TICKS_AFTER_NAME]),
            boot_id=_read_text("/proc/sys/kernel/random/boot_id").strip(),
            host=os.uname().nodename,
        )
    except (OSError, ValueError, IndexError):
        return LockOwner(pid=os.getpid())


def _read_text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(4096)


def _status(status: os.stat_result) -> FileStatus:
    return FileStatus(
        is_directory=stat.S_ISDIR(status.st_mode),
        is_regular=stat.S_ISREG(status.st_mode),
        is_symlink=stat.S_ISLNK(status.st_mode),
        mode=stat.S_IMODE(status.st_mode),
        owner_uid=status.st_uid,
        link_count=status.st_nlink,
        size_bytes=status.st_size,
        identity=(status.st_dev, status.st_ino),
        modified_ns=status.st_mtime_ns,
    )
