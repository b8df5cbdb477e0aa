"""The harness of a runner node: scripted programs behind the production executor's face.

It decides when a program answers. It refuses to start processes.
"""

from collections.abc import Callable
from typing import Final

from msgspec import structs

from protocol.ids import Generation
from protocol.process_birth import ProcessBirth
from runnerd.core.actions import (
    ReadHarness,
    ReleaseHarness,
    StartHarness,
    StopHarness,
    TellHarness,
)
from runnerd.core.inputs import (
    HarnessExited,
    HarnessLogs,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    Input,
    ProcessExit,
)
from runnerd.harness.executor import Executor, HarnessAction
from tests.simulator.draws import Stream
from tests.simulator.full.loop import VirtualLoop
from tests.simulator.short.talker import Talker, called

BIRTH: Final = ProcessBirth(
    pid=4242, process_group_id=4242, session_id=4242, start_ticks=1, boot_id="b"
)
LOGS: Final = HarnessLogs()


class Program:
    """One process tree: it outlives the runner that started it, not the machine."""

    def __init__(self, order: StartHarness, controller_seq: int, lines_planned: int) -> None:
        self.generation: Generation = order.generation
        self.mark = order.launch_mark
        self.controller_seq = controller_seq
        self.first_line = order.lines_accepted + 1
        self.lines_planned = lines_planned
        self.printed = 0
        self.runs = False
        self.is_alive = False
        self.is_stopped = False
        self.code: int | None = 0
        self.signal: int | None = None
        self.replaces: str | None = None
        """Mark of the program that was lost within the same turn, if this takes its place."""
        self.talker = Talker.ordered(order, controller_seq) if order.kind == "jsonl" else None
        """What it says and is told, if it speaks messages."""
        self.large_input: int | None = None
        """Characters of the large input that it begins with."""

    @property
    def was_lost(self) -> bool:
        """True if a signal ended it that its runner had not ordered."""
        return self.signal is not None and not self.is_stopped and not self.is_alive


class ProgramWorld:
    """What the outside world thinks of programs; told by every executor of a machine."""

    def __init__(self, stream: Stream, line_text: Callable[[int], str]) -> None:
        self.stream = stream
        self.line_text = line_text
        self.program: Program | None = None
        self.may_fail = False
        self.may_print_much = False
        self.is_hurried = False
        """True once nothing is to be gained by waiting for programs."""
        self.ordered: Callable[[StartHarness], int] = lambda _: 0
        """Judges an order to spawn and returns the command that it answers."""
        self.spawned: Callable[[Program], None] = lambda _: None
        self.released: Callable[[Generation], None] = lambda _: None
        self.told: Callable[[Talker, TellHarness], None] = lambda talker, order: None
        self.large_inputs: tuple[int, ...] = ()
        """Characters of inputs that are as large as may be, or a little larger."""


class SimulatedExecutor(Executor):
    """Answers each order after a while, as a process would."""

    def __init__(
        self, post: Callable[[Input], None], loop: VirtualLoop, programs: ProgramWorld
    ) -> None:
        self._post = post
        self._virtual_loop = loop
        self._programs = programs
        self._mine: Program | None = None
        self._reading: ReadHarness | None = None

    def perform(self, action: HarnessAction) -> None:
        if isinstance(action, StartHarness):
            self._start_program(action)
            return
        program = self._mine
        if program is None or action.generation != program.generation:
            return
        match action:
            case ReleaseHarness():
                if not program.runs:
                    self._programs.released(program.generation)
                    program.runs = True
            case ReadHarness():
                if self._reading is None:
                    self._reading = action
                    self._later("print", self._print)
            case TellHarness() if program.talker is not None:
                self._programs.told(program.talker, action)
                self._later("take", lambda: self._take(program))
            case StopHarness():
                if not program.is_stopped:
                    program.is_stopped = True
                    self._later("stop", self._end)
            case _:
                return

    def abandon(self) -> None:
        """End what lives, as an orderly end of the runner does."""
        if self._mine is not None:
            self._mine.is_alive = False
            self._mine = None

    def _later(self, label: str, act: Callable[[], None]) -> None:
        waits = (0,) if self._programs.is_hurried else (0, 1, 20, 2_000)
        delay_ms = self._programs.stream.pick(f"{label} after", waits)
        self._virtual_loop.call_later(delay_ms / 1000, act)

    def _start_program(self, order: StartHarness) -> None:
        if self._mine is not None and self._mine.generation >= order.generation:
            return
        seq = self._programs.ordered(order)
        planned = (3, 60, 200) if self._programs.may_print_much else (3, 0, 12, 30)
        lines = self._programs.stream.pick("lines planned", planned)
        before, program = self._mine, Program(order, seq, lines)
        if before is not None and before.was_lost and before.controller_seq == seq:
            program.replaces = before.mark
        if self._programs.large_inputs and program.talker is not None:
            program.large_input = self._programs.stream.pick("large", self._programs.large_inputs)
        self._mine, self._reading = program, None
        if self._programs.may_fail and self._programs.stream.chance("no program", 20):
            failed = HarnessStartFailed(order.generation, "no such program")
            self._later("spawn", lambda: self._post(failed))
            return
        self._later("spawn", lambda: self._spawn(program))

    def _spawn(self, program: Program) -> None:
        if program is not self._mine:
            return
        program.is_alive = True
        self._programs.program = program
        self._programs.spawned(program)
        self._post(HarnessSpawned(program.generation, BIRTH))

    def _print(self) -> None:
        program, order = self._mine, self._reading
        if program is None or order is None or not program.is_alive or program.is_stopped:
            return
        left = program.lines_planned - program.printed
        if self._programs.is_hurried:
            left = 0
        if not program.runs:
            self._later("print", self._print)
        elif left > 0 and program.talker is not None and not program.talker.concluded:
            self._speak(program, program.talker, order)
        elif left <= 0 or program.talker is not None:
            if self._programs.may_fail:
                outcome = ((0, None), (1, None), (None, 9), (None, None))
                program.code, program.signal = self._programs.stream.pick("exit", outcome)
            self._end()
        else:
            count = min(left, order.lines_max, self._programs.stream.between("lines", 1, 4))
            first = program.first_line + program.printed
            program.printed += count
            self._reading = None
            lines = tuple(self._programs.line_text(first + place) for place in range(count))
            self._post(HarnessOutput(program.generation, lines))

    def _speak(self, program: Program, talker: Talker, order: ReadHarness) -> None:
        """Say something; a large input comes first, so that it has room."""
        if self._programs.may_fail and self._programs.stream.chance("dies", 20):
            program.code, program.signal = None, 9
            self._end()
            return
        talker.reading, self._reading = order, None
        if talker.is_ready and program.large_input is not None:
            said = structs.replace(called("call_large"), input={"title": "x" * program.large_input})
            program.large_input = None
            self._post(talker.say(said))
            return
        messages = talker.speak(self._programs.stream)
        program.printed += len(messages.messages)
        self._post(messages)

    def _take(self, program: Program) -> None:
        """Let the program's pipe take what it was told."""
        talker = program.talker
        if program is not self._mine or not program.is_alive or talker is None:
            return
        if talker.taken_through < talker.told_through:
            self._post(talker.take(self._programs.stream))
            if talker.taken_through < talker.told_through:
                self._later("take", lambda: self._take(program))

    def _end(self) -> None:
        program = self._mine
        if program is None or not program.is_alive:
            return
        if program.is_stopped and program.code == 0:
            program.code, program.signal = None, 15
        program.is_alive = False
        self._reading = None
        self._post(
            HarnessExited(
                generation=program.generation,
                exit=ProcessExit(
                    exit_code=program.code, success=program.code == 0, signal=program.signal
                ),
                logs=LOGS,
            )
        )
