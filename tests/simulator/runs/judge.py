"""What a host of runs has promised, and whether its disk and its log keep it.

It decides which records a start may find, what must survive a power loss, and what a log may
say about effects. It reads the disk's bytes; it refuses to ask the product.
"""

import json
from typing import Any, Final

import msgspec

from tests.simulator.disk import BLOCK_BYTES, ROOT, Disk, File
from tests.simulator.runs.ledger import Ledger
from tests.simulator.runs.reader import FINAL, Log, effects_of, read
from tests.simulator.verdict import Violation

FOLDER: Final = "runs"
RUN: Final = "run-1"
NAME: Final = f"{RUN}.jsonl"
_AFTER_PAUSE: Final = ("resume", "control", "operation")
_ENDED: Final = ("completed", "failed")


class RunJudge:
    """Outlives every process."""

    def __init__(self, disk: Disk, ledger: Ledger) -> None:
        self._disk = disk
        self._ledger = ledger
        self.kept = 0
        """Records that any power loss leaves."""
        self.acknowledged = 0
        """Records that the end of a process leaves."""
        self.attempts: dict[int, list[str]] = {}
        """What was ever written under each number, as JSON."""
        self.attempted = 0
        self.may_have_hole = False
        """A power loss may have kept a later append and lost an earlier one."""
        self.damaged: bytes | None = None
        """The file as somebody has damaged it."""

    # --- the disk -------------------------------------------------------------------------------

    def content(self) -> bytes:
        """Return the file as every process sees it, empty if there is none."""
        file = self._file(self._disk.directory(ROOT).entries.get(FOLDER))
        return b"" if file is None else bytes(file.data) + bytes(file.tail)

    def log(self) -> Log:
        """Return what lies in the file."""
        return read(self.content())

    def _file(self, folder: int | None) -> File | None:
        if folder is None:
            return None
        number = self._disk.directory(folder).entries.get(NAME)
        found = None if number is None else self._disk.inodes[number]
        return found if isinstance(found, File) else None

    def _stable(self) -> list[bytes]:
        """Return the bytes that are sure to be left of the log, for each file it may be."""
        number = self._disk.directory(ROOT).stable.get(FOLDER)
        if number is None:
            return [b""]
        folder = self._disk.directory(number)
        numbers = {folder.stable.get(NAME)}
        for operation in folder.operations:
            if operation.added == NAME:
                numbers.add(operation.number)
            elif operation.removed == NAME:
                numbers.add(None)
        left: list[bytes] = []
        for found in sorted(numbers, key=lambda n: n or 0):
            file = None if found is None else self._disk.inodes[found]
            assert file is None or isinstance(file, File)
            left.append(b"" if file is None else _sure_part(file))
        return left

    # --- promises -------------------------------------------------------------------------------

    def attempt(self, sequence: int, kind: str, payload: object) -> None:
        """Note that a record is about to be written."""
        spelled = _spelled(kind, payload)
        versions = self.attempts.setdefault(sequence, [])
        if spelled not in versions:
            versions.append(spelled)
        self.attempted = max(self.attempted, sequence)

    def wrote(self, sequence: int, *, is_critical: bool) -> None:
        """Judge that a record was acknowledged (I7)."""
        self.acknowledged = self.attempted = sequence
        if not is_critical:
            return
        self.kept = sequence
        self._check_kept("was acknowledged")

    def _check_kept(self, what: str) -> None:
        lines = self.log().lines
        expected = b"".join(lines[: self.kept])
        for left in self._stable():
            if len(lines) < self.kept or not left.startswith(expected):
                raise Violation("I7", f"record {self.kept} {what} before it was durable")

    def check_started(self, key: str) -> None:
        """Nothing is done outside before its receipt says durably that it may have been (I7)."""
        for left in self._stable():
            effect = effects_of(read(left)).get(key)
            if effect is None or effect.status != "started":
                raise Violation("I7", "an effect began before its receipt was durable")

    def power_is_lost(self) -> None:
        """Expect what was synchronised; of several pieces an earlier one alone may be lost."""
        file = self._file(self._disk.directory(ROOT).entries.get(FOLDER))
        if file is not None and file.pieces:
            blocks = {
                offset // BLOCK_BYTES
                for start, piece in file.pieces
                for offset in (start, start + len(piece) - 1)
            }
            is_torn_apart = len(file.pieces) > 1 or len(blocks) > 1
            self.may_have_hole = self.may_have_hole or is_torn_apart
        self.acknowledged = self.kept

    def found(self, sequences: list[int], where: str) -> None:
        """Judge what a reader of the product has found, against the bytes (I22)."""
        log = self.log()
        count = len(sequences)
        if sequences != list(range(1, count + 1)):
            raise Violation("I22", f"{where} found records out of their order")
        if not self.acknowledged <= count <= self.attempted:
            allowed = f"{self.acknowledged}..{self.attempted}"
            raise Violation("I22", f"{where} found {count} records, promised {allowed}")
        if len(log.records) != count or log.damage:
            raise Violation("I22", f"{where} found {count} records, there are {len(log.records)}")
        for number, record in enumerate(log.records, start=1):
            if _spelled(record["kind"], record.get("payload")) not in self.attempts[number]:
                raise Violation("I22", f"record {number} was never written")

    def opened(self, sequences: list[int]) -> None:
        """Judge what a writer has found; it has published it anew, so that it is durable."""
        self.found(sequences, "a start")
        self.kept = self.acknowledged = self.attempted = len(sequences)
        if self.log().is_torn:
            raise Violation("I22", "a torn tail was left under a writer")
        self._check_kept("was found")

    # --- what the log may say -------------------------------------------------------------------

    def check_log(self) -> None:
        """Judge the whole log by its bytes: ends are final, unknown is not claimed (I13, I14)."""
        log = self.log()
        ended = paused = False
        state = ""
        for record in log.records:
            kind = record["kind"]
            if ended:
                raise Violation("I13", f"a {kind} stands behind the end of the run")
            if paused and kind not in _AFTER_PAUSE:
                raise Violation("I13", f"a {kind} stands behind a pause")
            if kind == "operation":
                state = _next_state(state, record["payload"])
            ended, paused = kind == "finish", kind == "pause" or (paused and kind != "resume")
        self._check_effects(log, state)

    def check_end(self) -> None:
        """Judge what a last power loss has left (I7, I13, I14)."""
        log = self.log()
        if len(log.records) < self.kept:
            raise Violation("I7", f"{len(log.records)} of {self.kept} records are left")
        self.check_log()

    def _check_effects(self, log: Log, state: str) -> None:
        for effect in effects_of(log).values():
            ends = [status for status in effect.statuses if status in FINAL]
            if len(ends) > 1:
                raise Violation("I13", f"{effect.call_id} ended as {' and '.join(ends)}")
            work = effect.call_id.partition("-")[0]
            is_done = self._ledger.is_done(work)
            says = effect.decided or effect.status
            if says == "not_started" and effect.statuses[:1] == ["started"]:
                raise Violation("I14", f"{work} had begun and is claimed as not started")
            if effect.tool == "look":
                continue
            if says == "committed" and not is_done:
                raise Violation("I14", f"{work} is claimed as done and was not")
            if state == "completed" and effect.is_in_doubt:
                raise Violation("I14", f"the run claims success and {work} is in doubt")


def _sure_part(file: File) -> bytes:
    """Return the front of a file that no power loss changes."""
    end = min((start for start, _ in file.pieces), default=len(file.stable))
    return file.stable[: min(end, len(file.stable))]


def _next_state(state: str, payload: dict[str, Any]) -> str:
    if state in _ENDED:
        raise Violation("I13", f"an operation that is {state} got {payload['event']}")
    if payload["from"] != (state or None):
        raise Violation("I13", f"{payload['event']} comes from {payload['from']}, not {state}")
    return str(payload["to"])


def _spelled(kind: str, payload: object) -> str:
    plain = None if payload is msgspec.UNSET else msgspec.to_builtins(payload)
    return json.dumps([kind, plain], sort_keys=True)
