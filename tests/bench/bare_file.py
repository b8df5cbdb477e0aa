"""The replacement of a private file, made by nothing but system calls.

It decides what "bare" is: the least that makes the same bytes as durable as the product
promises. It refuses to know the product's own code for it.
"""

import os

_PRIVATE = 0o600


class BareFile:
    """A file that is replaced whole: sibling, sync, rename, sync of the directory."""

    def __init__(self, directory: str) -> None:
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def replace(self, data: bytes) -> None:
        """Make ``data`` the durable content."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open("state.tmp", flags, _PRIVATE, dir_fd=self._directory)
        assert os.write(descriptor, data) == len(data)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename("state.tmp", "state", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._directory)
