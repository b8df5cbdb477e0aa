"""Tests of the one loop over a real socket, with a state store that a test holds back."""

import asyncio
import errno
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from protocol.base.atomic_file import WriteFailed
from protocol.base.posix_fs import SystemClock, SystemEntropy
from protocol.envelope import Deliver, Ping, Revoke
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from protocol.secrets import Secret
from runnerd.core.actions import Exit
from runnerd.core.inputs import Started
from runnerd.core.recovery import start
from runnerd.core.state import Boot, Durable, Settings
from runnerd.core.step import step
from runnerd.destination import parse_url
from runnerd.driving import RunnerDriver
from runnerd.first_contact import World, make_contact
from runnerd.io.caller import Caller
from runnerd.io.dialling import Call
from runnerd.io.log import Log, StandardError
from runnerd.io.signals import StopSignals
from runnerd.shell import Faulted, serve
from tests.runnerd.peer import IDENTITY, RUNNER_DIGEST, RUNNER_VERSION, TICKET, Authority, command
from tests.runnerd.peer_server import PATIENCE_S, PeerServer, serving

SETTINGS: Final = Settings(
    identity=IDENTITY,
    runner_version=RUNNER_VERSION,
    runner_digest=RUNNER_DIGEST,
    max_outbox_bytes=1 << 24,
    p0_reserve_bytes=1 << 20,
    max_frame_bytes=1 << 20,
    reconnect_delay_ms=10,
    reconnect_grace_ms=None,
    max_runtime_ms=0,
    bootstrap_deadline_ms=30_000,
)
PREPARE: Final = {"provider": {"kind": "command", "argv": ["/bin/true"], "cwd": "/"}}


class HeldStore:
    """The in-memory twin of the state file: a write hangs, fails or succeeds as told."""

    def __init__(self) -> None:
        self.written: list[Durable] = []
        self.failures: list[BaseException] = []
        self.is_hanging = threading.Event()
        """Set while a write hangs."""
        self._may_pass = threading.Event()
        self._may_pass.set()

    def hold(self) -> None:
        """Let the next write hang until `let_go`."""
        self._may_pass.clear()

    def let_go(self) -> None:
        """Let what hangs go on."""
        self._may_pass.set()

    def replace(self, durable: Durable) -> None:
        """Behave as told."""
        if not self._may_pass.is_set():
            self.is_hanging.set()
            assert self._may_pass.wait(PATIENCE_S)
            self.is_hanging.clear()
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(durable)


class Running:
    """A shell that serves, and the test's hands on it."""

    def __init__(self, server: PeerServer, store: HeldStore, ended: "asyncio.Task[Exit]") -> None:
        self.server = server
        self.authority = server.authority
        self.store = store
        self.ended = ended

    async def until(self, condition: str, *, holds: Callable[[], bool]) -> None:
        """Wait for the server without holding up the shell's loop."""
        await asyncio.to_thread(self.server.wait_until, holds, condition)

    def deliver(self, seq: int, type_: str, payload: object = None) -> None:
        """Send one command."""
        with self.server.changing():
            self.authority.pending = [command(seq, type_, payload)]
            self.server.newest().say(Deliver(self.authority.pending[0]))


@asynccontextmanager
async def running(authority: Authority) -> AsyncGenerator[Running]:
    """Bring a runner to its welcome and let its shell serve."""
    store, clock, stops = HeldStore(), SystemClock(), StopSignals()
    with serving(authority) as server:
        caller = Caller(SETTINGS, parse_url(server.url), Secret(TICKET), SystemEntropy())
        log = Log("error", IDENTITY, StandardError())
        world = World(clock=clock, store=store, caller=caller, stops=stops, log=log)
        boot = Boot(state_id="0" * 32, jitter_seed=1, now=clock.now())
        driver: RunnerDriver = RunnerDriver(start(SETTINGS, None, boot), step)
        driver.feed(Started(), clock.now())
        call = await asyncio.to_thread(make_contact, driver, world)
        assert isinstance(call, Call)
        ended = asyncio.create_task(serve(driver, world, call, {}))
        try:
            yield Running(server, store, ended)
        finally:
            store.let_go()
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            stops.close()


async def shut_down(run: Running, seq: int) -> Exit:
    run.deliver(seq, "runner.shutdown")
    async with asyncio.timeout(PATIENCE_S):
        return await run.ended


async def test_renewal_leaves_in_time_while_a_write_hangs_and_nothing_else_does() -> None:
    async with running(Authority(lease_ttl_ms=2_000)) as run:
        run.store.hold()
        run.deliver(1, "run.prepare", PREPARE)
        assert await asyncio.to_thread(run.store.is_hanging.wait, PATIENCE_S)
        written = len(run.store.written)

        await run.until("renewals", holds=lambda: len(run.authority.renewals) >= 2)

        assert len(run.store.written) == written
        assert run.store.is_hanging.is_set()
        assert (run.authority.results, run.authority.events) == ([], [])
        run.store.let_go()
        await run.until("a result", holds=lambda: len(run.authority.results) == 1)
        assert await shut_down(run, 2) == Exit(None)


async def test_ping_is_answered_while_a_write_hangs() -> None:
    async with running(Authority()) as run:
        run.store.hold()
        run.deliver(1, "run.prepare", PREPARE)
        assert await asyncio.to_thread(run.store.is_hanging.wait, PATIENCE_S)
        peer = run.server.newest()
        seen = len(peer.texts)

        with run.server.changing():
            peer.say(Ping())

        await run.until("a pong", holds=lambda: len(peer.texts) > seen)
        assert run.store.is_hanging.is_set()


async def test_flood_of_messages_does_not_keep_a_write_from_its_end() -> None:
    async with running(Authority()) as run:
        run.deliver(1, "run.prepare", PREPARE)
        await run.until("a result", holds=lambda: len(run.authority.results) == 1)
        peer = run.server.newest()

        with run.server.changing():
            for _ in range(2_000):
                peer.say(Ping())
            run.authority.pending = [command(2, "session.open")]
            peer.say(Deliver(run.authority.pending[0]))
            for _ in range(2_000):
                peer.say(Ping())

        await run.until("the result", holds=lambda: len(run.authority.results) == 2)
        assert await shut_down(run, 3) == Exit(None)


async def test_failed_write_costs_the_connection_and_the_result_comes_once_on_the_next() -> None:
    async with running(Authority()) as run:
        run.store.failures.append(WriteFailed(errno.ENOSPC, renamed=False))

        run.deliver(1, "run.prepare", PREPARE)

        await run.until("a result", holds=lambda: len(run.authority.results) == 1)
        assert run.authority.connections == 2
        assert [message.result.status for message in run.authority.results] == ["completed"]
        assert await shut_down(run, 2) == Exit(None)
        assert len(run.authority.results) == 2


async def test_write_that_may_not_be_durable_ends_the_process() -> None:
    async with running(Authority()) as run:
        run.store.failures.append(WriteFailed(errno.EIO, renamed=True))

        run.deliver(1, "run.prepare", PREPARE)

        async with asyncio.timeout(PATIENCE_S):
            assert await run.ended == Exit(ErrorCode.STORAGE_SYNC_FAILED)
        assert run.authority.results == []


async def test_fault_in_the_writer_ends_the_shell() -> None:
    async with running(Authority()) as run:
        run.store.failures.append(ZeroDivisionError())

        run.deliver(1, "run.prepare", PREPARE)

        with pytest.raises(ExceptionGroup) as faulted:
            async with asyncio.timeout(PATIENCE_S):
                await run.ended
        (fault,) = faulted.value.exceptions
        assert isinstance(fault, Faulted)
        assert isinstance(fault.__cause__, ZeroDivisionError)


async def test_revocation_ends_the_shell_well() -> None:
    async with running(Authority()) as run:
        with run.server.changing():
            run.server.newest().say(Revoke(RevocationEpoch(2)))

        async with asyncio.timeout(PATIENCE_S):
            assert await run.ended == Exit(None)
        assert run.store.written[-1].lifecycle.value == "revoked"


async def test_one_write_serves_what_arrived_together() -> None:
    async with running(Authority()) as run:
        run.deliver(1, "run.prepare", PREPARE)
        await run.until("a result", holds=lambda: len(run.authority.results) == 1)
        before = len(run.store.written)
        peer = run.server.newest()

        with run.server.changing():
            run.authority.pending = [command(seq, "session.snapshot") for seq in range(2, 22)]
            for each in run.authority.pending:
                peer.say(Deliver(each))

        await run.until("results", holds=lambda: len(run.authority.results) >= 21)
        assert len(run.store.written) - before < 20
