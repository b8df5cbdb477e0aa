"""Launches one runner process and reports how it ended.

It decides the runner's command line, environment, session and how much of its stderr is
kept. It refuses to know whether the runner should be started again: `supervisor` does.
"""

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.core.state import RunConfig
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity
from protocol.limits import RECONNECT_DELAY_MS, STDERR_TAIL_BYTES_MAX, STDERR_TAIL_LINES_MAX
from protocol.redaction import redact_text
from protocol.secrets import Secret

TICKET_VARIABLE: Final = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"
RECONNECT_GRACE_MS: Final = 10_000
"""A runner whose controller is gone for this long ends by itself, and its program with it."""
RUNNER_PACKAGES: Final = ("protocol", "runnerd")
# Python puts the working directory first on the path of `-m`; -P keeps a stray file there out.
THIS_RUNNER: Final = (sys.executable, "-P", "-m", "runnerd")
_READ_BYTES: Final = 64 * 1024


class RunnerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is started with; the ticket is not part of it."""

    identity: Identity
    runner_version: str
    runner_digest: str
    connect_url: str
    state_dir: str
    reconnect_grace_ms: int
    """The runner ends by itself after this long without a controller."""
    reconnect_delay_ms: int = RECONNECT_DELAY_MS
    program: tuple[str, ...] = THIS_RUNNER
    extra: tuple[str, ...] = ()
    """Further flags, as they are."""

    def argv(self) -> tuple[str, ...]:
        """Return the command line. Source: runner-behaviour 1."""
        identity = self.identity
        flags = {
            "--connect-url": self.connect_url,
            "--state-dir": self.state_dir,
            "--run-id": identity.run_id,
            "--session-id": identity.normalized_session_id,
            "--turn-id": identity.turn_id,
            "--item-id": identity.item_id,
            "--runner-id": identity.runner_instance_id,
            "--environment-lease-id": identity.environment_lease_id,
            "--runner-version": self.runner_version,
            "--runner-digest": self.runner_digest,
            "--reconnect-delay-ms": str(self.reconnect_delay_ms),
            "--reconnect-grace-ms": str(self.reconnect_grace_ms),
        }
        return (*self.program, *(part for flag in flags.items() for part in flag), *self.extra)


def runner_command(
    config: RunConfig,
    connect_url: str,
    state_dir: Path,
    reconnect_grace_ms: int = RECONNECT_GRACE_MS,
) -> RunnerCommand:
    """Return what the runner of a run is started with, by this installation.

    Args:
        connect_url: where the controller listens for runners.
        state_dir: its own and private; the runner makes it if only its parent is there.
    """
    return RunnerCommand(
        identity=config.identity,
        runner_version=config.runner_version,
        runner_digest=config.runner_digest,
        connect_url=connect_url,
        state_dir=str(state_dir),
        reconnect_grace_ms=reconnect_grace_ms,
    )


class RunnerExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner process ended."""

    status: int
    """Exit status, or minus the signal that ended it."""
    stderr_tail: tuple[str, ...]
    """Its last lines on stderr, redacted and bounded."""

    @property
    def cause(self) -> str:
        """Words for a person: `exit 75` or `SIGKILL`."""
        if self.status >= 0:
            return f"exit {self.status}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.status).name
        return f"signal {-self.status}"


class RunnerProcess:
    """One running runner: the leader of its own session, watched through its pidfd."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        loop: asyncio.AbstractEventLoop,
        on_line: Callable[[str], None] | None,
    ) -> None:
        assert process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._loop = loop
        self._on_line = on_line
        self._tail = StderrTail()
        self._ended: asyncio.Future[RunnerExit] = loop.create_future()
        self._stderr = process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._pidfd = os.pidfd_open(process.pid)
        loop.add_reader(self._pidfd, self._reap)
        loop.add_reader(self._stderr, self._read_stderr)

    @property
    def has_ended(self) -> bool:
        """True once the process is gone and reaped."""
        return self._ended.done()

    async def wait(self) -> RunnerExit:
        """Return how the process ended, when it has."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Ask for a bounded stop that leaves a resumable state (SIGTERM)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once (SIGKILL); its harness is not told."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Until it is reaped here, the pid can name no other process.
        if not self.has_ended:
            self._process.send_signal(number)

    def _reap(self) -> None:
        status = self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._read_stderr()
        self._loop.remove_reader(self._stderr)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._stderr = -1
        if not self._ended.done():
            self._ended.set_result(RunnerExit(status=status, stderr_tail=self._tail.lines()))

    def _read_stderr(self) -> None:
        # After its end a grandchild may hold the pipe and write on, hence a bound per call.
        if self._stderr < 0:
            return
        try:
            data = os.read(self._stderr, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._stderr)
            return
        for line in self._tail.add(data):
            if self._on_line is not None:
                self._on_line(line)


class StderrTail:
    """The last lines of a stream, bounded in lines and bytes, redacted as they come."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_TAIL_LINES_MAX)
        self._open = b""

    def add(self, data: bytes) -> list[str]:
        """Take more of the stream and return the lines that it completed."""
        *complete, rest = (self._open + data).split(b"\n")
        self._open = rest[-STDERR_TAIL_BYTES_MAX:]
        lines = [self._clean(line) for line in complete]
        self._lines.extend(lines)
        return lines

    def lines(self) -> tuple[str, ...]:
        """Return the newest lines that fit the byte bound, an unfinished one included."""
        kept: list[str] = []
        size = 0
        newest = [*self._lines, *([self._clean(self._open)] if self._open else [])]
        for line in reversed(newest):
            size += len(line.encode())
            if size > STDERR_TAIL_BYTES_MAX:
                break
            kept.append(line)
        return tuple(reversed(kept))

    def _clean(self, line: bytes) -> str:
        text = line[-STDERR_TAIL_BYTES_MAX:].decode("utf-8", "replace").rstrip("\r")
        return redact_text("".join(c if c.isprintable() or c == "\t" else "?" for c in text))


def launch(
    command: RunnerCommand,
    ticket: Secret,
    environment: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
) -> RunnerProcess:
    """Start a runner in its own session; the ticket travels in its environment only.

    Args:
        environment: what the runner may hand on to its harness; a ticket in it is replaced.
        on_line: called with each redacted line of its stderr.

    Raises:
        PrpError: RUNNER_START_FAILED if the program cannot be started.
    """
    argv = command.argv()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**environment, TICKET_VARIABLE: bytes(ticket.reveal()).decode()},
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise PrpError(
            ErrorCode.RUNNER_START_FAILED, f"{argv[0]}: {os.strerror(error.errno or 0)}"
        ) from None
    return RunnerProcess(process, asyncio.get_running_loop(), on_line)


def artifact_digest(packages: tuple[str, ...] = RUNNER_PACKAGES) -> str:
    """Return `sha256:` and the digest of the runner's source files, names included."""
    total = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{package}/{path.relative_to(root)}\0{content}\n".encode())
    return f"sha256:{total.hexdigest()}"
