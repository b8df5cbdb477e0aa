"""The `Filesystem` port of one process on a simulated disk, with a fault at any call.

It decides what a fault does to a call and what a process loses when it dies. It refuses
to know when a fault happens: a nemesis is asked at every call.
"""

import errno
import os
from typing import TypeVar

import msgspec

from protocol.base.ports import FileStatus
from tests.simulator.choices import Choices, Tape
from tests.simulator.disk import ROOT, Directory, Disk, File, Operation, Symlink
from tests.simulator.disk_faults import (
    Call,
    Die,
    Died,
    Fault,
    Lie,
    Nemesis,
    Refuse,
    Shorten,
    TurnReadOnly,
)

SYMLINKS_FOLLOWED_MAX = 8

ResultT = TypeVar("ResultT")


class _Open(msgspec.Struct):
    number: int
    subject: str
    is_writable: bool = False
    appends: bool = False
    offset: int = 0
    has_failed_sync: bool = False


class DiskProcess:
    """One process's view of a disk. ``calls`` records what it asked for."""

    def __init__(
        self, disk: Disk, nemesis: Nemesis | None = None, choices: Choices | None = None
    ) -> None:
        self.disk = disk
        self._nemesis = nemesis
        self._choices = choices or Tape()
        self._is_dead = False
        self._open: dict[int, _Open] = {}
        self._next_descriptor = 3
        self._dies_after = False
        self.calls: list[Call] = []

    @property
    def open_subjects(self) -> list[str]:
        """What is still open, for checks on leaked descriptors."""
        return [handle.subject for handle in self._open.values()]

    @property
    def is_dead(self) -> bool:
        """True once the process is gone."""
        return self._is_dead

    def kill(self) -> None:
        """End the process between two calls; every later call of it raises `Died`."""
        if not self._is_dead:
            self._is_dead = True
            for handle in self._open.values():
                self.disk.release(handle.number)

    def effective_uid(self) -> int:
        return self.disk.uid

    def lstat(self, path: str) -> FileStatus:
        self._enter("lstat", path)
        return self._left(self._status(self._resolve(path)))

    def read_link(self, path: str) -> str:
        self._enter("read_link", path)
        inode = self.disk.inodes[self._resolve(path)]
        if not isinstance(inode, Symlink):
            raise _error(errno.EINVAL)
        return self._left(inode.target)

    def status_of(self, directory: int, name: str) -> FileStatus:
        self._enter("status_of", name)
        return self._left(self._status(self._named(directory, name)))

    def make_directory(self, path: str, mode: int) -> None:
        self._enter("make_directory", path, changes=True)
        parent, name = self._split(path)
        if name in self.disk.directory(parent).entries:
            raise _error(errno.EEXIST)
        number = self.disk.add(Directory(mode, self.disk.uid))
        self.disk.change(parent, Operation(number, added=name, is_first_name=True))
        self._left(None)

    def remove_directory(self, path: str) -> None:
        self._enter("remove_directory", path, changes=True)
        parent, name = self._split(path)
        number = self._resolve(path)
        if self.disk.directory(number).entries:
            raise _error(errno.ENOTEMPTY)
        self.disk.change(parent, Operation(number, removed=name))
        self._left(None)

    def open_directory(self, path: str) -> int:
        self._enter("open_directory", path)
        number = self._resolve(path)
        if isinstance(self.disk.inodes[number], Symlink):
            raise _error(errno.ELOOP)
        if not isinstance(self.disk.inodes[number], Directory):
            raise _error(errno.ENOTDIR)
        return self._left(self._opened(_Open(number, path)))

    def open_directory_in(self, directory: int, name: str) -> int:
        self._enter("open_directory_in", name)
        number = self._followed_nowhere(directory, name)
        if not isinstance(self.disk.inodes[number], Directory):
            raise _error(errno.ENOTDIR)
        return self._left(self._opened(_Open(number, name)))

    def list_directory(self, directory: int, names_max: int) -> list[str]:
        self._enter("list_directory", self._handle(directory).subject)
        return self._left(list(self._entries(directory))[:names_max])

    def fstat(self, descriptor: int) -> FileStatus:
        handle = self._handle(descriptor)
        self._enter("fstat", handle.subject)
        return self._left(self._status(handle.number))

    def change_mode(self, descriptor: int, mode: int) -> None:
        handle = self._handle(descriptor)
        self._enter("change_mode", handle.subject, changes=True)
        self.disk.inodes[handle.number].mode = mode
        self._left(None)

    def create_exclusive(self, directory: int, name: str, mode: int) -> int:
        self._enter("create_exclusive", name, changes=True)
        place = self._handle(directory).number
        if name in self.disk.directory(place).entries:
            raise _error(errno.EEXIST)
        number = self.disk.add(File(mode, self.disk.uid))
        self.disk.change(place, Operation(number, added=name, is_first_name=True))
        return self._left(self._opened(_Open(number, name, is_writable=True)))

    def open_read(self, directory: int, name: str) -> int:
        self._enter("open_read", name)
        return self._left(self._opened(_Open(self._followed_nowhere(directory, name), name)))

    def open_append(self, directory: int, name: str) -> int:
        self._enter("open_append", name, changes=True)
        number = self._followed_nowhere(directory, name)
        return self._left(self._opened(_Open(number, name, is_writable=True, appends=True)))

    def open_write(self, directory: int, name: str) -> int:
        self._enter("open_write", name, changes=True)
        number = self._followed_nowhere(directory, name)
        return self._left(self._opened(_Open(number, name, is_writable=True)))

    def read(self, descriptor: int, size_max: int) -> bytes:
        handle = self._handle(descriptor)
        fault = self._enter("read", handle.subject)
        inode = self.disk.inodes[handle.number]
        if not isinstance(inode, File):
            raise _error(errno.EISDIR)
        # Nothing at all would say that the file ends here.
        count = min(size_max, max(1, fault.count)) if isinstance(fault, Shorten) else size_max
        end = min(handle.offset + count, inode.size)
        data = bytes(inode.data[handle.offset : end])
        data = data.ljust(max(0, end - handle.offset), b"\0")
        handle.offset += len(data)
        return self._left(data)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        handle = self._handle(descriptor)
        fault = self._enter("write", handle.subject, changes=True)
        inode = self.disk.inodes[handle.number]
        if not handle.is_writable or not isinstance(inode, File):
            raise _error(errno.EBADF)
        if handle.appends:
            handle.offset = inode.size
        count = min(len(data), fault.count) if isinstance(fault, Shorten) else len(data)
        if self.disk.capacity_bytes is not None:
            count = min(count, max(0, inode.room + self.disk.room_left() - handle.offset))
        if count == 0 and data and not isinstance(fault, Shorten):
            raise _error(errno.ENOSPC)
        self.disk.write(inode, handle.offset, bytes(data[:count]))
        handle.offset += count
        return self._left(count)

    def allocate(self, descriptor: int, size: int) -> None:
        handle = self._handle(descriptor)
        self._enter("allocate", handle.subject, changes=True)
        if not self.disk.allocate(self._file(handle), size):
            raise _error(errno.ENOSPC)
        self._left(None)

    def allocate_ahead(self, descriptor: int, size: int) -> None:
        handle = self._handle(descriptor)
        self._enter("allocate_ahead", handle.subject, changes=True)
        if not self.disk.allocate_ahead(self._file(handle), size):
            raise _error(errno.ENOSPC)
        self._left(None)

    def truncate(self, descriptor: int, size: int) -> None:
        handle = self._handle(descriptor)
        self._enter("truncate", handle.subject, changes=True)
        self.disk.truncate(self._file(handle), size)
        self._left(None)

    def sync(self, descriptor: int) -> None:
        handle = self._handle(descriptor)
        if handle.has_failed_sync:
            self.disk.violations.append(f"I7 {handle.subject} synchronised again after a failure")
        try:
            fault = self._enter("sync", handle.subject)
        except OSError:
            handle.has_failed_sync = True
            self.disk.fail_sync(handle.number, self._choices)
            raise
        if not isinstance(fault, Lie):
            self.disk.sync(handle.number)
        self._left(None)

    def close(self, descriptor: int) -> None:
        handle = self._handle(descriptor)
        try:
            self._enter("close", handle.subject)
        finally:
            del self._open[descriptor]
            if not self._is_dead:
                self.disk.release(handle.number)
        self._left(None)

    def rename(self, directory: int, source: str, target: str) -> None:
        self._enter("rename", target, changes=True)
        place = self._handle(directory).number
        number = self.disk.directory(place).entries.get(source)
        if number is None:
            raise _error(errno.ENOENT)
        self.disk.change(place, Operation(number, removed=source, added=target))
        self._left(None)

    def link(self, directory: int, source: str, target: str) -> None:
        self._enter("link", target, changes=True)
        self._link(directory, source, directory, target)

    def link_into(self, directory: int, source: str, target_directory: int, target: str) -> None:
        self._enter("link_into", target, changes=True)
        self._link(directory, source, target_directory, target)

    def _link(self, directory: int, source: str, target_directory: int, target: str) -> None:
        number = self._named(directory, source)
        if target in self._entries(target_directory):
            raise _error(errno.EEXIST)
        operation = Operation(number, added=target)
        self.disk.change(self._handle(target_directory).number, operation)
        self._left(None)

    def unlink(self, directory: int, name: str) -> None:
        self._enter("unlink", name, changes=True)
        number = self._named(directory, name)
        self.disk.change(self._handle(directory).number, Operation(number, removed=name))
        self._left(None)

    def _enter(self, name: str, subject: str, *, changes: bool = False) -> Fault | None:
        """Count the call and let the nemesis strike before it takes effect."""
        if self._is_dead:
            raise Died
        calls = self.calls
        call = Call(len(calls), name, subject)
        calls.append(call)
        fault = None
        if self._nemesis is not None:
            self._dies_after = False
            fault = self._nemesis(call)
            if fault is not None:
                self._strike(fault)
        if changes and self.disk.is_read_only:
            raise _error(errno.EROFS)
        return fault

    def _strike(self, fault: Fault) -> None:
        if isinstance(fault, TurnReadOnly):
            self.disk.is_read_only = True
        if isinstance(fault, Refuse):
            raise _error(fault.errno)
        if isinstance(fault, Die):
            self._dies_after = fault.is_after
            if not fault.is_after:
                self._die()

    def _left(self, result: ResultT) -> ResultT:
        if self._dies_after:
            self._die()
        return result

    def _die(self) -> None:
        self.kill()
        raise Died

    def _handle(self, descriptor: int) -> _Open:
        handle = self._open.get(descriptor)
        if self._is_dead:
            raise Died
        if handle is None:
            raise _error(errno.EBADF)
        return handle

    def _file(self, handle: _Open) -> File:
        inode = self.disk.inodes[handle.number]
        if not handle.is_writable or not isinstance(inode, File):
            raise _error(errno.EBADF)
        return inode

    def _opened(self, handle: _Open) -> int:
        descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._open[descriptor] = handle
        self.disk.open(handle.number)
        return descriptor

    def _entries(self, directory: int) -> dict[str, int]:
        return self.disk.directory(self._handle(directory).number).entries

    def _named(self, directory: int, name: str) -> int:
        number = self._entries(directory).get(name)
        if number is None:
            raise _error(errno.ENOENT)
        return number

    def _followed_nowhere(self, directory: int, name: str) -> int:
        number = self._named(directory, name)
        if isinstance(self.disk.inodes[number], Symlink):
            raise _error(errno.ELOOP)
        return number

    def _status(self, number: int) -> FileStatus:
        inode = self.disk.inodes[number]
        return FileStatus(
            is_directory=isinstance(inode, Directory),
            is_regular=isinstance(inode, File),
            is_symlink=isinstance(inode, Symlink),
            mode=inode.mode,
            owner_uid=inode.uid,
            link_count=self.disk.link_count(number),
            size_bytes=inode.size if isinstance(inode, File) else 0,
            identity=(ROOT, number),
            modified_ns=0,
        )

    def _split(self, path: str) -> tuple[int, str]:
        head, _, name = path.rpartition("/")
        number = self._follow(self._resolve(head or "/"))
        if not isinstance(self.disk.inodes[number], Directory):
            raise _error(errno.ENOTDIR)
        return number, name

    def _resolve(self, path: str) -> int:
        """Return the inode under an absolute path, not following a symlink in its last part."""
        if path.strip("/") == "":
            return ROOT
        parent, name = self._split(path)
        number = self.disk.directory(parent).entries.get(name)
        if number is None:
            raise _error(errno.ENOENT)
        return number

    def _follow(self, number: int) -> int:
        for _ in range(SYMLINKS_FOLLOWED_MAX):
            inode = self.disk.inodes[number]
            if not isinstance(inode, Symlink):
                return number
            number = self._resolve(inode.target)
        raise _error(errno.ELOOP)


def _error(number: int) -> OSError:
    # The constructor picks the subclass, e.g. FileNotFoundError, as the kernel's answer does.
    return OSError(number, os.strerror(number))
