"""The demo's run: real work, one socket cut, one runner killed, and a new turn to the end.

It decides which committed fact brings which fault and which command. It refuses to judge
the outcome: `checker` does, and knows nothing of this.

    prepare, open, start ─▶ 1/3 of the files: socket cut ─▶ 2/3: SIGKILL ─▶ turn.interrupted
        run.terminal ◀─ a new turn goes on from the agent's checkpoint ◀─ turn.start ◀─┘
"""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.console.data_directory import make_private, runner_directory
from controller_mock.console.run_identity import run_config
from controller_mock.controller import Controller, open_controller
from controller_mock.io.runner_process import RunnerCommand, RunnerProcess, launch
from controller_mock.io.supervisor import Report, RunnerEnded, RunnerStarted, Supervisor
from controller_mock.storage.sqlite import open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME
from controller_mock.storage.store import CommandRow, StoredEvent
from protocol.errors import ExitStatus
from protocol.ids import RunId
from protocol.limits import HARNESS_GRACE_MS, STOP_TIMEOUT_MS
from protocol.secrets import Secret
from tests.demo import agent, checker
from tests.demo.leftovers import end_programs

TICKET_TTL_MS: Final = 30_000
"""A busy machine may be slow to start a program."""
RECONNECT_GRACE_MS: Final = 30_000
"""A runner whose demo was killed ends after this, and its agent with it."""
_PROGRESS_STEPS: Final = 8

Tell = Callable[[str], None]


class DemoFailed(Exception):
    """The run took a way that the demo does not go on from."""


class Site(msgspec.Struct, frozen=True):
    """Where everything of one demo lies."""

    root: Path
    files: int

    @property
    def folder(self) -> Path:
        """The folder that the agent hashes."""
        return self.root / "folder"

    @property
    def data(self) -> Path:
        """The controller's data, as `controller-mock --data` takes it."""
        return self.root / "data"

    @property
    def store(self) -> Path:
        """The controller's database."""
        return self.data / DATABASE_NAME

    @property
    def checkpoint(self) -> Path:
        """The agent's own checkpoint."""
        return self.root / "checkpoint"

    @property
    def fifo(self) -> Path:
        """While it exists the agent waits here, so that it cannot be done before the kill."""
        return self.root / "hold"


class Witness(msgspec.Struct):
    """What only the demo itself can know, for the checker."""

    run_id: RunId
    runner_pids: list[int] = []
    runner_statuses: list[int] = []
    secrets: list[str] = []


def facts(site: Site, witness: Witness) -> checker.Facts:
    """Return what the checker is told beside the files."""
    state_dir = runner_directory(site.data, witness.run_id)
    return checker.Facts(
        root=str(site.root),
        store=str(site.store),
        runner_state=str(state_dir / "runner-state.json"),
        folder=str(site.folder),
        checkpoint=str(site.checkpoint),
        run_id=witness.run_id,
        runner_pids=witness.runner_pids,
        runner_statuses=witness.runner_statuses,
        secrets=witness.secrets,
    )


class Scenario:
    """One run from its first command to the runner's last exit."""

    def __init__(self, site: Site, tell: Tell) -> None:
        self.witness = Witness(RunId(f"demo-{secrets.token_hex(6)}"))
        self._site = site
        self._tell = tell
        self._lines = 0
        self._is_cut = False
        self._is_killed = False

    async def perform(self) -> None:
        """Go through the whole run.

        Raises:
            DemoFailed: a command or the runner ended in an unforeseen way.
        """
        make_private(self._site.data)
        os.mkfifo(self._site.fifo)
        with contextlib.closing(open_store(self._site.data)) as store:
            async with open_controller(store) as controller:
                await self._perform(controller)

    async def _perform(self, controller: Controller) -> None:
        config = run_config(self.witness.run_id)
        await controller.create_run(config)
        bound = await controller.serve()
        state_dir = runner_directory(self._site.data, self.witness.run_id)
        make_private(state_dir.parent)
        command = RunnerCommand(
            identity=config.identity,
            runner_version=config.runner_version,
            runner_digest=config.runner_digest,
            connect_url=bound.url,
            state_dir=str(state_dir),
            reconnect_grace_ms=RECONNECT_GRACE_MS,
        )
        supervisor = Supervisor(
            lambda: self._ticket(controller), lambda ticket: self._start(command, ticket), self._see
        )
        runner = asyncio.create_task(supervisor.run())
        work = asyncio.create_task(self._work(controller, supervisor))
        try:
            await self._attend(runner, work, supervisor)
        except BaseException:
            work.cancel()
            await self._clean_up(supervisor)
            runner.cancel()
            await asyncio.gather(work, runner, return_exceptions=True)
            raise

    async def _attend(
        self,
        runner: "asyncio.Task[RunnerEnded]",
        work: "asyncio.Task[None]",
        supervisor: Supervisor,
    ) -> None:
        await asyncio.wait((runner, work), return_when=asyncio.FIRST_COMPLETED)
        if runner.done() and not work.done() and runner.result().exit.status != ExitStatus.OK:
            raise DemoFailed(f"the runner ended for good: {_words(runner.result())}")
        await work
        supervisor.stop_restarting()
        await runner

    # --- the runner ---------------------------------------------------------------------------

    async def _ticket(self, controller: Controller) -> Secret:
        ticket = await controller.issue_ticket(self.witness.run_id, TICKET_TTL_MS)
        self.witness.secrets.append(bytes(ticket.reveal()).decode())
        return ticket

    def _start(self, command: RunnerCommand, ticket: Secret) -> RunnerProcess:
        return launch(command, ticket, os.environ)

    def _see(self, report: Report) -> None:
        if isinstance(report, RunnerStarted):
            self.witness.runner_pids.append(report.pid)
            self._tell(f"runner {report.attempt} started as process {report.pid}")
            return
        self.witness.runner_statuses.append(report.exit.status)
        self._tell(f"runner ended: {_words(report)}")

    async def _clean_up(self, supervisor: Supervisor) -> None:
        """Leave no process behind when the scenario could not go to its end."""
        supervisor.stop_restarting()
        running = supervisor.running
        if running is not None:
            running.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((STOP_TIMEOUT_MS + HARNESS_GRACE_MS) / 1000):
                    await running.wait()
            running.kill()
            await running.wait()
        end_programs(self.witness.run_id)

    # --- the work -----------------------------------------------------------------------------

    async def _work(self, controller: Controller, supervisor: Supervisor) -> None:
        run_id, site = self.witness.run_id, self._site
        argv = [
            *(sys.executable, "-I", agent.__file__, str(site.folder), str(site.checkpoint)),
            *("--hold", str(site.files * 5 // 6), str(site.fifo)),
        ]
        provider = {"kind": "command", "argv": argv, "cwd": str(site.root)}
        _completed(await controller.perform(run_id, "run.prepare", {"provider": provider}))
        _completed(await controller.perform(run_id, "session.open"))
        _completed(await controller.perform(run_id, "turn.start"))
        async with contextlib.aclosing(controller.events(run_id)) as events:
            async for event in events:
                if await self._on_event(event, controller, supervisor):
                    break
        _completed(await controller.perform(run_id, "runner.shutdown"))

    async def _on_event(
        self, event: StoredEvent, controller: Controller, supervisor: Supervisor
    ) -> bool:
        """Do what a committed event demands; True when the run has ended."""
        run_id = self.witness.run_id
        match event.event_type:
            case "item.delta":
                before, self._lines = self._lines, self._lines + _lines_of(event)
                self._tell_progress(before)
                await self._bring_fault(controller, supervisor)
            case "runner.reconciled":
                self._tell("the restarted runner took up the durable state")
            case "harness.exited":
                self._tell(_harness_end(event))
            case "turn.interrupted":
                self._tell("the turn is reported as interrupted; queueing a new turn")
                _completed(await controller.perform(run_id, "turn.start"))
            case "run.terminal":
                self._tell("the run has ended")
                return True
            case _:
                pass
        return False

    async def _bring_fault(self, controller: Controller, supervisor: Supervisor) -> None:
        run_id, files = self.witness.run_id, self._site.files
        if not self._is_cut and self._lines >= files // 3:
            self._is_cut = True
            self._tell(f"{self._lines} lines committed: cutting the socket")
            controller.drop_connections(run_id)
            view = await controller.wait_for(run_id, lambda seen: seen.connection_count >= 2)
            self._tell(f"connection {view.connection_count} is authenticated by its lease")
        elif not self._is_killed and self._lines >= files * 2 // 3:
            self._is_killed = True
            running = supervisor.running
            if running is None:
                raise DemoFailed("there is no runner to kill")
            self._tell(f"{self._lines} lines committed: SIGKILL for process {running.pid}")
            running.kill()
            await running.wait()
            # Only the agent of the killed runner may wait here.
            self._site.fifo.unlink()

    def _tell_progress(self, before: int) -> None:
        step = max(1, self._site.files // _PROGRESS_STEPS)
        if self._lines // step > before // step:
            self._tell(f"{self._lines} of {self._site.files} files reported and committed")


def _completed(row: CommandRow) -> None:
    if row.status != "completed":
        result = bytes(row.result).decode() if isinstance(row.result, msgspec.Raw) else ""
        raise DemoFailed(f"command {row.type} ended as {row.status}: {result}")


def _lines_of(event: StoredEvent) -> int:
    """Lines that were printed while nobody was connected may stand in one event."""
    payload = msgspec.json.decode(event.body)["payload"]
    return str(payload["text"]).count("\n")


def _harness_end(event: StoredEvent) -> str:
    payload = msgspec.json.decode(event.body).get("payload", {})
    orphan = payload.get("orphan")
    if orphan is not None:
        return f"the old agent is proven dead ({orphan})"
    return f"the agent exited: {payload.get('processExit')}"


def _words(ended: RunnerEnded) -> str:
    last = [line for line in ended.exit.stderr_tail if not line.startswith("{")]
    return "; ".join((ended.exit.cause, *last[-1:]))
