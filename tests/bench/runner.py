"""A real runner with a real agent program that prints on demand.

It decides how both are started. It refuses to know what is measured.
"""

import asyncio
import datetime
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from controller_mock.core.state import RunConfig
from controller_mock.io.runner_process import TICKET_VARIABLE, RunnerCommand
from protocol.secrets import Secret
from tests.bench import agent
from tests.bench.ours import WAIT_S, BenchFailed, OurController, end

GRACE_MS = 10_000
QUIET = ("--log-level", "error")
DEBUG = ("--log-level", "debug")


class _Fact(msgspec.Struct, frozen=True):
    event: str
    timestamp: datetime.datetime | None = None
    source_seq: int = 0


class Moment(msgspec.Struct, frozen=True):
    """One moment by both clocks, in nanoseconds."""

    mono_ns: int
    unix_ns: int


def runner_program() -> tuple[str, ...]:
    """Return what starts `runnerd` as a supervisor would."""
    script = Path(sys.executable).with_name("runnerd")
    return (str(script),) if script.exists() else (sys.executable, "-P", "-m", "runnerd")


def runner_argv(
    config: RunConfig, url: str, state: Path, program: Sequence[str], extra: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command line of a runner of either kind."""
    return RunnerCommand(
        identity=config.identity,
        runner_version=config.runner_version,
        runner_digest=config.runner_digest,
        connect_url=url,
        state_dir=str(state),
        reconnect_grace_ms=GRACE_MS,
        program=tuple(program),
        extra=tuple(extra),
    ).argv()


def runner_environment(token: Secret) -> dict[str, str]:
    """Return an environment with a ticket in it and little else."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, TICKET_VARIABLE: bytes(token.reveal()).decode()}


class AgentRun:
    """A run whose agent waits for orders; made by `agent_run`."""

    def __init__(
        self,
        controller: OurController,
        config: RunConfig,
        process: Process,
        pipes: "Pipes",
    ) -> None:
        self.config = config
        self.events = 0
        """Committed so far, the ones before the first line included."""
        self._controller = controller
        self._process = process
        self._pipes = pipes

    @property
    def pid(self) -> int:
        """The runner's process."""
        return self._process.pid

    async def begin(self, cwd: Path) -> None:
        """Start the agent and have it print one line."""
        argv = [sys.executable, "-I", agent.__file__, *self._pipes.paths]
        provider = {"kind": "command", "argv": argv, "cwd": str(cwd)}
        await self._controller.perform(self.config, "run.prepare", {"provider": provider})
        await self._controller.perform(self.config, "session.open", {})
        await self._controller.perform(self.config, "turn.start", {})
        self._pipes.order(1)
        # From the first line on every event is a line.
        self.events = await self._controller.first_line(self.config)
        self._pipes.moment()

    async def print_lines(self, count: int) -> float:
        """Have lines printed; return the seconds until the last is committed."""
        self._pipes.order(count)
        self.events += count
        end_ns = await self._controller.acked(self.config, self.events)
        return (end_ns - self._pipes.moment().mono_ns) / 1e9

    async def print_line_until_ack(self) -> float:
        """Have one line printed; return the seconds until the runner heard its ACK.

        The runner must log what it hears (`DEBUG`). The end is the time that its log gives.
        """
        self._pipes.order(1)
        self.events += 1
        assert self._process.stderr is not None
        async with asyncio.timeout(WAIT_S):
            while line := await self._process.stderr.readline():
                fact = msgspec.json.decode(line, type=_Fact)
                if fact.event == "acknowledged" and fact.source_seq >= self.events:
                    assert fact.timestamp is not None, "every line of the log has its time"
                    return fact.timestamp.timestamp() - self._pipes.moment().unix_ns / 1e9
        raise BenchFailed("the runner ended")


class Pipes:
    """Two named pipes: orders to the agent, and the moments at which it began."""

    def __init__(self, directory: Path) -> None:
        self.paths = (str(directory / "orders"), str(directory / "moments"))
        for path in self.paths:
            os.mkfifo(path, 0o600)
        # Open in both directions, so that neither side waits for the other to come.
        self._orders, self._moments = (os.open(path, os.O_RDWR) for path in self.paths)

    def order(self, lines: int) -> None:
        """Order lines."""
        os.write(self._orders, b"%d\n" % lines)

    def moment(self) -> Moment:
        """Return the moment before the first of the lines that were ordered.

        Asked for at the end only: whoever waits for it would take a processor away from
        what is measured.
        """
        answer = os.read(self._moments, 64)
        assert answer.endswith(b"\n"), "one short line is written and read at once"
        return Moment(*map(int, answer.split()))

    def close(self) -> None:
        """Let the agent end."""
        os.close(self._orders)
        os.close(self._moments)


@asynccontextmanager
async def agent_run(
    controller: OurController, directory: Path, extra: Sequence[str] = QUIET
) -> AsyncGenerator[AgentRun]:
    """Start a runner and its agent on a new run, for the length of the block.

    Args:
        extra: further flags of the runner.
    """
    config = await controller.new_run()
    argv = runner_argv(config, controller.url, directory / "runner", runner_program(), extra)
    environment = runner_environment(await controller.ticket(config))
    pipes = Pipes(directory)
    with (directory / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE if extra == DEBUG else stderr,
            env=environment,
            start_new_session=True,
        )
    try:
        run = AgentRun(controller, config, process, pipes)
        await run.begin(directory)
        yield run
    finally:
        pipes.close()
        await end(process)
