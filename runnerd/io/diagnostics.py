"""The file in which a dead daemon leaves its last words.

It decides how they get there: redacted, bounded, whole or not at all. It refuses to decide
what is worth saying.
"""

import contextlib
import os
import stat
from typing import Final

from protocol.base.ports import Entropy
from protocol.limits import DIAGNOSTICS_FILE_BYTES_MAX
from protocol.redaction import redact_text
from runnerd.flags import usage

FILE_NAME: Final = "runnerd.stderr.log"
_TEMP_RANDOM_BYTES: Final = 16


def check_diagnostics_directory(path: str) -> None:
    """Refuse what is not a private directory of this user: PrpError ``usage_invalid``.

    Source: runner-behaviour 14.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise usage(f"--diagnostics-directory: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise usage("--diagnostics-directory: it is a symlink or not a directory")
    if status.st_uid != os.geteuid():
        raise usage("--diagnostics-directory: it belongs to another user")
    if status.st_mode & 0o077:
        raise usage(
            f"--diagnostics-directory: its mode is {stat.S_IMODE(status.st_mode):04o}, not 0700"
        )


def leave_last_words(directory: str, text: str, entropy: Entropy) -> bool:
    """Replace the diagnostics file by ``text``; False if the disk would not have it.

    Source: runner-behaviour 14.
    """
    data = redact_text(text).encode(errors="replace")[:DIAGNOSTICS_FILE_BYTES_MAX]
    temp = f".{FILE_NAME}.{entropy.token_bytes(_TEMP_RANDOM_BYTES).hex()}.tmp"
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _write_new(opened, temp, data)
        os.rename(temp, FILE_NAME, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=opened)
        return False
    finally:
        os.close(opened)
    return True


def _write_new(directory: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
