"""Small files that a person or a supervisor hands to the daemon: read once, if private.

It decides which file is private enough to be believed. It refuses to know what it holds.
"""

import os
import stat


class NotPrivate(Exception):
    """The file cannot be read or could be another's; the text says why and names no content."""


def read_private_file(path: str, size_max: int, *, may_have_access_list: bool = False) -> bytes:
    """Return the content of a regular file that only this user, or root, may read and write.

    Args:
        may_have_access_list: the group's bit to read counts for nothing, because that is where
            an access list for a single user shows.

    Raises:
        NotPrivate: for a symlink, another kind of file, another owner, a mode that lets
            others in, more than ``size_max`` bytes, or a file that cannot be read.
    """
    # Without O_NONBLOCK a FIFO under this name would stop the start for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise NotPrivate(error.strerror or "it cannot be opened") from error
    try:
        _check(os.fstat(descriptor), size_max, 0o037 if may_have_access_list else 0o077)
        return _read_all(descriptor, size_max)
    except OSError as error:
        raise NotPrivate(error.strerror or "it cannot be read") from error
    finally:
        os.close(descriptor)


def _check(status: os.stat_result, size_max: int, others: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotPrivate("it is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise NotPrivate("it belongs to another user")
    if status.st_mode & others:
        raise NotPrivate(f"its mode is {stat.S_IMODE(status.st_mode):04o}; others may use it")
    if status.st_size > size_max:
        raise NotPrivate(f"it is larger than {size_max} bytes")


def _read_all(descriptor: int, size_max: int) -> bytes:
    content = b""
    while part := os.read(descriptor, size_max + 1 - len(content)):
        content += part
        if len(content) > size_max:
            raise NotPrivate(f"it is larger than {size_max} bytes")
    return content
