import hashlib
import os
import sys
from pathlib import Path

import pytest

from controller_mock.io.runner_process import RunnerProcess, launch
from controller_mock.io.supervisor import Report, RunnerEnded, RunnerStarted, Supervisor
from protocol.errors import ErrorCode, ExitStatus
from protocol.secrets import Secret
from tests.controller_mock.io.test_runner_process import command

pytestmark = pytest.mark.process


class Bench:
    """A supervisor whose runner takes its exit statuses from a list, one per start."""

    def __init__(self, directory: Path, statuses: list[str], restarts_max: int = 8) -> None:
        self.reports: list[Report] = []
        self.tickets: list[Secret] = []
        self.seen = directory / "tickets"
        script = f"""
import hashlib, os, sys
ticket = os.environ["PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"]
with open({str(self.seen)!r}, "a+") as seen:
    seen.write(hashlib.sha256(ticket.encode()).hexdigest() + "\\n")
    seen.seek(0)
    start = len(seen.readlines())
status = {statuses!r}[start - 1]
os.kill(os.getpid(), 9) if status == "SIGKILL" else sys.exit(int(status))
"""
        self._command = command(script)
        self.supervisor = Supervisor(
            self._issue, self._start, self.reports.append, restarts_max=restarts_max
        )

    async def _issue(self) -> Secret:
        self.tickets.append(Secret(f"bootstrap_{len(self.tickets)}"))
        return self.tickets[-1]

    def _start(self, ticket: Secret) -> RunnerProcess:
        return launch(self._command, ticket, {"PATH": os.environ["PATH"]})

    def statuses(self) -> list[int]:
        return [report.exit.status for report in self.reports if isinstance(report, RunnerEnded)]


@pytest.mark.parametrize("status", ["SIGKILL", "69", "70", "74", "75"])
async def test_runner_that_can_be_resumed_is_started_again_with_a_fresh_ticket(
    tmp_path: Path, status: str
) -> None:
    bench = Bench(tmp_path, [status, "0"])

    ended = await bench.supervisor.run()

    assert (ended.exit.status, ended.restart_in_ms) == (0, None)
    used = [hashlib.sha256(f"bootstrap_{n}".encode()).hexdigest() for n in range(2)]
    assert bench.seen.read_text().split() == used
    assert all(ticket.wiped for ticket in bench.tickets)
    assert [report.attempt for report in bench.reports if isinstance(report, RunnerStarted)] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    "status",
    [
        ExitStatus.USAGE,
        ExitStatus.DATA,
        ExitStatus.CANNOT_CREATE,
        ExitStatus.PROTOCOL,
        ExitStatus.TICKET,
    ],
)
async def test_runner_that_a_person_must_look_at_is_not_started_again(
    tmp_path: Path, status: ExitStatus
) -> None:
    bench = Bench(tmp_path, [str(int(status))])

    ended = await bench.supervisor.run()

    assert (ended.exit.status, ended.restart_in_ms) == (status, None)
    assert ended.remedy is not None
    assert bench.supervisor.running is None


async def test_runner_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["75"] * 3, restarts_max=2)

    ended = await bench.supervisor.run()

    assert bench.statuses() == [75, 75, 75]
    assert ended.code is ErrorCode.RUNNER_RESTARTS_EXHAUSTED


async def test_end_is_the_last_once_restarts_are_no_longer_wanted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["75"])
    bench.supervisor.stop_restarting()

    ended = await bench.supervisor.run()

    assert (ended.exit.status, ended.restart_in_ms, len(bench.tickets)) == (75, None, 1)


async def test_ticket_is_wiped_when_the_runner_cannot_be_started() -> None:
    ticket = Secret("bootstrap_1")

    async def issue() -> Secret:
        return ticket

    def start(given: Secret) -> RunnerProcess:
        raise OSError(sys.executable)

    with pytest.raises(OSError, match="python"):
        await Supervisor(issue, start, lambda report: None).run()

    assert ticket.wiped
