"""`controller-mock run`: one program under a runner of its own, watched to its end.

It decides what a signal, a dead runner and a finished run mean for the processes it has
started; none of them outlives it. It refuses to know the run's commands: `conversation` does.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from controller_mock.console.conversation import Conversation, Program
from controller_mock.console.data_directory import make_private, runner_directory
from controller_mock.console.output import Output
from controller_mock.console.run_identity import run_config
from controller_mock.console.timeline import Timeline, payload_of
from controller_mock.controller import Controller, open_controller
from controller_mock.io import orphans
from controller_mock.io.runner_process import (
    RECONNECT_GRACE_MS,
    THIS_RUNNER,
    RunnerCommand,
    RunnerProcess,
    launch,
    runner_command,
)
from controller_mock.io.supervisor import Report, RunnerEnded, Supervisor
from controller_mock.io.system import SystemClock
from controller_mock.storage.store import Store, StoredEvent
from protocol.errors import ErrorCode, ExitStatus, PrpError
from protocol.ids import RunId
from protocol.limits import (
    HARNESS_GRACE_MS,
    LEASE_TTL_MS,
    SHUTDOWN_TIMEOUT_MS,
    STOP_TIMEOUT_MS,
)
from protocol.secrets import Secret

_TICKET_TTL_MS: Final = 30_000
"""Longer than the default: a busy machine may take seconds to start a process."""
_PROGRESS_PERIOD_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.5
_HARD_STOP_S: Final = (STOP_TIMEOUT_MS + HARNESS_GRACE_MS) / 1000
_LAST_WAIT_S: Final = (SHUTDOWN_TIMEOUT_MS + STOP_TIMEOUT_MS) / 1000
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    data: Path
    program: Program
    run_id: RunId
    resumes_max: int = 0
    restarts_max: int
    runner: tuple[str, ...] = THIS_RUNNER
    runner_flags: tuple[str, ...] = ()
    reconnect_grace_ms: int = RECONNECT_GRACE_MS
    lease_ttl_ms: int = LEASE_TTL_MS


class LiveRun:
    """The processes and tasks of one `controller-mock run`."""

    def __init__(
        self,
        controller: Controller,
        options: RunOptions,
        timeline: Timeline,
        output: Output,
        environment: Mapping[str, str],
    ) -> None:
        self._controller = controller
        self._options = options
        self._timeline = timeline
        self._output = output
        self._environment = environment
        self._owned = orphans.children()
        """Children of whoever this process was before; they are not ours to end."""
        self._conversation = Conversation(
            controller, options.run_id, options.program, options.resumes_max, timeline.note
        )
        self._supervisor: Supervisor | None = None
        self._stops_asked = 0
        self._lines = 0
        self._shown_seq = 0
        self._shown = anyio.Event()

    async def perform(self) -> ExitStatus:
        """Run the program to its end and return the status that says how it went."""
        options = self._options
        adopted = orphans.become_subreaper()
        config = run_config(options.run_id, options.lease_ttl_ms)
        await self._controller.create_run(config)
        bound = await self._controller.serve()
        state_dir = runner_directory(options.data, options.run_id)
        make_private(state_dir.parent)
        plain = runner_command(config, bound.url, state_dir, options.reconnect_grace_ms)
        command = msgspec.structs.replace(plain, program=options.runner, extra=options.runner_flags)
        self._timeline.note("run", f"{options.run_id}, data in {options.data}")
        self._supervisor = Supervisor(
            self._ticket,
            lambda ticket: self._launch(command, ticket),
            self._report,
            options.restarts_max,
        )
        try:
            return await self._attend(self._supervisor)
        finally:
            await self._end_runner(self._supervisor)
            if adopted and (left := orphans.end_orphans(self._owned)):
                self._timeline.note("run", f"ended {left} processes that were left behind")

    # --- the run ------------------------------------------------------------------------------

    async def _attend(self, supervisor: Supervisor) -> ExitStatus:
        status: ExitStatus | None = None
        async with anyio.create_task_group() as tasks:
            for watch in (self._show_events, self._show_connection, self._show_progress):
                tasks.start_soon(watch)
            tasks.start_soon(self._take_signals, tasks)
            status = await self._await_end(supervisor)
            await self._shown_all()
            tasks.cancel_scope.cancel()
        assert status is not None, "nobody else cancels the watchers"
        return status

    async def _await_end(self, supervisor: Supervisor) -> ExitStatus:
        work = asyncio.ensure_future(self._conversation.hold())
        runner = asyncio.ensure_future(supervisor.run())
        fault = asyncio.ensure_future(self._watch_for_faults())
        try:
            await asyncio.wait((work, runner, fault), return_when=asyncio.FIRST_COMPLETED)
            if fault.done():
                fault.result()
            if not work.done() and runner.result().exit.status == ExitStatus.OK:
                # It ended because its last result was stored; the conversation is about to know.
                await asyncio.wait((work,), timeout=_LAST_WAIT_S)
            if not work.done():
                return self._without_runner(runner.result())
            supervisor.stop_restarting()
            await asyncio.wait((runner,), timeout=_LAST_WAIT_S)
            return work.result()
        finally:
            for task in (work, runner, fault):
                task.cancel()
            await asyncio.gather(work, runner, fault, return_exceptions=True)

    def _without_runner(self, ended: RunnerEnded) -> ExitStatus:
        outcome = self._conversation.outcome()
        if outcome is not None:
            return outcome
        state_dir = runner_directory(self._options.data, self._options.run_id)
        self._timeline.note("run", f"no runner is left; what it knew is kept in {state_dir}")
        return status_without_runner(ended.exit.status, turn_asked=self._conversation.turn_asked)

    async def _watch_for_faults(self) -> None:
        """Return never; raise what makes the run's end unreachable."""
        run_id = self._options.run_id
        async for view in self._controller.views(run_id):
            if view.integrity_fault is not None:
                words = f"{view.integrity_fault}; nothing more of this runner is believed"
                raise PrpError(ErrorCode.INTEGRITY_LATCHED, words)

    # --- the runner ---------------------------------------------------------------------------

    async def _ticket(self) -> Secret:
        return await self._controller.issue_ticket(self._options.run_id, _TICKET_TTL_MS)

    def _launch(self, command: RunnerCommand, ticket: Secret) -> RunnerProcess:
        return launch(command, ticket, self._environment)

    def _report(self, report: Report) -> None:
        self._timeline.runner(report)
        self._reap()

    def _reap(self) -> None:
        running = None if self._supervisor is None else self._supervisor.running
        owned = self._owned if running is None else {*self._owned, running.pid}
        orphans.reap_orphans(owned)

    async def _end_runner(self, supervisor: Supervisor) -> None:
        supervisor.stop_restarting()
        with anyio.CancelScope(shield=True):
            if (running := supervisor.running) is not None:
                running.terminate()
                with anyio.move_on_after(_HARD_STOP_S):
                    await running.wait()
                running.kill()
                await running.wait()

    # --- signals ------------------------------------------------------------------------------

    async def _take_signals(self, tasks: TaskGroup) -> None:
        with anyio.open_signal_receiver(*_STOP_SIGNALS, signal.SIGCHLD) as received:
            async for number in received:
                if number == signal.SIGCHLD:
                    self._reap()
                    continue
                self._stops_asked += 1
                tasks.start_soon(self._stop, self._stops_asked)

    async def _stop(self, times: int) -> None:
        assert self._supervisor is not None, "signals are taken once there is a supervisor"
        running = self._supervisor.running
        if times == 1:
            self._timeline.note("run", "cancelling; once more stops the runner itself")
            try:
                await self._conversation.cancel()
            except PrpError as error:
                self._timeline.note("run", f"the run could not be cancelled: {error}")
            return
        self._supervisor.stop_restarting()
        if running is None:
            return
        if times == 2:
            self._timeline.note("run", "stopping the runner; once more kills it")
            running.terminate()
        else:
            running.kill()

    # --- what is shown ------------------------------------------------------------------------

    async def _show_events(self) -> None:
        async for batch in self._controller.event_batches(self._options.run_id):
            text: list[str] = []
            for event in batch:
                if event.event_type == "item.delta":
                    text.append(_text_of(event))
                    continue
                await self._show_text(text)
                self._timeline.event(event)
            await self._show_text(text)
            self._shown_seq = batch[-1].source_seq
            shown, self._shown = self._shown, anyio.Event()
            shown.set()

    async def _show_text(self, text: list[str]) -> None:
        if text:
            self._lines += sum(piece.count("\n") for piece in text)
            await self._output.text("".join(text).encode("utf-8", "replace"))
            text.clear()

    async def _shown_all(self) -> None:
        """Wait until everything committed is shown, unless the user no longer cares."""
        last = self._controller.view(self._options.run_id).acked_source_seq
        while self._shown_seq < last and self._stops_asked < 2:
            shown = self._shown
            with anyio.move_on_after(_LOOK_AGAIN_S):
                await shown.wait()

    async def _show_connection(self) -> None:
        async for view in self._controller.views(self._options.run_id):
            self._timeline.connection(view)

    async def _show_progress(self) -> None:
        told = 0
        while True:
            await anyio.sleep(_PROGRESS_PERIOD_S)
            view = self._controller.view(self._options.run_id)
            if view.acked_source_seq > told:
                told = view.acked_source_seq
                repeats = f", {view.replay_deliveries} repeated" if view.replay_deliveries else ""
                self._timeline.note(
                    "progress", f"{self._lines} lines, {told} events stored{repeats}"
                )


async def run_program(options: RunOptions, store: Store) -> ExitStatus:
    """Run a program under a controller and a runner of its own, to its end."""
    output = Output(asyncio.get_running_loop())
    timeline = Timeline(output.line, lambda: SystemClock().now().unix_ms)
    try:
        async with open_controller(store) as controller:
            live = LiveRun(controller, options, timeline, output, os.environ)
            return await live.perform()
    finally:
        with anyio.CancelScope(shield=True):
            await output.close()


def status_without_runner(runner_status: int, *, turn_asked: bool) -> ExitStatus:
    """Return how a run ends whose last runner ended before the run did.

    Args:
        runner_status: of the runner's process; negative if a signal ended it.
        turn_asked: the program may have been started, so nobody knows what it did.
    """
    if turn_asked:
        return ExitStatus.RUN_UNKNOWN
    # A program that is no runner may end with what would be the outcome of a run.
    if runner_status >= ExitStatus.USAGE:
        with contextlib.suppress(ValueError):
            return ExitStatus(runner_status)
    return ExitStatus.UNAVAILABLE


def _text_of(event: StoredEvent) -> str:
    text = payload_of(event).get("text")
    return text if isinstance(text, str) else ""
