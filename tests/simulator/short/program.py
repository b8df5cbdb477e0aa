"""The scripted harness of a short history: what it was ordered, and what it answers.

It decides nothing by itself: an answer is given when the history asks for one. It refuses
to know turns and events.
"""

from dataclasses import dataclass
from typing import Final, Self

from protocol.ids import Generation
from protocol.process_birth import ProcessBirth
from runnerd.core.actions import ReadHarness, StartHarness
from runnerd.core.inputs import (
    HarnessExited,
    HarnessLogs,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    Input,
    ProcessExit,
)

BIRTH: Final = ProcessBirth(
    pid=4242, process_group_id=4242, session_id=4242, start_ticks=1, boot_id="b"
)
LOGS: Final = HarnessLogs()


@dataclass
class Program:
    """The newest program that was ordered; it outlives the process that started it."""

    generation: Generation
    mark: str
    controller_seq: int
    """The command that it answers."""
    lines_accepted: int
    answered_start: bool = False
    spawned: bool = False
    released: bool = False
    reading: ReadHarness | None = None
    stopping: bool = False
    ended: HarnessExited | None = None
    lines: int = 0
    replaces: str | None = None
    """Mark of the program that was lost within the same turn, if this takes its place."""

    @classmethod
    def ordered(cls, order: StartHarness, controller_seq: int) -> Self:
        """Return a program that is not spawned yet."""
        return cls(order.generation, order.launch_mark, controller_seq, order.lines_accepted)

    @property
    def was_lost(self) -> bool:
        """True if a signal ended it that its runner had not ordered."""
        ended = self.ended
        return ended is not None and ended.exit.signal is not None and not self.stopping

    @property
    def is_alive(self) -> bool:
        """True while there is a process."""
        return self.spawned and self.ended is None

    @property
    def has_answer(self) -> bool:
        """True if something is owed to the runner, or could be said."""
        if not self.answered_start:
            return True
        return self.is_alive and (self.released or self.stopping)

    def start(self, *, fails: bool) -> Input:
        """Answer the order to spawn."""
        self.answered_start = True
        if fails:
            return HarnessStartFailed(self.generation, "no such program")
        self.spawned = True
        return HarnessSpawned(self.generation, BIRTH)

    def output(self, lines: tuple[str, ...]) -> HarnessOutput:
        """Answer the present read."""
        self.reading = None
        self.lines += len(lines)
        return HarnessOutput(self.generation, lines)

    def exit(self, code: int | None, signal: int | None, survivors: int = 0) -> HarnessExited:
        """End; that is said once."""
        assert self.ended is None, "a program ends once"
        self.ended = HarnessExited(
            generation=self.generation,
            exit=ProcessExit(exit_code=code, success=code == 0, signal=signal),
            logs=LOGS,
            survivors=survivors,
        )
        self.reading = None
        return self.ended
