"""The supervision of one program: its output by request, its end, and the end of its tree.

It decides when output is read, when the program has ended, and that what it said comes before
its end. It refuses to know what a line means: a provider does.

    held ─release─▶ running ─leader exits | stop | line too long─▶ ending ─tree gone─▶ emptying
                                                                                          │
         over ◀─── HarnessExited ◀─── every line was handed over ◀────────────────────────┘
"""

import abc
import asyncio
import os
import signal
from typing import Final

from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import (
    HARNESS_GRACE_MS,
    HARNESS_PIPE_READ_BYTES,
    STDERR_PAUSE_MS,
)
from protocol.process_birth import ProcessBirth
from runnerd.core.actions import ReadHarness, StopIntent
from runnerd.core.inputs import HarnessExited, ProcessExit
from runnerd.harness.descendants import Descendants
from runnerd.harness.driver import Feed
from runnerd.harness.lines import LineSplitter
from runnerd.harness.process import GatedProcess
from runnerd.harness.stderr_tail import StderrTail
from runnerd.harness.tree import Ending, Grace, ending

_MS_PER_S: Final = 1_000


class Supervised(abc.ABC):
    """Supervises one program; see `Driver`. A provider says what its lines are.

    Standard output is read only while the core asks for lines and none is held, so a
    program that prints faster than its lines become durable has to wait. Standard error is
    read always, so nobody waits for that.
    """

    def __init__(
        self,
        generation: Generation,
        process: GatedProcess,
        descendants: Descendants,
        feed: Feed,
        line_bytes_max: int,
    ) -> None:
        self._generation = generation
        self._process = process
        self._descendants = descendants
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._line_bytes_max = line_bytes_max
        self._splitter = LineSplitter(line_bytes_max)
        self._tail = StderrTail()
        self._asked: ReadHarness | None = None
        self._is_listening = False
        self._grace = Grace(0)
        self._ending: Ending | None = None
        self._next_look: asyncio.Handle | None = None
        self._survivors: asyncio.Future[int] = self._loop.create_future()
        self._violation: ErrorCode | None = None
        self.is_over = False
        descendants.watch(process.birth.pid)
        self._loop.add_reader(process.pidfd, self._on_leader_exited)
        self._loop.add_reader(process.stderr.descriptor, self._on_stderr)

    @property
    def birth(self) -> ProcessBirth:
        return self._process.birth

    # --- orders --------------------------------------------------------------------------

    def release(self) -> None:
        self._process.open_gate()

    def read(self, lines_max: int, bytes_max: int) -> None:
        if self._asked is None and not self.is_over:
            self._asked = ReadHarness(
                generation=self._generation, lines_max=lines_max, bytes_max=bytes_max
            )
            self._advance()

    def stop(self, intent: StopIntent, grace_ms: int) -> None:
        # A release that comes later must find nothing to let run.
        self._process.close_gate()
        self._end_tree(grace_ms)

    async def tree_ended(self) -> int:
        return await asyncio.shield(self._survivors)

    def let_go(self) -> None:
        assert self._survivors.done(), "a tree that may live is not let go"
        if not self.is_over:
            self._let_go()

    # --- output --------------------------------------------------------------------------

    def _advance(self) -> None:
        """Hand over what was asked for, look for more, and see whether that was all."""
        self._fill()
        if self._asked is not None and self._has_answer():
            asked, self._asked = self._asked, None
            self._answer(asked)
            self._fill()
        if self.is_over:
            return
        stdout = self._process.stdout
        if self._survivors.done() and not stdout.is_open and not self._has_answer():
            self._finish()
        else:
            self._listen(self._wants_line() and stdout.is_open)

    def _wants_line(self) -> bool:
        """Tell whether a line is asked for now."""
        return self._asked is not None

    def _has_answer(self) -> bool:
        """Tell whether there is something to hand over."""
        return self._splitter.has_line

    @abc.abstractmethod
    def _answer(self, asked: ReadHarness) -> None:
        """Hand over what was asked for, as far as it is there."""

    def _fill(self) -> None:
        """Read until a line is complete, if one is asked for or no more can come."""
        stdout = self._process.stdout
        ended = self._survivors.done()
        while stdout.is_open and not self._splitter.has_line and (self._wants_line() or ended):
            data = stdout.read()
            if data is None:
                return
            if not data:
                self._close_stdout()
            self._splitter.push(data)
            if self._splitter.is_overlong:
                self._tail.push_line(f"[a line of its output exceeds {self._line_bytes_max} bytes]")
                self._violate(ErrorCode.HARNESS_LINE_TOO_LONG)
        if ended and not stdout.is_open:
            self._settle_last_line()

    def _violate(self, code: ErrorCode) -> None:
        """Read nothing more of a program that broke a rule, and end its tree."""
        if self._violation is None:
            self._violation = code
            self._close_stdout()
            self._end_tree(HARNESS_GRACE_MS)

    def _settle_last_line(self) -> None:
        """Decide what output without a line end is, now that it is known how it ended.

        A program that exits may leave the end of its last line out. One that was killed was
        cut off in the middle: that piece would count as a line which the program, when it
        continues, has never completed. It is kept as a diagnostic.
        """
        returncode = self._returncode()
        if returncode is not None and returncode >= 0:
            self._splitter.finish_last()
        elif torn := self._splitter.take_torn():
            self._tail.push_line(f"[unfinished last line of output] {torn}")

    def _listen(self, wanted: bool) -> None:
        if wanted != self._is_listening:
            self._is_listening = wanted
            if wanted:
                self._loop.add_reader(self._process.stdout.descriptor, self._advance)
            else:
                self._loop.remove_reader(self._process.stdout.descriptor)

    def _close_stdout(self) -> None:
        self._listen(False)
        self._process.stdout.close()

    def _on_stderr(self) -> None:
        stderr = self._process.stderr
        data = stderr.read()
        if data is None:
            return
        self._tail.push(data)
        if not data:
            self._close_stderr()
        elif len(data) == HARNESS_PIPE_READ_BYTES:
            # A loop that is never idle would keep the writer thread from running.
            self._loop.remove_reader(stderr.descriptor)
            self._loop.call_later(STDERR_PAUSE_MS / _MS_PER_S, self._resume_stderr)

    def _resume_stderr(self) -> None:
        if self._process.stderr.is_open:
            self._loop.add_reader(self._process.stderr.descriptor, self._on_stderr)

    def _close_stderr(self) -> None:
        if self._process.stderr.is_open:
            self._loop.remove_reader(self._process.stderr.descriptor)
            self._process.stderr.close()

    # --- the end -------------------------------------------------------------------------

    def _on_leader_exited(self) -> None:
        self._loop.remove_reader(self._process.pidfd)
        self._descendants.reap()
        if self._ending is None:
            self._end_tree(HARNESS_GRACE_MS)
        else:
            self._look_soon()

    def _end_tree(self, grace_ms: int) -> None:
        """Begin or hasten the end of the leader and of everything it started."""
        if self._survivors.done():
            return
        if self._ending is None:
            self._grace = Grace(grace_ms)
            self._ending = ending(self._descendants, self._grace)
        self._grace.shorten(grace_ms)
        self._look_soon()

    def _look_soon(self) -> None:
        """Look at the tree when the loop is next free, so that no order answers itself."""
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = self._loop.call_soon(self._look)

    def _look(self) -> None:
        assert self._ending is not None
        try:
            pause_s = next(self._ending)
        except StopIteration as stop:
            self._next_look = None
            self._on_tree_ended(stop.value)
        else:
            self._next_look = self._loop.call_later(pause_s, self._look)

    def _on_tree_ended(self, survivors: int) -> None:
        self._descendants.reap()
        self._loop.remove_reader(self._process.pidfd)
        stderr = self._process.stderr
        stderr.end_with_present()
        while stderr.is_open and (data := stderr.read()):
            self._tail.push(data)
        self._close_stderr()
        self._process.stdout.end_with_present()
        self._survivors.set_result(survivors)
        self._advance()

    def _finish(self) -> None:
        returncode = self._returncode()
        self._let_go()
        self._feed(
            HarnessExited(
                generation=self._generation,
                exit=_process_exit(returncode),
                logs=self._tail.logs(),
                violation=self._violation,
                survivors=self._survivors.result(),
            )
        )

    def _returncode(self) -> int | None:
        status = self._descendants.status(self.birth.pid)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def _let_go(self) -> None:
        self.is_over = True
        returncode = self._returncode()
        self._descendants.forget(self.birth.pid)
        self._listen(False)
        self._process.let_go(-signal.SIGKILL if returncode is None else returncode)


def _process_exit(returncode: int | None) -> ProcessExit:
    if returncode is None:
        return ProcessExit()
    if returncode < 0:
        return ProcessExit(success=False, signal=-returncode)
    return ProcessExit(exit_code=returncode, success=returncode == 0)
