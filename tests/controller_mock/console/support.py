"""The command line as a process of its own, as its users start it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from tests.controller_mock.served import WAIT_S

WAIT_RUN_S = 3 * WAIT_S


class Console:
    """One `controller-mock` process and what it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out = b""
        self.err = b""
        self._changed = asyncio.Event()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read("out", process.stdout)),
            asyncio.create_task(self._read("err", process.stderr)),
        ]

    async def _read(self, name: str, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(65_536):
            setattr(self, name, getattr(self, name) + data)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def until(self, holds: Callable[["Console"], bool]) -> None:
        """Wait until the output so far satisfies a condition."""
        async with asyncio.timeout(WAIT_RUN_S):
            while not holds(self):
                await self._changed.wait()

    async def status(self) -> int:
        """Return the exit status once everything is read."""
        async with asyncio.timeout(WAIT_RUN_S):
            for reader in self._readers:
                await reader
            return await self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def runner_pid(self, start: int = 1) -> int:
        """Return the pid of the runner's n-th process, from the timeline."""
        lines = [line for line in self.err.splitlines() if b" runner " in line]
        started = [line.split() for line in lines if b" started" in line]
        return int(started[start - 1][3])


@contextlib.asynccontextmanager
async def console(*arguments: str) -> AsyncGenerator[Console]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "controller_mock", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Console(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def report(data: Path, run: str | None = None) -> Any:
    """Return what `inspect --json` says."""
    async with console("inspect", "--data", str(data), "--json", *([run] if run else [])) as shown:
        assert await shown.status() == 0
        return json.loads(shown.out)


def processes_with(text: str) -> list[int]:
    """Return the pids of living processes whose command line or environment holds ``text``."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
