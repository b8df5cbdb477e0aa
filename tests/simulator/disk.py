"""A disk that forgets what was not synchronised (faults.md 5.4).

It decides what a power loss leaves of files and directories. It refuses to know which
process did what: `disk_process` is the port through which one process sees this disk.

    file       stable bytes   + pieces written and not synchronised, torn at 4 KiB blocks
    directory  stable entries + operations not synchronised, in order
"""

import enum
import sys
from collections.abc import Iterator

import msgspec

from tests.simulator.choices import Choices

BLOCK_BYTES = 4096
ROOT = 1


class Mode(enum.Enum):
    """How much a power loss may reorder the operations on a directory."""

    STRICT = "strict"
    """Any of the operations may be missing; each one is whole."""
    EXT4_LIKE = "ext4-like"
    """The last ones may be missing; a file's own sync keeps its first name."""


class File(msgspec.Struct):
    """Bytes as every process sees them, and as a power loss would find them."""

    mode: int
    uid: int
    data: bytearray = msgspec.field(default_factory=bytearray)
    stable: bytes = b""
    pieces: list[tuple[int, bytes]] = []
    tail: int = 0
    stable_tail: int = 0
    """Zeros behind ``data`` and ``stable``, of which nothing need be kept but their number."""
    is_cut: bool = False
    """Its length was changed without a write, and that is not synchronised."""
    allocated: int = 0
    """Bytes that a write needs no room for."""

    @property
    def room(self) -> int:
        """Bytes that this file takes from the disk."""
        return max(self.size, self.allocated)

    @property
    def size(self) -> int:
        """Length as every process sees it."""
        return len(self.data) + self.tail


class Operation(msgspec.Struct, gc=False):
    """One change of a directory: a name taken away, a name given, or both at once."""

    number: int
    removed: str | None = None
    added: str | None = None
    is_first_name: bool = False


class Directory(msgspec.Struct):
    """Entries as every process sees them, and as a power loss would find them."""

    mode: int
    uid: int
    entries: dict[str, int] = {}
    stable: dict[str, int] = {}
    operations: list[Operation] = []


class Symlink(msgspec.Struct):
    """A name for another path."""

    target: str
    mode: int = 0o777
    uid: int = 0


Inode = File | Directory | Symlink


class Disk:
    """All inodes of one machine; it outlives every process on it."""

    def __init__(self, mode: Mode = Mode.STRICT, *, uid: int = 1000) -> None:
        self.mode = mode
        self.uid = uid
        self.is_read_only = False
        self.capacity_bytes: int | None = None
        """Room for files; None is a disk that never fills."""
        self.violations: list[str] = []
        """What a process did that no correct one does; checks print and reject it."""
        self.last_losses: set[str] = set()
        """What power losses have done, for whoever counts that."""
        root = Directory(0o755, uid)
        self.inodes: dict[int, Inode] = {ROOT: root}
        self.directories: dict[int, Directory] = {ROOT: root}
        """Those of the inodes that are directories."""
        self.opened: dict[int, int] = {}
        """How often each inode is open in a living process, if it is."""
        self._next_number = ROOT + 1

    def add(self, inode: Inode) -> int:
        """Give an inode its number; it has no name yet."""
        number = self._next_number
        self._next_number += 1
        self.inodes[number] = inode
        if isinstance(inode, Directory):
            self.directories[number] = inode
        return number

    def directory(self, number: int) -> Directory:
        return self.directories[number]

    def open(self, number: int) -> None:
        """Keep an inode while a process has it open."""
        self.opened[number] = self.opened.get(number, 0) + 1

    def release(self, number: int) -> None:
        """Let a process have an inode open once less."""
        left = self.opened.pop(number, 0) - 1
        if left > 0:
            self.opened[number] = left

    def link_count(self, number: int) -> int:
        return sum(
            [list(place.entries.values()).count(number) for place in self.directories.values()]
        )

    def change(self, number: int, operation: Operation) -> None:
        """Let an operation on a directory be seen; a power loss may still take it back."""
        directory = self.directories[number]
        _apply(operation, directory.entries)
        directory.operations.append(operation)

    def write(self, file: File, offset: int, data: bytes) -> None:
        """Let written bytes be seen; a power loss may still tear them at block edges."""
        size = file.size
        assert offset <= size, "a file with a hole is not modelled"
        if offset > len(file.data):
            file.data.extend(bytes(offset - len(file.data)))
        file.data[offset : offset + len(data)] = data
        file.tail = max(0, size - len(file.data))
        if data:
            file.pieces.append((offset, data))

    @property
    def refuses_writes(self) -> bool:
        """True while a call may fail although no fault strikes it."""
        return self.is_read_only or self.capacity_bytes is not None

    def room_left(self) -> int:
        """Return how many bytes files may still grow by."""
        if self.capacity_bytes is None:
            return sys.maxsize
        named = {number for place in self.directories.values() for number in place.entries.values()}
        return self.capacity_bytes - sum(
            inode.room
            for number, inode in self.inodes.items()
            if isinstance(inode, File) and (number in named or number in self.opened)
        )

    def allocate(self, file: File, size: int) -> bool:
        """Lengthen a file by zeros that take their room now; False if there is not enough."""
        if not self.allocate_ahead(file, size):
            return False
        if size > file.size:
            file.is_cut = True
            file.tail += size - file.size
        return True

    def allocate_ahead(self, file: File, size: int) -> bool:
        """Take room for a file to become so long; False if there is not enough."""
        if size - file.room > self.room_left():
            return False
        file.allocated = max(file.allocated, size)
        return True

    def truncate(self, file: File, size: int) -> None:
        """Cut a file; a power loss may still find its old length."""
        file.is_cut = True
        file.tail = max(0, size - len(file.data))
        del file.data[size:]
        file.pieces = [
            (start, piece[: size - start]) for start, piece in file.pieces if start < size
        ]
        file.allocated = min(file.allocated, size)

    def sync(self, number: int) -> None:
        """Make what is not synchronised of an inode stable; what counts as written is not seen."""
        inode = self.inodes[number]
        if isinstance(inode, File):
            _keep(inode)
            if self.mode is Mode.EXT4_LIKE:
                self._keep_first_name(number)
        elif isinstance(inode, Directory) and inode.operations:
            loses_names = False
            for operation in inode.operations:
                loses_names = loses_names or not operation.is_first_name
                _apply(operation, inode.stable)
            inode.operations.clear()
            if loses_names:
                self._forget_nameless()

    def fail_sync(self, number: int, choices: Choices) -> None:
        """Fail a sync: its data may be kept, torn or lost, and now counts as written.

        So a second sync will report success and keep nothing more.
        """
        inode = self.inodes[number]
        if isinstance(inode, File):
            self._settle(inode, choices)
        elif isinstance(inode, Directory):
            inode.stable = self._entries_after_loss(inode, choices)
            inode.operations.clear()

    def lose_power(self, choices: Choices) -> None:
        """Keep what is stable, and of the rest what ``choices`` leaves."""
        self.is_read_only = False
        self.opened.clear()
        for place in self.directories.values():
            place.stable = self._entries_after_loss(place, choices)
            place.entries = dict(place.stable)
            if any(_is_undone(operation, place.entries) for operation in place.operations):
                self.last_losses.add("power loss dropped a rename")
            place.operations.clear()
        self._forget_nameless()
        for inode in self.inodes.values():
            if isinstance(inode, File):
                self._settle(inode, choices)
                if bytes(inode.data) != inode.stable:
                    inode.data = bytearray(inode.stable)
                    self.last_losses.add("power loss tore a file")
                inode.tail = inode.stable_tail
                inode.allocated = min(inode.allocated, inode.size)

    def _entries_after_loss(self, directory: Directory, choices: Choices) -> dict[str, int]:
        entries = dict(directory.stable)
        operations = directory.operations
        if self.mode is Mode.EXT4_LIKE:
            lost = choices.choose("operations_lost", len(operations) + 1)
            operations = operations[: len(operations) - lost]
        for operation in operations:
            if self.mode is Mode.EXT4_LIKE or choices.choose("operation_lost", 2) == 0:
                _apply(operation, entries)
        return entries

    def _settle(self, file: File, choices: Choices) -> None:
        """Let bytes and length be stable as far as ``choices`` keeps them."""
        if not file.pieces and not file.is_cut:
            return
        old, new = len(file.stable) + file.stable_tail, file.size
        edges = range((old // BLOCK_BYTES + 1) * BLOCK_BYTES, new, BLOCK_BYTES)
        if file.is_cut:
            # A length that was set is on the disk or is not.
            edges = range(0)
        lengths = sorted({old, new, *edges}, key=lambda length: (length != new, -length))
        length = lengths[choices.choose("length", len(lengths))]
        after = bytearray(file.stable[:length])
        for start, piece in _blocks(file.pieces):
            if start < length and choices.choose("block_lost", 2) == 0:
                _put(after, start, piece[: length - start])
        file.stable, file.stable_tail = bytes(after), length - len(after)
        file.pieces.clear()
        file.is_cut = False

    def _keep_first_name(self, number: int) -> None:
        """A journal keeps order: what was done to the directory before is kept as well."""
        for directory in self.directories.values():
            for place, operation in enumerate(directory.operations):
                if operation.number == number and operation.is_first_name:
                    for kept in directory.operations[: place + 1]:
                        _apply(kept, directory.stable)
                    del directory.operations[: place + 1]
                    break

    def _forget_nameless(self) -> None:
        named = {ROOT, *self.opened}
        for place in self.directories.values():
            named.update(place.entries.values(), place.stable.values())
            for operation in place.operations:
                named.add(operation.number)
        for number in self.inodes.keys() - named:
            del self.inodes[number]
            self.directories.pop(number, None)


def _is_undone(operation: Operation, entries: dict[str, int]) -> bool:
    """Tell whether a rename is not there any more."""
    is_rename = operation.removed is not None and operation.added is not None
    return is_rename and entries.get(operation.added or "") != operation.number


def _apply(operation: Operation, entries: dict[str, int]) -> None:
    if operation.removed is not None and entries.get(operation.removed) == operation.number:
        del entries[operation.removed]
    if operation.added is not None:
        entries[operation.added] = operation.number


def _keep(file: File) -> None:
    """Let everything that was written be stable."""
    if len(file.pieces) == 1 and file.pieces[0][0] == 0 and len(file.pieces[0][1]) == file.size:
        file.stable, file.stable_tail = file.pieces[0][1], 0
    elif file.pieces or file.is_cut:
        after = bytearray(file.stable[: file.size])
        for start, piece in file.pieces:
            _put(after, start, piece)
        file.stable, file.stable_tail = bytes(after), file.size - len(after)
    file.pieces.clear()
    file.is_cut = False


def _put(after: bytearray, start: int, piece: bytes) -> None:
    # Blocks that were allocated and never reached the disk read as zeros.
    after.extend(bytes(max(0, start - len(after))))
    after[start : start + len(piece)] = piece


def _blocks(pieces: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield what was written block by block, as far as one write can tear."""
    for offset, data in pieces:
        done = 0
        while done < len(data):
            start = offset + done
            count = min(len(data) - done, BLOCK_BYTES - start % BLOCK_BYTES)
            yield start, data[done : done + count]
            done += count
