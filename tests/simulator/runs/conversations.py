"""A conversation of an older program that each host opens: it is migrated, once, and whole.

It decides what may lie under the public name and beside it. It reads the files itself, and
refuses to know how the product migrates.
"""

import json
from typing import TYPE_CHECKING, Final

from protocol.base.clock import UnixMs
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Sessions
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.simulator.disk import ROOT, Directory, Disk, File
from tests.simulator.disk_process import DiskProcess
from tests.simulator.verdict import Violation

if TYPE_CHECKING:
    from tests.simulator.runs.world import World

FOLDER: Final = "sessions"
ID: Final = "s1"
CWD: Final = "/workspace/demo"
PUBLIC: Final = f"{ID}.jsonl"
BACKUP: Final = f"{PUBLIC}.v3.backup"
CREATED_AT: Final = UnixMs(1_767_225_600_000)
OLD: Final = ("old0", "old1")
_TIME: Final = "2026-01-01T00:00:01.000Z"


def legacy() -> bytes:
    """Return what the older program has left."""
    header = {"type": "session", "version": 3, "id": ID, "timestamp": _TIME, "cwd": CWD}
    lines = [
        {
            "type": "message",
            "id": f"e{number}",
            "parentId": None if number == 0 else f"e{number - 1}",
            "timestamp": _TIME,
            "message": {"id": name, "text": "x" * 300},
        }
        for number, name in enumerate(OLD)
    ]
    return "".join(json.dumps(line) + "\n" for line in (header, *lines)).encode()


class Conversations:
    """The folder of one conversation; outlives every process."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._source = legacy()
        self._has_migrated = False
        """A process has opened what was migrated; from then on it stays."""
        self._known = b""
        self._had_begun = False
        folder = Directory(0o700, disk.uid)
        number = disk.add(folder)
        root = disk.directory(ROOT)
        root.entries[FOLDER] = root.stable[FOLDER] = number
        file = disk.add(File(0o600, disk.uid, bytearray(self._source), self._source))
        folder.entries[PUBLIC] = folder.stable[PUBLIC] = file

    def open(self, fs: DiskProcess, world: "World") -> None:
        """Let a process open the conversation; it migrates what it finds."""
        self._had_begun = BACKUP in self._folder().entries
        backend = FileSessions(fs, world.machine, MemoryLocks(), f"/{FOLDER}")
        try:
            session = Sessions(backend, world.machine).open(ID, CWD, CREATED_AT)
            ids = [message["id"] for message in session.messages()]
        finally:
            backend.close()
        if tuple(ids) != OLD:
            raise Violation("I22", f"a migrated conversation has the messages {ids}")
        if not self._has_migrated:
            world.seen.add("migration resumed" if self._had_begun else "conversation migrated")
        elif self._file(PUBLIC) != self._known:
            raise Violation("I22", "migrating again changed the conversation")
        self._has_migrated, self._known = True, self._file(PUBLIC)

    def power_was_lost(self) -> None:
        """Expect that what was published stays."""
        self.check()

    def check(self) -> None:
        """The public name holds the untouched source or all of it; a backup goes first (I22)."""
        if PUBLIC not in self._folder().entries:
            raise Violation("I22", "the public name of a conversation is gone")
        data = self._file(PUBLIC)
        if data == self._source:
            if self._has_migrated:
                raise Violation("I22", "a conversation that was migrated is the old one again")
            return
        if self._ids(data) != OLD:
            raise Violation("I22", f"the public name holds {self._ids(data)}")
        if BACKUP not in self._folder().entries or self._file(BACKUP) != self._source:
            raise Violation("I22", "a conversation was published without a backup")

    def _ids(self, data: bytes) -> tuple[object, ...]:
        try:
            lines = [json.loads(line) for line in data.split(b"\n")[1:] if line]
            return tuple(line["message"]["id"] for line in lines)
        except (ValueError, KeyError, TypeError):
            return ()

    def _folder(self) -> Directory:
        return self._disk.directory(self._disk.directory(ROOT).entries[FOLDER])

    def _file(self, name: str) -> bytes:
        file = self._disk.inodes[self._folder().entries[name]]
        assert isinstance(file, File)
        return bytes(file.data)
