"""A history of starts and saves on a simulated disk, checked against what it promised.

It decides which state a start may find. It refuses to know how the file is written: it
is given a way to make one, so that planted bugs are judged by the same check.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocol.base.atomic_file import AtomicFile
from protocol.base.ports import Entropy, Filesystem
from protocol.base.reserve import Reserve
from protocol.errors import ErrorCode, PrpError
from protocol.reactions import REACTIONS, Reaction
from tests.simulator.choices import Choices
from tests.simulator.disk import Directory, Disk, File, Mode
from tests.simulator.disk_faults import Call, Died, Nemesis
from tests.simulator.disk_process import DiskProcess

Factory = Callable[[Filesystem, Entropy], AtomicFile]

SIZE_MAX = 64 * 1024
PATH = "/var/state/run-1"
BODIES = (b'"first"', b'"' + b"second" * 800 + b'"', b'"third"')
LAST_BODY = b'"last"'
RESERVE_NAME = "state.reserve"
EXTRA_BYTES = 8 * 1024


def real_file(fs: Filesystem, entropy: Entropy) -> AtomicFile:
    return new_file(AtomicFile, fs, entropy)


def reserved_file(fs: Filesystem, entropy: Entropy) -> AtomicFile:
    """A file with a reserve, on a disk that others fill as soon as there is one."""
    assert isinstance(fs, DiskProcess)
    files = [inode for inode in fs.disk.inodes.values() if isinstance(inode, File)]
    if any(file.allocated >= EXTRA_BYTES for file in files):
        fs.disk.capacity_bytes = sum(file.room for file in files)
    return AtomicFile(
        fs,
        entropy,
        directory=PATH,
        name="state.json",
        schema="test.state.v1",
        size_max=SIZE_MAX,
        reserve=Reserve(fs, name=RESERVE_NAME, extra_bytes=EXTRA_BYTES, step_bytes=4096),
    )


def new_file(kind: type[AtomicFile], fs: Filesystem, entropy: Entropy) -> AtomicFile:
    return kind(
        fs,
        entropy,
        directory=PATH,
        name="state.json",
        schema="test.state.v1",
        size_max=SIZE_MAX,
    )


class CountingEntropy:
    """Bytes that never repeat and are the same in every pass."""

    def __init__(self) -> None:
        self._count = 0

    def token_bytes(self, count: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(count, "big")


@dataclass
class History:
    """What was promised so far, and each promise that was then found broken."""

    promised: bytes | None = None
    attempted: bytes | None = None
    violations: list[str] = field(default_factory=list[str])

    def found(self, content: bytes | None, where: str) -> None:
        """Judge what a load found; the answer is what later loads must find as well."""
        allowed = {self.promised, self.attempted or self.promised}
        if content not in allowed:
            number = "I7" if content in (None, *BODIES, LAST_BODY) else "I8"
            found = "nothing" if content is None else f"{len(content)} bytes"
            self.violations.append(f"{number} {where}: found {found}, which was not promised")
        self.promised, self.attempted = content, None

    def saved(self, body: bytes) -> None:
        self.promised, self.attempted = body, None


@dataclass(frozen=True)
class Machine:
    """One disk, one file, and the way in which a start reads it."""

    make_file: Factory
    mode: Mode = Mode.STRICT
    uses_recover: bool = True
    bodies: tuple[bytes, ...] = BODIES


class World:
    """A machine whose process is started again and again."""

    def __init__(self, machine: Machine, choices: Choices) -> None:
        self.disk = Disk(machine.mode)
        self.history = History()
        self.last_calls: list[Call] = []
        self._machine = machine
        self._choices = choices
        self._entropy = CountingEntropy()
        var = self.disk.add(Directory(0o755, self.disk.uid))
        root = self.disk.directory(1)
        root.entries["var"] = root.stable["var"] = var

    @property
    def violations(self) -> list[str]:
        return self.history.violations + self.disk.violations

    def run_process(self, bodies: tuple[bytes, ...], nemesis: Nemesis | None = None) -> None:
        """Start a process, let it save ``bodies`` one after the other, and end it."""
        process = DiskProcess(self.disk, nemesis, self._choices)
        file = self._machine.make_file(process, self._entropy)
        try:
            self._start_and_save(file, bodies)
            file.close()
        except Died:
            return
        except PrpError as error:
            file.close()
            if error.code in (ErrorCode.STATE_CORRUPT, ErrorCode.STATE_FOREIGN):
                self.history.violations.append(f"I8 the state is not whole: {error}")
            elif REACTIONS[error.code] not in (Reaction.EXIT, Reaction.FENCE):
                self.history.violations.append(f"I18 {error} is no way to end")
        finally:
            self.last_calls = process.calls
        if process.open_subjects:
            self.history.violations.append(f"I21 left open: {process.open_subjects}")

    def _start_and_save(self, file: AtomicFile, bodies: tuple[bytes, ...]) -> None:
        file.open_directory()
        file.remove_leftovers()
        file.adopt_reserve()
        self.history.found(file.recover() if self._machine.uses_recover else file.read(), "start")
        for body in bodies:
            try:
                self._save(file, body)
            except PrpError as error:
                if error.code is not ErrorCode.STORAGE_WRITE_FAILED:
                    raise
                self.history.found(file.read(), "after a refused save")
                self._save(file, body)

    def _save(self, file: AtomicFile, body: bytes) -> None:
        self.history.attempted = body
        try:
            file.replace(body)
        except PrpError as error:
            if error.code is ErrorCode.STORAGE_WRITE_FAILED:
                self.history.attempted = None
            raise
        self.history.saved(body)

    def check_at_the_end(self) -> None:
        """Start without faults, save, and look at what power losses leave of each promise."""
        self.disk.is_read_only = False
        self.disk.capacity_bytes = None
        if self._choices.choose("power_lost_before_next_save", 2):
            self.run_process(())
            self.disk.lose_power(self._choices)
        self.run_process((LAST_BODY,))
        if self.history.promised != LAST_BODY:
            self.history.violations.append("I20 no save after the faults stopped")
        self.disk.lose_power(self._choices)
        self.run_process(())
        names = [name for name in self._names() if name != RESERVE_NAME]
        if names != ["state.json"]:
            self.history.violations.append(f"I10 left behind: {names}")

    def _names(self) -> Iterator[str]:
        number = 1
        for name in PATH.strip("/").split("/"):
            number = self.disk.directory(number).entries[name]
        yield from self.disk.directory(number).entries
