"""The `jsonl` provider: a program that speaks messages, one JSON object a line, both ways.

It decides that a program speaks the form, is ready in time, and is told of its end before it
is ended. It refuses to know what may be said when: the core does.

    released ─ready in time─▶ talking ─told to stop, half the grace─▶ TERM, the rest, KILL
        └─ anything else first, or nothing ─▶ harness_not_ready, ended
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.limits import HARNESS_MESSAGE_BYTES_MAX
from runnerd.core.actions import ProviderKind, ReadHarness, StartHarness, StopIntent
from runnerd.core.dialogue import COMMAND_SCHEMA
from runnerd.core.harness_messages import HarnessMessage, Logged, Ready
from runnerd.core.inputs import HarnessMessages, HarnessTold
from runnerd.harness.descendants import Descendants
from runnerd.harness.driver import Feed
from runnerd.harness.messages import read_message
from runnerd.harness.process import GatedProcess, spawn
from runnerd.harness.supervised import Supervised
from runnerd.harness.write_end import WriteEnd

KIND: Final[ProviderKind] = "jsonl"

_TOLD: Final[Mapping[StopIntent, str]] = {
    "interrupt": "turn.interrupt",
    "timeout": "turn.interrupt",
    "cancel": "run.cancel",
    "stop": "turn.stop",
}
"""What a program is told before it is ended; where authority or room is gone it is told nothing."""
_MS_PER_S: Final = 1_000


def start(
    order: StartHarness, environment: Mapping[str, str], descendants: Descendants, feed: Feed
) -> "JsonlDriver":
    """Start a program, held at its gate. Raises PrpError ``harness_start_failed``."""
    process = spawn(order.argv, order.cwd, environment)
    return JsonlDriver(order, process, descendants, feed)


class JsonlDriver(Supervised):
    """Talks with one program; see `Driver`.

    Of its output one line is read unasked: the first, which says that it is ready.
    """

    def __init__(
        self, order: StartHarness, process: GatedProcess, descendants: Descendants, feed: Feed
    ) -> None:
        super().__init__(order.generation, process, descendants, feed, HARNESS_MESSAGE_BYTES_MAX)
        self._ready_timeout_ms = order.ready_timeout_ms
        self._ready_timer: asyncio.TimerHandle | None = None
        self._stop_timer: asyncio.TimerHandle | None = None
        self._stop_grace_ms: int | None = None
        self._stdin: WriteEnd | None = None
        self._first: HarnessMessage | None = None
        self._is_ready = False
        self._is_deaf = False
        """Set at the first line that is no message: what comes after it means nothing."""
        self._messages_read = 0
        self._told_through = 0

    # --- orders --------------------------------------------------------------------------

    def release(self) -> None:
        gate = self._process.open_gate_to_write()
        if gate is None:
            return
        self._stdin = WriteEnd(gate, self._loop, self._on_taken)
        self._ready_timer = self._loop.call_later(
            self._ready_timeout_ms / _MS_PER_S, self._on_not_ready
        )
        self._advance()

    def tell(self, number: int, line: bytes) -> None:
        if number > self._told_through and self._stdin is not None and self._stop_grace_ms is None:
            self._told_through = number
            self._stdin.write(line, number)

    def stop(self, intent: StopIntent, grace_ms: int) -> None:
        present = self._stop_grace_ms
        if present is not None and present <= grace_ms:
            return
        self._stop_grace_ms = grace_ms
        can_be_told = present is None and self._is_ready and self._ending is None
        if can_be_told and self._stdin is not None and intent in _TOLD:
            self._stdin.write(self._stop_line(intent))
            told_ms = grace_ms // 2
            self._stop_timer = self._loop.call_later(
                told_ms / _MS_PER_S, super().stop, intent, grace_ms - told_ms
            )
            return
        super().stop(intent, grace_ms)

    def _stop_line(self, intent: StopIntent) -> bytes:
        command = {
            "schema": COMMAND_SCHEMA,
            "commandId": f"harness_{self._generation}_stop",
            "type": _TOLD[intent],
            "payload": {"reason": intent},
        }
        return msgspec.json.encode(command) + b"\n"

    def _on_taken(self, number: int) -> None:
        self._feed(HarnessTold(self._generation, number))

    # --- output --------------------------------------------------------------------------

    def _wants_line(self) -> bool:
        awaits_first = self._stdin is not None and not self._is_ready and self._violation is None
        return awaits_first or super()._wants_line()

    def _has_answer(self) -> bool:
        has_message = self._is_ready and not self._is_deaf and super()._has_answer()
        return self._first is not None or has_message

    def _fill(self) -> None:
        super()._fill()
        if not self._is_ready and self._violation is None and self._splitter.has_line:
            self._take_first()

    def _take_first(self) -> None:
        """Read the one line that says that the program is ready."""
        [line] = self._splitter.take_raw(1, HARNESS_MESSAGE_BYTES_MAX)
        message = self._read(line)
        if isinstance(message, Ready):
            self._first, self._is_ready = message, True
            self._cancel(self._ready_timer)
        else:
            self._tail.push_line("[the first message was not that it is ready]")
            self._violate(ErrorCode.HARNESS_NOT_READY)

    def _on_not_ready(self) -> None:
        self._tail.push_line("[it was not ready in time]")
        self._violate(ErrorCode.HARNESS_NOT_READY)

    def _answer(self, asked: ReadHarness) -> None:
        messages = [] if self._first is None else [self._first]
        self._first = None
        for line in self._splitter.take_raw(asked.lines_max - len(messages), asked.bytes_max):
            message = self._read(line)
            if message is None:
                self._is_deaf = True
                self._violate(ErrorCode.HARNESS_MESSAGE_INVALID)
                break
            messages.append(message)
        if messages:
            self._feed(HarnessMessages(self._generation, tuple(messages)))

    def _read(self, line: bytes) -> HarnessMessage | None:
        self._messages_read += 1
        try:
            message = read_message(line, self._messages_read)
        except PrpError as error:
            self._tail.push_line(f"[message {self._messages_read} is none: {error.message}]")
            return None
        if isinstance(message, Logged):
            self._tail.push_line(message.text)
        return message

    # --- the end -------------------------------------------------------------------------

    def _end_tree(self, grace_ms: int) -> None:
        self._cancel(self._ready_timer)
        self._cancel(self._stop_timer)
        if self._stdin is not None:
            self._stdin.close()
        super()._end_tree(grace_ms)

    def _let_go(self) -> None:
        self._cancel(self._ready_timer)
        self._cancel(self._stop_timer)
        if self._stdin is not None:
            self._stdin.close()
        super()._let_go()

    def _cancel(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
