"""Tests of one socket on the event loop: when bytes move, when they do not, how it ends."""

import asyncio
import itertools
import socket
from collections.abc import Iterable

import msgspec

from protocol.commands import CommandResult
from protocol.envelope import LeaseRenew, Ping
from protocol.errors import ErrorCode
from protocol.events import runner_event
from protocol.ids import CommandId, ConnectionId, ControllerSeq, RevocationEpoch, SourceSeq
from protocol.limits import (
    PEER_ANSWER_TIMEOUT_MS,
    PEER_SILENCE_MS,
    READ_AHEAD_BYTES_MAX,
    WRITE_BUFFER_HIGH_BYTES,
)
from runnerd.core.actions import SendEvent, SendResult
from runnerd.core.inputs import Connected, ConnectFailed, ConnectionLost, ControlReceived, Input
from runnerd.io.link import Phase
from runnerd.io.wire import Wire
from tests.runnerd.io.links import Pair
from tests.runnerd.peer import IDENTITY, Tamper, now
from tests.runnerd.virtual_time import run_in_virtual_time

CONNECTION = ConnectionId("connection_1")


class Clock:
    """The port over the real clocks."""

    now = staticmethod(now)


class MemoryTransport(asyncio.Transport):
    """The in-memory twin of a transport: it says what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_reading_now = True
        self.is_aborted = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == WRITE_BUFFER_HIGH_BYTES

    def pause_reading(self) -> None:
        assert self.is_reading_now
        self.is_reading_now = False

    def resume_reading(self) -> None:
        assert not self.is_reading_now
        self.is_reading_now = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


class Bench:
    """A wire over a memory transport, with a peer that is fed by hand."""

    def __init__(self, tamper: Tamper | None = None, *, welcomed: bool = True) -> None:
        self.pair = Pair(tamper=tamper)
        if welcomed:
            self.pair.welcomed()
        self.posted: list[Input] = []
        self.has_posted = asyncio.Event()
        self.wire = Wire(self.pair.link, Clock(), self._post)
        self.transport = MemoryTransport()

    def _post(self, stimulus: Input) -> None:
        self.posted.append(stimulus)
        self.has_posted.set()

    def connect(self) -> None:
        self.wire.connection_made(self.transport)

    def answer(self) -> None:
        """Let the peer read what was written and the wire read its answer."""
        writes, self.transport.writes = self.transport.writes, []
        self.pair.peer.feed(b"".join(writes))
        if back := self.pair.peer.outgoing():
            self.wire.data_received(back)


def event(seq: int, size: int = 10) -> SendEvent:
    body = runner_event(
        IDENTITY,
        source_seq=SourceSeq(seq),
        event_type="item.delta",
        priority=2,
        payload={"text": "x" * size},
        emitted_at="2026-01-02T03:04:05.678Z",
    )
    return SendEvent(CONNECTION, SourceSeq(seq), body)


def result() -> SendResult:
    return SendResult(
        CONNECTION,
        CommandResult(
            command_id=CommandId("command_1"),
            command_type="session.open",
            controller_seq=ControllerSeq(1),
            status="completed",
            result=msgspec.Raw(b"{}"),
        ),
    )


RENEWAL = LeaseRenew(
    connection_lease_expires_at_unix_ms=1, connection_lease_revocation_epoch=RevocationEpoch(1)
)


# --- Writing --------------------------------------------------------------------------------


async def test_what_one_turn_has_to_say_leaves_in_one_write() -> None:
    bench = Bench()
    bench.connect()

    for seq in range(1, 6):
        bench.wire.send(event(seq))
    bench.wire.send(result())
    bench.wire.link.send_renewal(RENEWAL)
    assert bench.transport.writes == []
    bench.wire.flush()

    assert len(bench.transport.writes) == 1
    bench.answer()
    authority = bench.pair.authority
    assert [message.event.source_seq for message in authority.events] == [1, 2, 3, 4, 5]
    assert len(authority.results) == 1
    assert authority.renewals == [RENEWAL]


async def test_nothing_is_sealed_for_a_full_socket_but_what_claims_nothing() -> None:
    bench = Bench()
    bench.connect()

    bench.wire.pause_writing()
    bench.wire.send(event(1))
    bench.wire.send(event(2))
    bench.wire.link.send_renewal(RENEWAL)
    bench.wire.flush()
    bench.answer()
    while_full = (len(bench.pair.authority.events), len(bench.pair.authority.renewals))
    bench.wire.resume_writing()
    bench.answer()

    assert while_full == (0, 1)
    assert [message.event.source_seq for message in bench.pair.authority.events] == [1, 2]
    assert bench.pair.authority.refusals == []


async def test_large_backlog_is_sealed_in_bounded_pieces() -> None:
    bench = Bench()
    bench.connect()

    for seq in range(1, 41):
        bench.wire.send(event(seq, 20_000))
    bench.wire.flush()

    assert len(bench.transport.writes) > 1
    bound = WRITE_BUFFER_HIGH_BYTES + 2 * 25_000
    assert all(len(write) <= bound for write in bench.transport.writes)


async def test_nothing_leaves_after_the_end() -> None:
    bench = Bench()
    bench.connect()
    bench.wire.drop(ErrorCode.ACK_REGRESSED)

    bench.wire.send(event(1))
    bench.wire.flush()
    bench.wire.data_received(b"\x81\x02{}")
    bench.wire.connection_lost(None)

    assert bench.transport.writes == []
    assert bench.transport.is_aborted
    assert bench.posted == [ConnectionLost(CONNECTION, ErrorCode.ACK_REGRESSED)]


# --- Reading --------------------------------------------------------------------------------


async def test_nothing_is_read_from_a_peer_that_does_not_read() -> None:
    bench = Bench()
    bench.connect()

    bench.wire.pause_writing()
    while_full = bench.transport.is_reading_now
    bench.wire.resume_writing()

    assert (while_full, bench.transport.is_reading_now) == (False, True)


async def test_reading_is_bounded_while_a_state_write_runs() -> None:
    bench = Bench()
    bench.connect()
    pongs = (b"\x8a\x7d" + b"p" * 125) * 128

    bench.wire.state_is_being_written(True)
    for _ in range(READ_AHEAD_BYTES_MAX // len(pongs)):
        bench.wire.data_received(pongs)
    below = bench.transport.is_reading_now
    bench.wire.data_received(pongs)
    beyond = bench.transport.is_reading_now
    bench.wire.state_is_being_written(False)

    assert (below, beyond, bench.transport.is_reading_now) == (True, False, True)


async def test_messages_are_posted_before_the_loss_that_came_with_them() -> None:
    bench = Bench()
    bench.connect()
    bench.pair.peer.say(Ping())

    bench.wire.data_received(bench.pair.peer.outgoing() + b"\x82\x02{}")

    assert [type(posted) for posted in bench.posted] == [ControlReceived, ConnectionLost]
    assert bench.posted[1] == ConnectionLost(CONNECTION, ErrorCode.FRAME_MALFORMED)
    assert bench.transport.writes == [], "no close frame"


async def test_peer_that_pings_and_never_reads_is_not_read_without_end() -> None:
    bench = Bench()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: bench.wire, sock=ours)
    ping = (b"\x89\x7d" + b"p" * 125) * 512
    sent_bytes = blocked_turns = 0

    for _ in itertools.count():
        try:
            sent_bytes += theirs.send(ping)
            blocked_turns = 0
        except BlockingIOError:
            blocked_turns += 1
        if blocked_turns == 100 or sent_bytes > 64 * 1024 * 1024:
            break
        await asyncio.sleep(0)

    assert blocked_turns == 100, "the peer was read without end"
    assert transport.get_write_buffer_size() < 2 * WRITE_BUFFER_HIGH_BYTES
    transport.abort()
    theirs.close()


# --- The handshake on the loop, and time ------------------------------------------------------


async def test_welcome_is_posted_and_the_loss_after_it_names_the_connection() -> None:
    bench = Bench(welcomed=False)
    bench.wire.expect_welcome(30)
    bench.connect()

    while bench.transport.writes:
        bench.answer()
    bench.wire.eof_received()

    assert isinstance(bench.posted[0], Connected)
    assert bench.posted[1:] == [ConnectionLost(CONNECTION, ErrorCode.CONNECTION_LOST)]


async def test_loss_before_the_welcome_is_a_failed_call() -> None:
    bench = Bench(Tamper(hello=lambda hello: False), welcomed=False)
    bench.wire.expect_welcome(30)
    bench.connect()
    while bench.transport.writes:
        bench.answer()

    bench.wire.connection_lost(None)

    assert bench.posted == [ConnectFailed(code=ErrorCode.CONNECTION_LOST)]


async def test_abandoned_call_is_not_reported_but_an_abandoned_connection_is() -> None:
    call, connection = Bench(welcomed=False), Bench()
    call.connect()
    connection.connect()

    call.wire.abandon()
    connection.wire.abandon()

    assert call.posted == []
    assert connection.posted == [ConnectionLost(CONNECTION, ErrorCode.CONNECTION_SUPERSEDED)]


async def test_transport_that_comes_too_late_is_dropped() -> None:
    bench = Bench(welcomed=False)
    bench.wire.abandon()

    bench.connect()

    assert bench.transport.is_aborted
    assert bench.transport.writes == []


def test_each_step_of_the_handshake_has_its_time() -> None:
    async def main() -> tuple[float, list[Input]]:
        bench = Bench(welcomed=False)
        bench.wire.expect_welcome(30)
        bench.connect()
        await asyncio.sleep(1.5)
        bench.answer()
        assert bench.wire.link.phase is Phase.CHALLENGE
        await bench.has_posted.wait()
        return asyncio.get_running_loop().time(), bench.posted

    ended_at, posted = run_in_virtual_time(main())

    assert posted == [ConnectFailed(code=ErrorCode.PEER_TIMEOUT)]
    assert ended_at == 3.5, "two seconds after the step that was in time"


def test_silent_peer_is_asked_once_and_then_given_up() -> None:
    async def main() -> tuple[list[bytes], float, list[Input]]:
        bench = Bench()
        bench.connect()
        await asyncio.sleep(PEER_SILENCE_MS / 1000 + 0.5)
        questions = list(bench.transport.writes)
        await bench.has_posted.wait()
        return questions, asyncio.get_running_loop().time(), bench.posted

    questions, ended_at, posted = run_in_virtual_time(main())

    assert [question[0] for question in questions] == [0x89]
    assert ended_at == (PEER_SILENCE_MS + PEER_ANSWER_TIMEOUT_MS) / 1000
    assert posted == [ConnectionLost(CONNECTION, ErrorCode.PEER_TIMEOUT)]


def test_peer_that_answers_is_kept() -> None:
    async def main() -> list[Input]:
        bench = Bench()
        bench.connect()
        for _ in range(10):
            await asyncio.sleep((PEER_SILENCE_MS + PEER_ANSWER_TIMEOUT_MS) / 1000 - 0.5)
            bench.wire.data_received(b"\x8a\x00")
        return bench.posted

    assert run_in_virtual_time(main()) == []


def test_key_does_not_live_longer_than_a_day() -> None:
    async def main() -> tuple[float, list[Input]]:
        bench = Bench()
        bench.connect()
        while not bench.posted:
            await asyncio.sleep(24)
            bench.wire.data_received(b"\x8a\x00")
        return asyncio.get_running_loop().time(), bench.posted

    ended_at, posted = run_in_virtual_time(main())

    assert posted == [ConnectionLost(CONNECTION, ErrorCode.FRAMES_EXHAUSTED)]
    assert ended_at <= 24 * 3600
