"""What the tests of the harness share: a bench that gives orders and takes answers.

It decides how long a test waits before it fails, and looks for processes on its own. It
refuses to use the product's ways of finding processes.
"""

import asyncio
import contextlib
import os
import select
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from protocol.ids import Generation
from protocol.process_birth import ProcessBirth
from runnerd.core.actions import ReadHarness, ReleaseHarness, StartHarness, StopHarness
from runnerd.core.inputs import HarnessExited, HarnessOutput, HarnessSpawned, Input
from runnerd.harness.executor import Executor

PATIENCE_S: Final = 60.0
"""A test that waits this long has failed; none needs a fraction of it."""
RUN_ID: Final = "run-1"
FIRST: Final = Generation(1)

AnswerT = TypeVar("AnswerT", bound=Input)


class Bench:
    """An executor, the answers it has fed, and the orders in short form."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.mark = f"test.{uuid.uuid4().hex}"
        self.answers: asyncio.Queue[Input] = asyncio.Queue()
        self.executor = Executor(
            self.answers.put_nowait,
            run_id=RUN_ID,
            environ={"PATH": os.environ["PATH"]} if environ is None else environ,
        )

    def start(self, *argv: str, generation: int = 1, env_names: tuple[str, ...] = ()) -> None:
        self.executor.perform(
            StartHarness(
                generation=Generation(generation),
                launch_mark=f"{self.mark}.{generation}",
                argv=argv,
                cwd=str(self.folder),
                env_names=env_names,
                turn_ordinal=generation,
                lines_accepted=0,
            )
        )

    def release(self, generation: int = 1) -> None:
        self.executor.perform(ReleaseHarness(Generation(generation)))

    def read(self, lines_max: int = 256, bytes_max: int = 1 << 20, generation: int = 1) -> None:
        self.executor.perform(
            ReadHarness(generation=Generation(generation), lines_max=lines_max, bytes_max=bytes_max)
        )

    def stop(self, grace_ms: int = 60_000, generation: int = 1) -> None:
        self.executor.perform(
            StopHarness(generation=Generation(generation), intent="interrupt", grace_ms=grace_ms)
        )

    async def take(self, kind: type[AnswerT]) -> AnswerT:
        """Return the next answer, which must be of this kind."""
        answer = await asyncio.wait_for(self.answers.get(), PATIENCE_S)
        assert isinstance(answer, kind), answer
        return answer

    async def launch(self, *argv: str, generation: int = 1) -> ProcessBirth:
        """Start a program, release it, and return its birth."""
        self.start(*argv, generation=generation)
        spawned = await self.take(HarnessSpawned)
        self.release(generation)
        return spawned.birth

    async def lines(self, count: int, generation: int = 1) -> list[str]:
        """Return the next lines, exactly so many."""
        found: list[str] = []
        while len(found) < count:
            self.read(lines_max=count - len(found), generation=generation)
            found += (await self.take(HarnessOutput)).lines
        return found

    async def to_end(
        self, lines_max: int = 256, bytes_max: int = 1 << 20, generation: int = 1
    ) -> tuple[list[str], HarnessExited]:
        """Read until the end and return all lines and the end."""
        found: list[str] = []
        while True:
            self.read(lines_max, bytes_max, generation)
            answer = await asyncio.wait_for(self.answers.get(), PATIENCE_S)
            if isinstance(answer, HarnessExited):
                return found, answer
            assert isinstance(answer, HarnessOutput), answer
            assert 1 <= len(answer.lines) <= lines_max
            found += answer.lines

    async def run(self, *argv: str, generation: int = 1) -> tuple[list[str], HarnessExited]:
        """Launch a program and read it to its end."""
        await self.launch(*argv, generation=generation)
        return await self.to_end(generation=generation)

    def marked(self, generation: int = 1) -> list[int]:
        """Return the living processes that carry the mark of a generation."""
        return marked(f"{self.mark}.{generation}")


@contextlib.asynccontextmanager
async def bench(folder: Path, environ: Mapping[str, str] | None = None) -> AsyncGenerator[Bench]:
    """Give a bench and leave no process behind, whatever happens."""
    made = Bench(folder, environ)
    try:
        yield made
    finally:
        left = await asyncio.wait_for(made.executor.close(0), PATIENCE_S)
    assert left == 0


def python(source: str, *arguments: str) -> tuple[str, ...]:
    """Return the command line of a small Python program."""
    return (sys.executable, "-I", "-S", "-c", source, *arguments)


def shell(source: str) -> tuple[str, ...]:
    """Return the command line of a small shell program."""
    return ("/bin/sh", "-c", source)


def marked(mark: str) -> list[int]:
    """Return the living processes whose environment carries a launch mark."""
    wanted = f"RUNNERD_LAUNCH={mark}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def lives(pid: int) -> bool:
    """Tell whether a process exists and is more than a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_dead(pidfd: int) -> None:
    """Wait until the process behind a pidfd has ended."""
    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    assert ready, "the process still lives"


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds that cannot be waited for."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the kernel sets no asyncio.Event
            await asyncio.sleep(0)


async def ended(pid: int) -> None:
    """Let the loop run until a process has ended."""
    await until(lambda: not lives(pid))


def wait_until(holds: Callable[[], bool]) -> None:
    """Look until something holds that cannot be waited for."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "it never came to hold"
        os.sched_yield()
