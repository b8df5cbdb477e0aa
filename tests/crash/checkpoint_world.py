"""A checkpoint's life on a simulated disk: saved, changed by a tool, marked, put back.

It decides what a start may find of the file and of its snapshot. It refuses to know how
either is written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from protocol.errors import ErrorCode, PrpError
from protocol.reactions import REACTIONS, Reaction
from runnerd.runs.capability import resolve_capability
from runnerd.runs.checkpoint import Checkpoints
from runnerd.runs.checkpoint_records import CheckpointRecord
from tests.crash.saves import CountingEntropy
from tests.simulator.choices import Choices
from tests.simulator.disk import ROOT, Directory, Disk, File, Mode
from tests.simulator.disk_faults import Call, Died, Nemesis
from tests.simulator.disk_process import DiskProcess

WORKSPACE, STORE, RUN = "/ws", "/var/checkpoints", "run-1"
TARGET, BEFORE_MODE, TOOL_MODE = "notes.txt", 0o640, 0o600
ResultT = TypeVar("ResultT")
TOOL = b"what the tool left " * 300
BEFORE = b"before " * 900


@dataclass(frozen=True)
class Plan:
    """Whether the file was there before, and how the disk reorders."""

    before: bytes | None = BEFORE
    mode: Mode = Mode.STRICT


def asked_again(action: Callable[[], ResultT]) -> ResultT:
    """Try once more after a failure: the second answer must be true as well."""
    try:
        return action()
    except PrpError:
        return action()


class CheckpointWorld:
    """A machine on which one call of a tool is made, once, and then taken back."""

    def __init__(self, plan: Plan, choices: Choices) -> None:
        self.disk = Disk(plan.mode)
        self.last_calls: list[Call] = []
        self._violations: list[str] = []
        self._plan = plan
        self._choices = choices
        self._entropy = CountingEntropy()
        self._record: CheckpointRecord | None = None
        """What a run log would have: the last record that was handed out."""
        self._has_run_tool = False
        self._is_marked = False
        self._is_restored = False
        self._is_durable = False
        """A restore has said so itself; "as it was" may stand on what only the cache holds."""
        self._make_directory("ws")
        self._make_directory("var")
        self._put_before()

    @property
    def violations(self) -> list[str]:
        return self._violations + self.disk.violations

    def lose_power(self) -> None:
        self.disk.lose_power(self._choices)
        self._check_file("after a power loss")

    def run_process(self, nemesis: Nemesis | None = None) -> None:
        process = DiskProcess(self.disk, nemesis, self._choices)
        checkpoints = Checkpoints(
            process, self._entropy, root=STORE, workspace=WORKSPACE, run_id=RUN
        )
        try:
            try:
                self._go_on(checkpoints)
            except PrpError as error:
                if REACTIONS[error.code] not in (Reaction.REJECT, Reaction.EXIT, Reaction.FENCE):
                    self._broken(f"I18 {error} is no way to end")
                if error.code is ErrorCode.CHECKPOINT_CORRUPT:
                    self._broken(f"I22 the snapshot is not whole: {error}")
            checkpoints.close()
        except Died:
            return
        finally:
            self.last_calls = process.calls
            self._check_file("after a process")
        if process.open_subjects:
            self._broken(f"I21 left open: {process.open_subjects}")

    def _go_on(self, checkpoints: Checkpoints) -> None:
        if self._record is None:
            capability = resolve_capability("write").capability
            [self._record] = asked_again(
                lambda: checkpoints.capture(capability, {"path": TARGET}, timestamp="now")
            )
        if not self._has_run_tool:
            self._put(TOOL, TOOL_MODE)
            self._has_run_tool = True
        if not self._is_marked:
            record = self._record
            self._record = asked_again(lambda: checkpoints.mark_applied(record))
            self._is_marked = True
        if not self._is_restored:
            self._restore(checkpoints, self._record)

    def _restore(self, checkpoints: Checkpoints, record: CheckpointRecord) -> None:
        found = self._file()
        try:
            checkpoints.restore(record)
        except PrpError as error:
            if error.code is ErrorCode.CHECKPOINT_CONFLICT:
                if self._file() != self._before():
                    self._broken(f"I22 a restore was refused: {error}")
                self._is_restored = True
                return
            if error.code is not ErrorCode.DURABILITY_BARRIER_FAILED and self._file() != found:
                self._broken(f"I22 {error}, and the file is another one")
            raise
        self._is_restored = self._is_durable = True

    def check_at_the_end(self) -> None:
        self.disk.is_read_only = False
        self.run_process()
        if not self._is_restored:
            self._broken("I20 no restore after the faults stopped")
        if self._file() != self._before():
            self._broken("I22 restored, and the file is not as it was")
        self.lose_power()
        self._check_leftovers()

    def _check_leftovers(self) -> None:
        """A later call of a tool sweeps up what earlier ones had to leave."""
        self._put_before()
        self._record, self._has_run_tool = None, False
        self._is_marked = self._is_restored = self._is_durable = False
        self.run_process()
        store = self._directory("var")
        for name in ("checkpoints", RUN):
            store = self.disk.directory(store).entries[name]
        left = [name for name in self.disk.directory(store).entries if name.startswith(".")]
        left += self.disk.directory(self._directory("ws")).entries
        if left not in ([], [TARGET]):
            self._broken(f"I10 left behind: {left}")

    def _check_file(self, where: str) -> None:
        """The file is whole at every moment, and a promised restore stays."""
        allowed = [self._before()]
        if self._has_run_tool and not self._is_durable:
            allowed.append((TOOL, TOOL_MODE))
        if self._file() not in allowed:
            self._broken(f"I22 {where}: the file is neither the old one nor the tool's")

    def _before(self) -> tuple[bytes, int] | None:
        return None if self._plan.before is None else (self._plan.before, BEFORE_MODE)

    def _file(self) -> tuple[bytes, int] | None:
        number = self.disk.directory(self._directory("ws")).entries.get(TARGET)
        if number is None:
            return None
        file = self.disk.inodes[number]
        assert isinstance(file, File)
        return bytes(file.data), file.mode

    def _put_before(self) -> None:
        if self._plan.before is not None:
            self._put(self._plan.before, BEFORE_MODE)
        else:
            directory = self.disk.directory(self._directory("ws"))
            directory.entries.pop(TARGET, None)
            directory.stable.pop(TARGET, None)

    def _put(self, content: bytes, mode: int) -> None:
        """Write the file as another program does that has all the time it needs."""
        number = self.disk.add(File(mode, self.disk.uid, bytearray(content), content))
        directory = self.disk.directory(self._directory("ws"))
        directory.entries[TARGET] = directory.stable[TARGET] = number
        directory.operations.clear()

    def _make_directory(self, name: str) -> None:
        number = self.disk.add(Directory(0o755, self.disk.uid))
        root = self.disk.directory(ROOT)
        root.entries[name] = root.stable[name] = number

    def _directory(self, name: str) -> int:
        return self.disk.directory(ROOT).entries[name]

    def _broken(self, what: str) -> None:
        self._violations.append(what)
