"""Drives the published upstream controller from a test, over `controller.mjs` beside this file.

Knows nothing of what a test expects of the controller.
"""

import asyncio
import itertools
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.interop.peers import UpstreamController

LINE_BYTES_MAX = 64 * 1024 * 1024
ANSWER_TIMEOUT_S = 240.0
"""Bound of every wait; it ends a test that would hang and is no measure of anything."""

Answer = TypeVar("Answer")


class DriverFailed(Exception):
    """The driver refused an operation or ended; the message is its own."""


class Opened(msgspec.Struct, frozen=True, rename="camel"):
    connect_url: str
    port: int


class Ticket(msgspec.Struct, frozen=True):
    ticket: str

    def __repr__(self) -> str:
        return "Ticket(<redacted>)"


class Launched(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A started runner, and what the controller gave it (the ticket's value is never shown)."""

    pid: int | None
    command: str
    args: tuple[str, ...]
    cwd: str
    environment_names: tuple[str, ...]


class Restarted(msgspec.Struct, frozen=True):
    pid: int | None


class Queued(msgspec.Struct, frozen=True, rename="camel"):
    command_id: str
    controller_seq: int


class RunnerExit(msgspec.Struct, frozen=True, kw_only=True):
    code: int | None
    signal: str | None
    stdout: str
    stderr: str


class Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    lease_id: str
    protocol_version: int
    expires_at_unix_ms: int
    revocation_epoch: int
    revoked_at: str | None


class Command(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    command_id: str
    controller_seq: int
    type: str
    status: str
    result: dict[str, object] | None
    delivery_count: int


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    source_seq: int
    source_event_id: str
    event_type: str
    priority: int
    delivery_count: int
    logical_effect_count: int
    envelope: dict[str, object] | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The controller's durable state without credentials, and its live connections."""

    identity: dict[str, str]
    acked_source_seq: int
    connection_count: int
    active_connections: int
    replay_deliveries: int
    duplicate_command_results: int
    fresh_bootstraps: int
    malformed_frames: int
    tickets: int
    leases: tuple[Lease, ...]
    commands: tuple[Command, ...]
    events: tuple[Event, ...]


class Notice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One report; which members are set depends on `notice`, as `controller.mjs` has it."""

    notice: str
    acked_source_seq: int = 0
    connection_count: int = 0
    lease_expires_at: str | None = None
    commands: dict[str, str] = {}
    event: dict[str, object] | None = None
    call: dict[str, object] | None = None
    code: str | None = None
    name: str | None = None
    exit: RunnerExit | None = None


class _Head(msgspec.Struct, frozen=True):
    id: int | None = None
    ok: bool = False
    error: str = ""
    notice: str | None = None


class Driver:
    """One upstream controller process; made by :func:`upstream_driver`."""

    def __init__(self, process: Process) -> None:
        self.notices: list[Notice] = []
        self._process = process
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._changed = asyncio.Condition()
        self._ended = False

    async def open(
        self,
        *,
        state_directory: Path,
        identity: object,
        runner_version: str,
        runner_digest: str,
        port: int = 0,
        options: Mapping[str, object] | None = None,
    ) -> Opened:
        """Create the control plane and listen on loopback.

        Args:
            identity: the six ids; a struct or a mapping with the wire's spelling.
            port: 0 for any; the port of an earlier control plane when it is restarted.
            options: `leaseTtlMs` (at least 60,000), `semanticTool`, `report`.
        """
        return await self._call(
            Opened,
            "open",
            {
                **(options or {}),
                "stateDirectory": str(state_directory),
                "identity": identity,
                "runnerVersion": runner_version,
                "runnerDigest": runner_digest,
                "port": port,
            },
        )

    async def ticket(self, ttl_ms: int = 60_000) -> Ticket:
        """Issue a bootstrap ticket, for a runner that the test starts itself."""
        return await self._call(Ticket, "ticket", {"ttlMs": ttl_ms})

    async def launch(
        self,
        name: str,
        executable: Path,
        state_directory: Path,
        options: Mapping[str, object] | None = None,
    ) -> Launched:
        """Start a runner by the controller's own spawnRunner, with a fresh ticket.

        Args:
            options: `maxOutboxBytes`, `p0ReserveBytes`, `maxRuntimeMs`, `maxLifetimeMs`,
                `reconnectGraceMs`, `lifecyclePolicy`, `diagnosticsDirectory`, `environment`,
                `ticketTtlMs`.
        """
        given = {
            "name": name,
            "executable": str(executable),
            "stateDirectory": str(state_directory),
        }
        return await self._call(Launched, "launch", {**(options or {}), **given})

    async def restart(self, name: str) -> Restarted:
        """Start an ended runner again, by the controller's own restart and a fresh ticket."""
        return await self._call(Restarted, "restart", {"name": name})

    async def kill(self, name: str, signal: str = "SIGKILL") -> None:
        """Send a signal to the runner process alone, not to its group."""
        await self._call(dict[str, object], "kill", {"name": name, "signal": signal})

    async def queue(
        self,
        type_: str,
        payload: object = None,
        *,
        command_id: str | None = None,
        deliver: bool = True,
    ) -> Queued:
        """Queue a command, and offer it to a connected runner at once."""
        given = {"type": type_, "payload": payload, "commandId": command_id, "deliver": deliver}
        return await self._call(Queued, "queue", given)

    async def disconnect(self) -> None:
        """Drop the socket; the lease stays."""
        await self._call(dict[str, object], "disconnect", {})

    async def hold_commits(self) -> None:
        """Let no further event be acknowledged until `release_commits`."""
        await self._call(dict[str, object], "hold", {})

    async def release_commits(self) -> None:
        """Acknowledge what was held, and what follows."""
        await self._call(dict[str, object], "release", {})

    async def revoke(self) -> None:
        """Revoke every lease; the controller closes at the next frame it receives."""
        await self._call(dict[str, object], "revoke", {})

    async def stop(self) -> None:
        """Stop listening and drop all connections; `open` may follow, also on the same port."""
        await self._call(dict[str, object], "stop", {})

    async def snapshot(self, *, envelopes: bool = False) -> Snapshot:
        """Return what the controller holds now; envelopes only on demand, they are large."""
        return await self._call(Snapshot, "snapshot", {"envelopes": envelopes})

    async def until(self, holds: Callable[[Notice], bool]) -> Notice:
        """Return the first notice, past ones included, for which `holds` is true."""
        seen = 0
        async with asyncio.timeout(ANSWER_TIMEOUT_S), self._changed:
            while True:
                for notice in itertools.islice(self.notices, seen, None):
                    if holds(notice):
                        return notice
                seen = len(self.notices)
                if self._ended:
                    raise DriverFailed("the driver ended")
                await self._changed.wait()

    async def until_settled(self, command_id: str) -> Command:
        """Return a command once its result is stored."""
        await self.until(lambda seen: seen.commands.get(command_id, "pending") != "pending")
        commands = (await self.snapshot()).commands
        return next(each for each in commands if each.command_id == command_id)

    async def until_exit(self, name: str, *, nth: int = 1) -> RunnerExit:
        """Return how the runner of this name ended, for the `nth` time if it was restarted."""
        exits = itertools.count(1)
        ended = await self.until(
            lambda seen: seen.notice == "runner_exit" and seen.name == name and next(exits) == nth
        )
        assert ended.exit is not None
        return ended.exit

    async def crash(self) -> None:
        """Kill the controller's process; its runners go on, and the test has to end them."""
        self._process.kill()
        await self._process.wait()

    async def _call(
        self, expected: type[Answer], operation: str, given: Mapping[str, object]
    ) -> Answer:
        if self._ended:
            raise DriverFailed("the driver ended")
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        assert self._process.stdin is not None
        request = {**given, "id": number, "op": operation}
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await self._process.stdin.drain()
            line = await answer
        head = msgspec.json.decode(line, type=_Head)
        if not head.ok:
            raise DriverFailed(head.error)
        return msgspec.json.decode(line, type=expected)

    async def read_answers(self) -> None:
        """Deliver the driver's lines until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            head = msgspec.json.decode(line, type=_Head)
            if head.notice is None:
                if head.id in self._answers and not self._answers[head.id].done():
                    self._answers.pop(head.id).set_result(line)
                continue
            async with self._changed:
                self.notices.append(msgspec.json.decode(line, type=Notice))
                self._changed.notify_all()
        async with self._changed:
            self._ended = True
            self._changed.notify_all()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DriverFailed("the driver ended"))


@asynccontextmanager
async def upstream_driver(peer: UpstreamController) -> AsyncGenerator[Driver]:
    """Run one upstream controller process for the length of the block.

    Its standard error is the test's own. At the end of the block the runners that it launched
    are killed with it.
    """
    process = await asyncio.create_subprocess_exec(
        *peer.argv, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX
    )
    driver = Driver(process)
    reading = asyncio.create_task(driver.read_answers())
    try:
        await driver.until(lambda notice: notice.notice == "ready")
        yield driver
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading
