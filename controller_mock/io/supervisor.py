"""Keeps one runner alive: starts it again, with a fresh ticket, as long as that can help.

It decides after which exits a runner is started again, how soon and how often. It refuses
to know what the run is doing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import structs

from controller_mock.io.runner_process import RunnerExit, RunnerProcess
from protocol.errors import ErrorCode, ExitStatus
from protocol.secrets import Secret

RESTART_DELAY_MS: Final = 100
RESTART_DELAY_MS_MAX: Final = 5_000
RESTART_WINDOW_S: Final = 600.0
RESTARTS_MAX: Final = 8
"""Restarts within the window; one more and the fault is judged to be permanent."""

_RESTARTABLE: Final = frozenset(
    {ExitStatus.UNAVAILABLE, ExitStatus.INTERNAL, ExitStatus.IO, ExitStatus.RESUMABLE}
)
_REMEDIES: Final[dict[int, str]] = {
    ExitStatus.USAGE: "the runner refused its command line; both programs must be of one version",
    ExitStatus.DATA: (
        "the runner's state is damaged or foreign and was left as it is; look at it, then start"
        " a new run"
    ),
    ExitStatus.UNAVAILABLE: "the controller was not reached; look for what is between the two",
    ExitStatus.INTERNAL: "a fault of the runner; its state is whole",
    ExitStatus.CANNOT_CREATE: (
        "the runner's state directory is unusable or in use; it must belong to this user with"
        " mode 0700 and have no other runner"
    ),
    ExitStatus.IO: "the disk refused a write; make room or mend it, the state on disk is whole",
    ExitStatus.PROTOCOL: (
        "runner and controller remember different histories, as after a restored backup; bring"
        " the newer copy back or start a new run"
    ),
    ExitStatus.TICKET: "the runner got no usable ticket; start it again with a fresh one",
}


class RunnerStarted(msgspec.Struct, frozen=True):
    """A runner process is running; ``attempt`` counts from 1."""

    pid: int
    attempt: int


class RunnerEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A runner process is gone; ``restart_in_ms`` is None if it stays so."""

    exit: RunnerExit
    restart_in_ms: int | None
    code: ErrorCode | None = None
    remedy: str | None = None


Report = RunnerStarted | RunnerEnded


class Supervisor:
    """Launches runners one after another until one ends for good."""

    def __init__(
        self,
        issue_ticket: Callable[[], Awaitable[Secret]],
        start: Callable[[Secret], RunnerProcess],
        report: Callable[[Report], None],
        restarts_max: int = RESTARTS_MAX,
    ) -> None:
        self._issue_ticket = issue_ticket
        self._start = start
        self._report = report
        self._restarts_max = restarts_max
        self._restarts: deque[float] = deque()
        self._attempt = 0
        self._stopping = False
        self._running: RunnerProcess | None = None

    @property
    def running(self) -> RunnerProcess | None:
        """The runner process that runs now."""
        if self._running is None or self._running.has_ended:
            return None
        return self._running

    def stop_restarting(self) -> None:
        """Let the next end of a runner be the last, whatever its status."""
        self._stopping = True

    async def run(self) -> RunnerEnded:
        """Launch and relaunch the runner; return its last end.

        Raises:
            PrpError: RUNNER_START_FAILED; or what issuing a ticket raises.
        """
        while True:
            ticket = await self._issue_ticket()
            self._attempt += 1
            try:
                self._running = self._start(ticket)
            finally:
                ticket.wipe()
            self._report(RunnerStarted(self._running.pid, self._attempt))
            ended = self._judge(await self._running.wait())
            self._report(ended)
            if ended.restart_in_ms is None:
                return ended
            await asyncio.sleep(ended.restart_in_ms / 1000)
            if self._stopping:
                return structs.replace(ended, restart_in_ms=None)

    def _judge(self, end: RunnerExit) -> RunnerEnded:
        if end.status == ExitStatus.OK or self._stopping:
            return RunnerEnded(exit=end, restart_in_ms=None)
        remedy = _REMEDIES.get(end.status)
        if end.status >= 0 and end.status not in _RESTARTABLE:
            return RunnerEnded(exit=end, restart_in_ms=None, remedy=remedy)
        now = asyncio.get_running_loop().time()
        while self._restarts and self._restarts[0] < now - RESTART_WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) >= self._restarts_max:
            code = ErrorCode.RUNNER_RESTARTS_EXHAUSTED
            return RunnerEnded(exit=end, restart_in_ms=None, code=code, remedy=remedy)
        delay_ms = min(RESTART_DELAY_MS * 2 ** len(self._restarts), RESTART_DELAY_MS_MAX)
        self._restarts.append(now)
        return RunnerEnded(exit=end, restart_in_ms=delay_ms)
