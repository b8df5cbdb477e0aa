"""The parent's hold on our controller in its process.

It decides nothing; see `controller_process` for what each order means.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from controller_mock.core.state import RunConfig
from protocol.ids import Identity, RunId
from protocol.secrets import Secret
from tests.bench.controller_process import (
    Acked,
    Answer,
    Connected,
    Create,
    FirstLine,
    Order,
    Perform,
    Ready,
    Request,
    Ticket,
)

WAIT_S = 120.0
"""Bound of every wait; it ends a measurement that would hang."""
END_S = 15.0
"""Longest orderly end of a process."""
LEASE_TTL_MS = 3_600_000
"""A measurement renews nothing."""


class BenchFailed(Exception):
    """A measurement could not be carried out."""


def run_config(name: str) -> RunConfig:
    """Return a run whose six ids all hold its name, of one length for every run."""
    return RunConfig(
        identity=Identity(
            runner_instance_id=f"runner-{name}",
            environment_lease_id=f"environment-{name}",
            run_id=f"run-{name}",
            normalized_session_id=f"session-{name}",
            turn_id=f"turn-{name}",
            item_id=f"item-{name}",
        ),
        runner_version="0.1.0",
        runner_digest=f"sha256:{'0' * 64}",
        lease_ttl_ms=LEASE_TTL_MS,
    )


class OurController:
    """Our controller process; made by `our_controller`."""

    def __init__(self, process: Process, ready: Ready) -> None:
        self.url = ready.url
        self.pid = ready.pid
        self._process = process
        self._numbers = itertools.count(1)
        self._runs = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Answer]] = {}

    async def new_run(self) -> RunConfig:
        """Add a run that has no history."""
        config = run_config(f"{next(self._runs):06d}")
        await self._order(Create(config))
        return config

    async def ticket(self, config: RunConfig) -> Secret:
        """Issue a ticket of the run."""
        return Secret((await self._order(Ticket(RunId(config.identity.run_id)))).text)

    async def perform(self, config: RunConfig, command_type: str, payload: object) -> None:
        """Have the runner complete a command."""
        body = msgspec.Raw(msgspec.json.encode(payload))
        answer = await self._order(Perform(RunId(config.identity.run_id), command_type, body))
        if answer.text != "completed":
            raise BenchFailed(f"{command_type} ended as {answer.text}")

    async def acked(self, config: RunConfig, source_seq: int) -> int:
        """Return the monotonic nanosecond at which so many events were committed."""
        return (await self._order(Acked(RunId(config.identity.run_id), source_seq))).at_ns

    async def first_line(self, config: RunConfig) -> int:
        """Return the sequence of the first line of output, once it is committed."""
        return (await self._order(FirstLine(RunId(config.identity.run_id)))).source_seq

    async def connected(self, config: RunConfig) -> int:
        """Return the monotonic nanosecond at which the run's first runner was welcomed."""
        return (await self._order(Connected(RunId(config.identity.run_id)))).at_ns

    async def _order(self, order: Order) -> Answer:
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(Request(number, order)) + b"\n")
        async with asyncio.timeout(WAIT_S):
            return await answer

    async def read_answers(self) -> None:
        """Deliver answers until the process ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = msgspec.json.decode(line, type=Answer)
            waiting = self._answers.pop(answer.number)
            if waiting.done():
                continue
            if answer.error is None:
                waiting.set_result(answer)
            else:
                waiting.set_exception(BenchFailed(answer.error))
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(BenchFailed("our controller ended"))


@asynccontextmanager
async def our_controller(directory: Path) -> AsyncGenerator[OurController]:
    """Run our controller over a store in ``directory`` for the length of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.controller_process", str(directory)),
        stdin=PIPE,
        stdout=PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_S):
            line = await process.stdout.readline()
        if not line:
            raise BenchFailed("our controller did not start")
        controller = OurController(process, msgspec.json.decode(line, type=Ready))
        reading = asyncio.create_task(controller.read_answers())
        yield controller
        process.stdin.close()
        await reading
    finally:
        await end(process)


async def end(process: Process, number: signal.Signals = signal.SIGTERM) -> None:
    """End a process that is asked to, or killed if it does not."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        # Not by the object's own call, which would take the status from whoever waits for it.
        os.kill(process.pid, number)
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
