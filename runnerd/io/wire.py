"""One socket on the event loop: bytes to the link, the link's bytes to the socket.

It decides when bytes move: what one turn of the loop has to say leaves together, nothing is
sealed for a peer that does not read, nothing is read while it does not, and silence has an
end. It refuses to know what a message leads to.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.base.ports import Clock
from protocol.errors import ErrorCode
from protocol.limits import (
    HANDSHAKE_STEP_TIMEOUT_MS,
    KEY_LIFETIME_MS_MAX,
    PEER_ANSWER_TIMEOUT_MS,
    PEER_SILENCE_MS,
    READ_AHEAD_BYTES_MAX,
    SOCKET_READ_BYTES,
    WRITE_BUFFER_HIGH_BYTES,
)
from runnerd.core.actions import SendEvent, SendResult
from runnerd.core.inputs import ConnectFailed, ConnectionLost, Input
from runnerd.io.link import Link, Phase

_MS: Final = 1000
_SILENCE_S: Final = PEER_SILENCE_MS / _MS
_ANSWER_S: Final = PEER_ANSWER_TIMEOUT_MS / _MS


class Wire(asyncio.Protocol, asyncio.BufferedProtocol):
    """A connection from its first byte to its one report that it ended."""

    def __init__(self, link: Link, clock: Clock, post: Callable[[Input], None]) -> None:
        """Prepare for a connected socket.

        Args:
            post: takes what was received, and at last exactly one ConnectFailed (before the
                welcome) or ConnectionLost (after it), unless the wire is abandoned.
        """
        self.link = link
        self._clock = clock
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(SOCKET_READ_BYTES))
        self._waiting: deque[SendEvent | SendResult] = deque()
        self._is_full = False
        self._is_writing_state = False
        self._is_reading = True
        self._read_ahead_bytes = 0
        self._has_reported = False
        self._heard_at = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- orders ---------------------------------------------------------------------------

    def send(self, message: SendEvent | SendResult) -> None:
        """Put a message behind the others; `flush` seals and sends what the peer has room for."""
        self._waiting.append(message)

    def flush(self) -> None:
        """Hand everything that may leave now to the socket, in as few writes as possible."""
        if self._transport is None or self._has_reported:
            return
        while True:
            self._seal_some()
            if chunks := self.link.outgoing():
                self._transport.writelines(chunks)
            if self.link.failure is not None:
                self.drop(self.link.failure)
                return
            if self._is_full or not self._waiting:
                return

    def drop(self, code: ErrorCode) -> None:
        """End the connection now, without a close frame, and report why; once."""
        self._end(code, is_told=True)

    def abandon(self) -> None:
        """End the connection now; before the welcome nobody is told."""
        self._end(ErrorCode.CONNECTION_SUPERSEDED, is_told=self.link.binding is not None)

    def state_is_being_written(self, yes: bool) -> None:
        """Read only a bounded amount while a state write runs, so that it gets its turn.

        A loop that always has something to do starves the writer's thread (architecture 8.2).
        """
        self._is_writing_state = yes
        self._read_ahead_bytes = 0
        self._pause_or_resume()

    def expect_welcome(self, timeout_s: float) -> None:
        """Report ``peer_timeout`` unless each step of the handshake, and all of it, is in time."""
        self._start_timer("call", timeout_s, self._time_out)
        self._start_timer("step", HANDSHAKE_STEP_TIMEOUT_MS / _MS, self._time_out)

    # --- asyncio.Protocol -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._has_reported:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        if self.link.phase is Phase.OPEN:
            self._watch_peer()
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self._has_reported:
            return
        self._heard_at = self._loop.time()
        phase = self.link.phase
        for fact in self.link.receive(data, self._clock.now()):
            self._post(fact)
        if self.link.phase is not phase:
            self._step_done()
        self._read_ahead_bytes += len(data)
        self._pause_or_resume()
        self.flush()

    def eof_received(self) -> None:
        self.link.end()
        self.drop(ErrorCode.CONNECTION_LOST)

    def pause_writing(self) -> None:
        # A peer that pings and never reads would otherwise grow the buffer without end.
        self._is_full = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self._is_full = False
        self._pause_or_resume()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.drop(ErrorCode.CONNECTION_LOST)

    # --- the rest -------------------------------------------------------------------------

    def _seal_some(self) -> None:
        sealed_bytes = 0
        while self._waiting and not self._is_full and sealed_bytes < WRITE_BUFFER_HIGH_BYTES:
            message = self._waiting.popleft()
            if isinstance(message, SendEvent):
                self.link.send_event(message.body)
                sealed_bytes += 2 * len(message.body)
            else:
                self.link.send_result(message.result)
                sealed_bytes += 2 * len(bytes(message.result.result))

    def _pause_or_resume(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        too_far_ahead = self._is_writing_state and self._read_ahead_bytes >= READ_AHEAD_BYTES_MAX
        may_read = not self._is_full and not too_far_ahead
        if may_read and not self._is_reading:
            transport.resume_reading()
        if not may_read and self._is_reading:
            transport.pause_reading()
        self._is_reading = may_read

    def _step_done(self) -> None:
        if self.link.phase is Phase.OPEN:
            self._cancel_timers()
            self._watch_peer()
        else:
            self._start_timer("step", HANDSHAKE_STEP_TIMEOUT_MS / _MS, self._time_out)

    def _watch_peer(self) -> None:
        self._start_timer("life", _SILENCE_S, self._look_for_life)
        self._start_timer("key", KEY_LIFETIME_MS_MAX / _MS, self._outlive_key)

    def _look_for_life(self) -> None:
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= _SILENCE_S + _ANSWER_S:
            self._time_out()
        elif silent_s >= _SILENCE_S:
            self.link.ask_for_life()
            self.flush()
            self._start_timer("life", _SILENCE_S + _ANSWER_S - silent_s, self._look_for_life)
        else:
            self._start_timer("life", _SILENCE_S - silent_s, self._look_for_life)

    def _outlive_key(self) -> None:
        self.drop(ErrorCode.FRAMES_EXHAUSTED)

    def _time_out(self) -> None:
        self.drop(ErrorCode.PEER_TIMEOUT)

    def _start_timer(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        if (earlier := self._timers.get(name)) is not None:
            earlier.cancel()
        if not self._has_reported:
            self._timers[name] = self._loop.call_later(delay_s, callback)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _end(self, code: ErrorCode, *, is_told: bool) -> None:
        if self._has_reported:
            return
        self._has_reported = True
        self._cancel_timers()
        self._waiting.clear()
        binding, spent = self.link.binding, self.link.credential_spent
        self.link.fail(code)
        assert self.link.failure is not None, "a failed link says why"
        if self._transport is not None:
            self._transport.abort()
        if not is_told:
            return
        if binding is None:
            self._post(ConnectFailed(code=self.link.failure, credential_spent=spent))
        else:
            self._post(ConnectionLost(binding.connection_id, self.link.failure))
