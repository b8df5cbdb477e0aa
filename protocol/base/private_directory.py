"""A directory that belongs to this user alone, and the checks on the files in it.

It decides which directory and which file are private enough to be trusted. It refuses to
know what they hold.
"""

import contextlib
import errno
from collections.abc import Callable
from typing import Final

from protocol.base.ports import FileStatus, Filesystem
from protocol.errors import ErrorCode, PrpError
from protocol.limits import LEFTOVER_NAMES_MAX

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077

UNSAFE_ERRNOS: Final = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENOTDIR)
"""The kernel's answers for a name that is not a plain private one, unlike a failing disk."""
_NAME_ERRNOS: Final = (
    *UNSAFE_ERRNOS,
    errno.EEXIST,
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.ENOENT,
)
"""The same for the name of a directory or a lock, which is expected to be usable."""


_OF_THE_DISK: Final = "lost+found"
"""What a new file system holds at its root, where a volume for the directory is mounted."""


def open_private_directory(fs: Filesystem, path: str, is_ours: Callable[[str], bool]) -> int:
    """Create a directory if it is absent, tighten it to 0700, and return it open.

    Args:
        is_ours: tells whether a name in the directory is one of this program's own. A
            directory that holds anything else may be somebody's home, or the root of the
            machine: it is used if it is private already, and its mode is never changed.

    Returns:
        A descriptor, to be used instead of the path from here on: the path may come to
        name something else. Raises PrpError ``state_unsafe`` if the path is a symlink, no
        directory, another user's, or cannot or must not be made private;
        ``storage_sync_failed`` if the directory's own name cannot be made durable;
        ``storage_unavailable`` if the disk is full or fails.

    Source: runner-behaviour 3, faults S17.
    """
    path = _without_empty_parts(path)
    try:
        _make(fs, path)
        descriptor = _opened(fs, path)
    except OSError as error:
        raise refusal_of(error, "state directory") from error
    except ValueError as error:
        raise unsafe("its name is not one that a path can have") from error
    try:
        _tighten(fs, descriptor, is_ours)
    except PrpError:
        close_quietly(fs, descriptor)
        raise
    return descriptor


def open_untouched(fs: Filesystem, path: str, is_ours: Callable[[str], bool]) -> int | None:
    """Return a directory open as it is, None if there is none.

    Raises:
        PrpError: as `open_private_directory` would, for what can be seen without changing it.
    """
    path = _without_empty_parts(path)
    try:
        descriptor = _opened(fs, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal_of(error, "state directory") from error
    except ValueError as error:
        raise unsafe("its name is not one that a path can have") from error
    try:
        _check_sharing(fs, descriptor, is_ours)
    except OSError as error:
        close_quietly(fs, descriptor)
        raise refusal_of(error, "state directory") from error
    except PrpError:
        close_quietly(fs, descriptor)
        raise
    return descriptor


def check_private_file(fs: Filesystem, status: FileStatus, name: str) -> None:
    """Refuse an open file that others may reach: PrpError ``state_unsafe``."""
    if not status.is_regular:
        raise unsafe(f"{name} is not a regular file")
    if status.owner_uid != fs.effective_uid():
        raise unsafe(f"{name} belongs to another user")
    if status.mode & _OTHERS:
        raise unsafe(f"{name} has mode {status.mode:04o}, not {FILE_MODE:04o}")
    if status.link_count != 1:
        raise unsafe(f"{name} has {status.link_count} names")


def unsafe(reason: str) -> PrpError:
    """Return the refusal of a state directory or of a file in it."""
    return PrpError(ErrorCode.STATE_UNSAFE, f"state directory: {reason}")


def refusal_of(error: OSError, subject: str) -> PrpError:
    """Return what an error of the kernel says about a directory or a lock.

    ``state_unsafe`` is for a name that somebody must correct, ``storage_unavailable`` for a
    disk that is full or fails: what it holds may be whole, and a later start may succeed.
    """
    is_name = error.errno in _NAME_ERRNOS
    code = ErrorCode.STATE_UNSAFE if is_name else ErrorCode.STORAGE_UNAVAILABLE
    return PrpError(code, f"{subject}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """Return the kernel's words for an error, without the path."""
    return error.strerror or "the disk refused a call"


def close_quietly(fs: Filesystem, descriptor: int) -> None:
    """Close where nothing was written, or another failure is the one to report."""
    try:
        fs.close(descriptor)
    except OSError:
        return


def _make(fs: Filesystem, path: str) -> None:
    """Create missing directories from the top, each durable before the next is made."""
    missing: list[str] = []
    while not _exists(fs, path):
        missing.append(path)
        path = _parent_of(path)
    # A start that died here may have left the newest of them without a durable name.
    try:
        _sync_name(fs, path, created=False)
    except PrpError:
        _remove_if_new(fs, path)
        raise
    for path in reversed(missing):
        # If another process starts here as well, the lock decides which of them stays.
        with contextlib.suppress(FileExistsError):
            fs.make_directory(path, DIRECTORY_MODE)
        try:
            _sync_name(fs, path, created=True)
        except (OSError, PrpError):
            _remove_if_new(fs, path)
            raise


def _remove_if_new(fs: Filesystem, path: str) -> None:
    """Let the next start make a directory again: a second sync of its name could be a lie.

    One that holds anything had a durable name before; one of another mode is not our making.
    """
    with contextlib.suppress(OSError):
        status = fs.lstat(path)
        if status.owner_uid == fs.effective_uid() and status.mode == DIRECTORY_MODE:
            fs.remove_directory(path)


def _exists(fs: Filesystem, path: str) -> bool:
    try:
        fs.lstat(path)
    except FileNotFoundError:
        if path == _parent_of(path):
            raise
        return False
    return True


def _sync_name(fs: Filesystem, path: str, *, created: bool) -> None:
    if path == (parent := _parent_of(path)):
        return
    try:
        descriptor = fs.open_directory(parent)
    except OSError as error:
        # A parent that we may not list is not one in which a start of ours made anything.
        if not created and error.errno in UNSAFE_ERRNOS:
            return
        raise
    try:
        fs.sync(descriptor)
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_SYNC_FAILED, reason_of(error)) from error
    finally:
        close_quietly(fs, descriptor)


def _opened(fs: Filesystem, path: str) -> int:
    status = fs.lstat(path)
    if status.is_symlink or not status.is_directory:
        raise unsafe("is a symlink or not a directory")
    return fs.open_directory(path)


def _check_sharing(fs: Filesystem, descriptor: int, is_ours: Callable[[str], bool]) -> FileStatus:
    status = fs.fstat(descriptor)
    if status.owner_uid != fs.effective_uid():
        raise unsafe("belongs to another user")
    if status.mode != DIRECTORY_MODE and not _holds_only(fs, descriptor, is_ours):
        raise unsafe(f"has mode {status.mode:04o} and holds what others put there")
    return status


def _tighten(fs: Filesystem, descriptor: int, is_ours: Callable[[str], bool]) -> None:
    try:
        status = _check_sharing(fs, descriptor, is_ours)
        if status.mode != DIRECTORY_MODE:
            fs.change_mode(descriptor, DIRECTORY_MODE)
            status = fs.fstat(descriptor)
    except OSError as error:
        raise refusal_of(error, "state directory") from error
    # Some file systems accept a change of mode and keep their own.
    if status.mode & _OTHERS:
        raise unsafe(f"keeps mode {status.mode:04o} where {DIRECTORY_MODE:04o} was asked for")


def _holds_only(fs: Filesystem, descriptor: int, is_ours: Callable[[str], bool]) -> bool:
    names = fs.list_directory(descriptor, LEFTOVER_NAMES_MAX)
    return all(name == _OF_THE_DISK or is_ours(name) for name in names)


def _without_empty_parts(path: str) -> str:
    """Drop a trailing slash or dot, behind which the kernel would follow a symlink."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts) or "."


def _parent_of(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    if path in ("/", "."):
        return path
    return head or slash or "."
