"""A history of starts and appends to one run's log, checked against what it promised.

It decides which records a start may find. It refuses to know how the log is written: it
is given a way to make a store, so that planted bugs are judged by the same check.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from protocol.base.ports import Entropy, Filesystem
from protocol.errors import ErrorCode, PrpError
from protocol.reactions import REACTIONS, Reaction
from runnerd.runs.records import Durability, RecordKind, RunRecord
from runnerd.runs.run_lock import RunLocks
from runnerd.runs.run_log import LogFormat
from runnerd.runs.run_store import OpenRun, RunStore
from tests.crash.saves import CountingEntropy
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.simulator.choices import Choices
from tests.simulator.disk import BLOCK_BYTES, Directory, Disk, File, Mode
from tests.simulator.disk_faults import Call, Died, Nemesis
from tests.simulator.disk_process import DiskProcess

StoreFactory = Callable[[Filesystem, Entropy, RunLocks, LogFormat], RunStore]

PATH = "/var/runs"
RUN = "run-1"
FILE = f"{RUN}.jsonl"
CRITICAL, ORDINARY = Durability.CRITICAL, Durability.ORDINARY


def real_store(
    fs: Filesystem, entropy: Entropy, locks: RunLocks, log_format: LogFormat
) -> RunStore:
    return RunStore(fs, entropy, locks, PATH, new_format=log_format)


def record(sequence: int, size: int = 20) -> RunRecord:
    kind = RecordKind.START if sequence == 1 else RecordKind.EVENT
    return RunRecord(
        run_id=RUN,
        sequence=sequence,
        timestamp="2026-01-01T00:00:00.000Z",
        kind=RecordKind.VERIFICATION if size in END_SIZES else kind,
        payload={"note": str(sequence) * size},
    )


def _is_record(line: bytes, place: int) -> bool:
    return line.startswith(b'{"version":1') and f'"sequence":{place},'.encode() in line


@dataclass(frozen=True)
class Plan:
    """What a process appends, one after the other: durability and size."""

    appends: tuple[tuple[Durability, int], ...]


END_SIZES = (21, 6001)
"""Records of these sizes end something: they have room on a full disk."""
SHORT = Plan(((CRITICAL, 20), (ORDINARY, 20), (CRITICAL, 20)))
LONG = Plan(((CRITICAL, 20), (CRITICAL, 6000), (ORDINARY, 20), (CRITICAL, 20)))
"""The second record crosses a block: a power loss may tear its middle."""
ENDING = Plan(((CRITICAL, 21), (ORDINARY, 21), (CRITICAL, 6001), (CRITICAL, 21)))
UNSETTLED = Plan(((CRITICAL, 20), (ORDINARY, 20)))
"""The last record is not synchronised."""
RESTART = Plan(((ORDINARY, 20), (CRITICAL, 20)))


@dataclass(frozen=True)
class LogMachine:
    """One disk, one log, and how its store is made."""

    make_store: StoreFactory = real_store
    mode: Mode = Mode.STRICT
    log_format: LogFormat = LogFormat.CHAINED
    plan: Plan = SHORT
    fills: bool = False
    """The disk is full when the process starts that is struck; the log has its room."""


@dataclass
class Promises:
    """Records that must be found, that may be, and each promise that was then found broken."""

    kept: int = 0
    """Acknowledged as critical, or loaded by a writer: a power loss leaves them."""
    acknowledged: int = 0
    attempted: int = 0
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    violations: list[str] = field(default_factory=list[str])

    def found(self, records: list[RunRecord], where: str, *, is_durable: bool) -> None:
        count = len(records)
        for place, seen in enumerate(records, start=1):
            if seen != record(place, self.sizes.get(place, 20)):
                self.violations.append(f"I22 {where}: record {place} is another one")
        if not self.acknowledged <= count <= self.attempted:
            allowed = f"{self.acknowledged}..{self.attempted}"
            self.violations.append(f"I22 {where}: found {count} records, promised {allowed}")
        self.acknowledged = self.attempted = count
        if is_durable:
            self.kept = count

    def power_was_lost(self) -> None:
        self.acknowledged = self.kept


class LogWorld:
    """A machine whose process is started again and again."""

    def __init__(self, machine: LogMachine, choices: Choices) -> None:
        self.disk = Disk(machine.mode)
        self.promises = Promises()
        self.last_calls: list[Call] = []
        self.is_closed = False
        """The log failed closed: a person must look."""
        self.machine = machine
        self._choices = choices
        self._entropy = CountingEntropy()
        self._had_power_loss = False
        self._before = b""
        self._attempts = 0
        var = self.disk.add(Directory(0o755, self.disk.uid))
        root = self.disk.directory(1)
        root.entries["var"] = root.stable["var"] = var

    @property
    def violations(self) -> list[str]:
        return self.promises.violations + self.disk.violations

    def lose_power(self) -> None:
        self.disk.lose_power(self._choices)
        self.promises.power_was_lost()
        self._had_power_loss = True

    def tear(self) -> None:
        """Leave part of a record behind the log, as a dead writer did long ago."""
        process = DiskProcess(self.disk)
        descriptor = process.open_append(process.open_directory(PATH), FILE)
        process.write(descriptor, b'{"version":1,"runId":"run-1","seq')
        process.sync(descriptor)
        process.kill()

    def fill(self) -> None:
        """Leave no room on the disk but what files have taken."""
        self.disk.capacity_bytes = None
        files = [inode for inode in self.disk.inodes.values() if isinstance(inode, File)]
        self.disk.capacity_bytes = sum(file.room for file in files)

    def run_process(
        self, plan: Plan, nemesis: Nemesis | None = None, *, is_killed: bool = False
    ) -> None:
        """Start a process, let it append what is planned, and end it."""
        self._before = self._content()
        self._attempts = max(self._attempts, self.promises.attempted)
        process = DiskProcess(self.disk, nemesis, self._choices)
        store = self.machine.make_store(
            process, self._entropy, MemoryLocks(), self.machine.log_format
        )
        try:
            try:
                self._append(store, plan, is_killed=is_killed)
            except PrpError as error:
                self._ended(error)
            if is_killed:
                process.kill()
                return
            store.close()
        except Died:
            return
        finally:
            self.last_calls = process.calls
        if process.open_subjects:
            self.promises.violations.append(f"I21 left open: {process.open_subjects}")

    def _append(self, store: RunStore, plan: Plan, *, is_killed: bool) -> None:
        run = store.open_run(RUN)
        try:
            records = list(run.records())
            self.promises.found(records, "start", is_durable=True)
            for durability, size in plan.appends:
                self._append_one(run, durability, size)
        finally:
            if not is_killed:
                run.close()

    def _append_one(self, run: OpenRun, durability: Durability, size: int) -> None:
        sequence = self.promises.acknowledged + 1
        self.promises.sizes[sequence] = size
        self.promises.attempted = sequence
        try:
            run.append(record(sequence, size), durability)
        except PrpError as error:
            if error.code not in (
                ErrorCode.RUN_STATE_FAILED,
                ErrorCode.DURABILITY_BARRIER_FAILED,
            ):
                raise
            # Asked again, the answer must be true as well.
            run.append(record(sequence, size), durability)
        self.promises.acknowledged = sequence
        if durability is CRITICAL:
            self.promises.kept = sequence

    def _ended(self, error: PrpError) -> None:
        if error.code is ErrorCode.RUN_STATE_CORRUPT:
            self._judge_closed(error)
        elif error.code is not ErrorCode.RUN_STATE_LOCKED and REACTIONS[error.code] not in (
            Reaction.FENCE,
            Reaction.EXIT,
        ):
            self.promises.violations.append(f"I18 {error} is no way to end")

    def _judge_closed(self, error: PrpError) -> None:
        """A hole in front of a line's end is damage to any reader (R19): a person must look.

        It may come only from a power loss that kept a later block or a later write of what
        was not synchronised, and leaves what was.
        """
        self.is_closed = True
        promised = self.promises
        unsafe = [promised.sizes.get(n, 20) for n in range(promised.kept + 1, 1 + self._attempts)]
        if not self._had_power_loss or (len(unsafe) < 2 and sum(unsafe) < BLOCK_BYTES // 2):
            promised.violations.append(f"I22 the log is not whole: {error}")
        whole = self._content().split(b"\n")[: promised.kept]
        if [place for place, line in enumerate(whole, start=1) if not _is_record(line, place)]:
            promised.violations.append(f"I22 not all of {promised.kept} records are left")
        if self._content() != self._before:
            promised.violations.append("I22 a damaged log was changed")

    def _content(self) -> bytes:
        process = DiskProcess(self.disk)
        try:
            directory = process.open_directory(PATH)
            return process.read(process.open_read(directory, FILE), 1 << 20)
        except FileNotFoundError:
            return b""
        finally:
            process.kill()

    def check_at_the_end(self) -> None:
        """Start without faults, append, and look at what power losses leave of each promise."""
        self.disk.is_read_only = False
        self.disk.capacity_bytes = None
        if self._choices.choose("power_lost_before_next_start", 2):
            self.lose_power()
        self.run_process(RESTART)
        if self.is_closed:
            return
        if self.promises.kept != self.promises.attempted:
            self.promises.violations.append("I20 no append after the faults stopped")
        self.lose_power()
        self.run_process(Plan(()))
        names = sorted(self._names())
        if names != [FILE]:
            self.promises.violations.append(f"I10 left behind: {names}")

    def _names(self) -> Iterator[str]:
        number = 1
        for name in PATH.strip("/").split("/"):
            number = self.disk.directory(number).entries[name]
        yield from self.disk.directory(number).entries
