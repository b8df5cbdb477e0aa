"""A session's life on a simulated disk: made or migrated, opened, written, opened again.

It decides what a start may find under the public name, in the backup and in the
conversation. It reads the disk with a reader of its own, and refuses to know how the
product writes it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.base.clock import UnixMs
from protocol.errors import ErrorCode, PrpError
from protocol.reactions import REACTIONS, Reaction
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Session, Sessions
from tests.crash.checkpoint_world import asked_again
from tests.crash.saves import CountingEntropy
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.simulator.choices import Choices
from tests.simulator.disk import BLOCK_BYTES, ROOT, Directory, Disk, File, Mode
from tests.simulator.disk_faults import Call, Died, Nemesis
from tests.simulator.disk_process import DiskProcess

FOLDER, ID, CWD = "/var/sessions", "s1", "/workspace/demo"
PUBLIC, BACKUP = f"{ID}.jsonl", f"{ID}.jsonl.v3.backup"
VERSIONS = "--workspace-demo--"
VERSION = f"2026-01-01T00-00-00-000Z_{PUBLIC}"
CREATED_AT = UnixMs(1_767_225_600_000)
NOW = UnixMs(1_770_000_000_000)

HEADER = f'{{"kind":"header","version":4,"id":"{ID}","createdAt":{CREATED_AT},"cwd":"{CWD}"}}\n'
LEGACY = "".join(
    json.dumps(line) + "\n"
    for line in (
        {
            "type": "session",
            "version": 3,
            "id": ID,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "cwd": CWD,
        },
        *(
            {
                "type": "message",
                "id": f"e{number}",
                "parentId": None if number == 0 else f"e{number - 1}",
                "timestamp": "2026-01-01T00:00:01.000Z",
                "message": {"id": f"old{number}", "text": "x" * 2500},
            }
            for number in range(2)
        ),
    )
)
OLD = ("old0", "old1")
TORN = HEADER + '{"kind":"entry","lane":"main","type":"mess'


@dataclass(frozen=True)
class Plan:
    """What lies in the folder before, and how many messages each process adds."""

    legacy: str | None = None
    version: str | None = None
    is_linked: bool = True
    """The public name is a second name of the versioned file."""
    mode: Mode = Mode.STRICT
    appends: int = 2
    size: int = 20
    """Characters of a message; a large one crosses a block, whose loss leaves a hole."""


class SessionWorld:
    """A machine whose processes open one session again and again."""

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self.disk = Disk(plan.mode)
        self.last_calls: list[Call] = []
        self._violations: list[str] = []
        self._plan = plan
        self._choices = choices
        self._entropy = CountingEntropy()
        self._kept = self._acknowledged = self._attempted = 0
        """Messages of ours that a power loss leaves, that are there, that may be."""
        self.is_closed = False
        """The session failed closed: a person must look."""
        folder = self._made(self._made(ROOT, "var"), "sessions")
        if plan.legacy is not None:
            self._put(folder, PUBLIC, plan.legacy)
        if plan.version is not None:
            number = self._put(self._made(folder, VERSIONS), VERSION, plan.version)
            if plan.is_linked:
                self._name(folder, PUBLIC, number)

    @property
    def violations(self) -> list[str]:
        return self._violations + self.disk.violations

    def lose_power(self) -> None:
        self.disk.lose_power(self._choices)
        self._acknowledged = self._kept
        self._check_files("after a power loss")

    def run_process(self, nemesis: Nemesis | None = None) -> None:
        self._run(nemesis, self._plan.appends)

    def check_at_the_end(self) -> None:
        self.disk.is_read_only = False
        if self._choices.choose("power_lost_before_next_start", 2):
            self.lose_power()
        self._run(None, 1)
        if self.is_closed:
            return
        if not self._kept:
            self._broken("I20 no append after the faults stopped")
        self.lose_power()
        self._run(None, 1)
        if (left := sorted(self._names())) != sorted(self._expected_names()):
            self._broken(f"I10 found {left}")
        known = bytes(self._file(PUBLIC))
        self._run(None, 0)
        if bytes(self._file(PUBLIC)) != known:
            self._broken("I22 opening again changed the session")

    def _run(self, nemesis: Nemesis | None, appends: int) -> None:
        process = DiskProcess(self.disk, nemesis, self._choices)
        backend = FileSessions(process, self._entropy, MemoryLocks(), FOLDER)
        try:
            try:
                sessions = Sessions(backend, self._entropy)
                session = asked_again(lambda: sessions.open(ID, CWD, CREATED_AT))
                self._found(session)
                if appends:
                    self._append(session, appends)
            except PrpError as error:
                self._ended(error)
            backend.close()
        except Died:
            return
        finally:
            self.last_calls = process.calls
            self._check_files("after a process")
        if process.open_subjects:
            self._broken(f"I21 left open: {process.open_subjects}")

    def _append(self, session: Session, appends: int) -> None:
        with session.writer() as writer:
            # Whoever may write has published what was there.
            self._kept = self._acknowledged
            for _ in range(appends):
                message = {"id": f"new{self._acknowledged}", "text": "y" * self._plan.size}
                self._attempted = self._acknowledged + 1
                try:
                    writer.append([message], NOW)
                except PrpError as error:
                    if error.code is not ErrorCode.STORAGE_WRITE_FAILED:
                        raise
                    # Nothing was added, so the same may be added now.
                    self._attempted = self._acknowledged
                    self._check_found(self._conversation(bytes(self._file(PUBLIC))), "a refusal")
                    writer.append([message], NOW)
                    self._attempted = self._acknowledged + 1
                self._kept = self._acknowledged = self._attempted

    def _found(self, session: Session) -> None:
        ids = [message["id"] for message in session.messages()]
        self._check_found(ids, "an opening")
        self._acknowledged = self._attempted = len(ids) - len(self._base)

    def _check_found(self, ids: Sequence[object], where: str) -> None:
        count = len(ids) - len(self._base)
        if list(ids) != [*self._base, *(f"new{number}" for number in range(count))]:
            self._broken(f"I22 {where}: another conversation")
        elif not self._acknowledged <= count <= self._attempted:
            allowed = f"{self._acknowledged}..{self._attempted}"
            self._broken(f"I22 {where}: {count} messages of ours, promised {allowed}")

    def _ended(self, error: PrpError) -> None:
        if error.code in (ErrorCode.SESSION_LAYOUT_CONFLICT, ErrorCode.SESSION_MIGRATION_CONFLICT):
            self._broken(f"I22 {error}")
        if REACTIONS[error.code] not in (Reaction.FENCE, Reaction.EXIT):
            self._broken(f"I18 {error} is no way to end")
        if error.code is ErrorCode.SESSION_RESTORE_FAILED and "line" in error.message:
            # A hole in front of a line's end is damage to any reader (R19).
            self.is_closed = True
            if self._plan.size < BLOCK_BYTES // 2:
                self._broken(f"I22 the session is not whole: {error}")

    def _check_files(self, where: str) -> None:
        """The public name holds the source or the session, and a migration left a backup."""
        had_public = self._plan.legacy is not None or self._plan.is_linked
        if self._plan.legacy is None and (self._plan.version is None or not had_public):
            return
        if PUBLIC not in self._folder().entries:
            self._broken(f"I22 {where}: the public name is gone")
            return
        data = bytes(self._file(PUBLIC))
        if self._plan.legacy is None or data == self._plan.legacy.encode():
            return
        ids = self._conversation(data)
        if len(ids) < len(self._base) + self._kept or ids[: len(OLD)] != list(OLD):
            self._broken(f"I22 {where}: the public name holds {ids}")
        legacy = self._plan.legacy.encode()
        if BACKUP not in self._folder().entries or bytes(self._file(BACKUP)) != legacy:
            self._broken(f"I22 {where}: published without a backup")

    @property
    def _base(self) -> tuple[str, ...]:
        return OLD if self._plan.legacy is not None else ()

    def _conversation(self, data: bytes) -> list[object]:
        """Return the ids of the whole messages, up to a torn or damaged line."""
        ids: list[object] = []
        for line in data.split(b"\n")[1:]:
            try:
                ids.append(json.loads(line.decode())["message"]["id"])
            except ValueError:
                break
        return ids

    def _names(self) -> Iterator[str]:
        yield from self._folder().entries
        if VERSIONS in self._folder().entries:
            yield from self.disk.directory(self._folder().entries[VERSIONS]).entries

    def _expected_names(self) -> list[str]:
        backup = [BACKUP] if self._plan.legacy is not None else []
        return [PUBLIC, VERSIONS, VERSION, *backup]

    def _folder(self) -> Directory:
        number = self.disk.directory(ROOT).entries["var"]
        return self.disk.directory(self.disk.directory(number).entries["sessions"])

    def _file(self, name: str) -> bytearray:
        file = self.disk.inodes[self._folder().entries[name]]
        assert isinstance(file, File)
        return file.data

    def _made(self, parent: int, name: str) -> int:
        number = self.disk.add(Directory(0o700, self.disk.uid))
        self._name(parent, name, number)
        return number

    def _put(self, parent: int, name: str, text: str) -> int:
        data = text.encode()
        number = self.disk.add(File(0o644, self.disk.uid, bytearray(data), data))
        self._name(parent, name, number)
        return number

    def _name(self, parent: int, name: str, number: int) -> None:
        directory = self.disk.directory(parent)
        directory.entries[name] = directory.stable[name] = number

    def _broken(self, what: str) -> None:
        self._violations.append(what)
