"""The ports through which a shell, a test or the simulator gives the world to pure code.

It decides which few calls the product makes to disk, clock and entropy. It refuses to
implement them: `posix_fs` is the real disk, the in-memory twins live in the tests.
"""

from typing import Protocol

import msgspec

from protocol.base.clock import Now


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the safety checks need to know of a file or directory (lstat or fstat)."""

    is_directory: bool
    is_regular: bool
    is_symlink: bool
    mode: int
    """Permission bits only, e.g. 0o600."""
    owner_uid: int
    link_count: int
    size_bytes: int
    identity: tuple[int, int]
    """Device and inode: two names of one file have the same."""
    modified_ns: int
    """When the content changed last, nanoseconds since 1970."""


class Filesystem(Protocol):
    """The calls on a disk, each of which may raise OSError.

    A directory is reached once, by path; every name in it is then used through its
    descriptor, so that a directory swapped for another during the run is never written to.
    """

    def effective_uid(self) -> int:
        """Return the user id that must own private files."""
        ...

    def lstat(self, path: str) -> FileStatus:
        """Return the status of the path itself, following no symlink in its last part."""
        ...

    def read_link(self, path: str) -> str:
        """Return what the symlink at a path names; OSError if it is none."""
        ...

    def status_of(self, directory: int, name: str) -> FileStatus:
        """Return the status of a name in an open directory, following no symlink."""
        ...

    def make_directory(self, path: str, mode: int) -> None:
        """Create one directory with at most this mode."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def open_directory(self, path: str) -> int:
        """Open a directory, following no symlink in the last part of the path."""
        ...

    def open_directory_in(self, directory: int, name: str) -> int:
        """Open a directory in an open one, following no symlink."""
        ...

    def list_directory(self, directory: int, names_max: int) -> list[str]:
        """Return up to ``names_max`` names of an open directory, in any order."""
        ...

    def fstat(self, descriptor: int) -> FileStatus:
        """Return the status of an open file or directory."""
        ...

    def change_mode(self, descriptor: int, mode: int) -> None:
        """Set the permission bits of an open file or directory."""
        ...

    def create_exclusive(self, directory: int, name: str, mode: int) -> int:
        """Create and open a new file for writing; fail if the name exists in any form."""
        ...

    def open_read(self, directory: int, name: str) -> int:
        """Open an existing file for reading, following no symlink, never blocking."""
        ...

    def open_append(self, directory: int, name: str) -> int:
        """Open an existing file so that each write adds to its end; see `open_read`."""
        ...

    def open_write(self, directory: int, name: str) -> int:
        """Open an existing file for writing over it from its beginning; see `open_read`."""
        ...

    def read(self, descriptor: int, size_max: int) -> bytes:
        """Read up to ``size_max`` bytes; empty at the end."""
        ...

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write some of ``data`` and return how many bytes."""
        ...

    def allocate(self, descriptor: int, size: int) -> None:
        """Make a file at least so long, of bytes that a later write needs no room for."""
        ...

    def allocate_ahead(self, descriptor: int, size: int) -> None:
        """Take room for a file to become so long, and leave its length as it is."""
        ...

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to ``size`` bytes."""
        ...

    def sync(self, descriptor: int) -> None:
        """Make a file's data and length, or a directory's entries, durable."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor; it is gone even if this fails."""
        ...

    def rename(self, directory: int, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically, both in one directory."""
        ...

    def link(self, directory: int, source: str, target: str) -> None:
        """Give a file a second name in its directory; fail if the name exists in any form."""
        ...

    def link_into(self, directory: int, source: str, target_directory: int, target: str) -> None:
        """Give a file a second name in another directory; see `link`."""
        ...

    def unlink(self, directory: int, name: str) -> None:
        """Remove a name."""
        ...


class Clock(Protocol):
    """Both clocks, read together."""

    def now(self) -> Now:
        """Return the present moment."""
        ...


class Entropy(Protocol):
    """Fresh random bytes."""

    def token_bytes(self, count: int) -> bytes:
        """Return ``count`` bytes that nobody can predict."""
        ...
