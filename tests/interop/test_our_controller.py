"""Our controller against the upstream runner binary, which has no provider here."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from controller_mock.console.run_identity import checked_run_id, run_config
from controller_mock.controller import Controller, open_controller
from controller_mock.core.state import RunConfig
from controller_mock.io.runner_process import RunnerCommand, RunnerProcess, launch
from controller_mock.storage.sqlite import open_store
from controller_mock.storage.store import CommandRow
from protocol.ids import RunId
from tests.interop.peers import Missing, UpstreamRunner, upstream_runner

pytestmark = pytest.mark.interop

RUN = checked_run_id("run-interop")
LEASE_TTL_MS = 3_000
TICKET_TTL_MS = 30_000
WAIT_S = 120
"""Ends a test that would hang; it is no measure of anything."""
NO_PROVIDER = {
    "code": "command_execution_failed",
    "message": "run.prepare must select a provider before provider commands execute",
}


@pytest.fixture
def peer() -> UpstreamRunner:
    runner = upstream_runner()
    if isinstance(runner, Missing):
        pytest.skip(runner.reason)
    return runner


class Session:
    """A controller of ours, and upstream runners that it launches for one run."""

    def __init__(
        self, controller: Controller, peer: UpstreamRunner, config: RunConfig, state: Path
    ) -> None:
        self.controller = controller
        self.run: RunId = RUN
        self._peer = peer
        self._config = config
        self._state = state
        self.url = ""
        self.launched: list[RunnerProcess] = []

    async def launch(self) -> RunnerProcess:
        ticket = await self.controller.issue_ticket(self.run, TICKET_TTL_MS)
        command = RunnerCommand(
            identity=self._config.identity,
            runner_version=self._config.runner_version,
            runner_digest=self._config.runner_digest,
            connect_url=self.url,
            state_dir=str(self._state),
            reconnect_grace_ms=10_000,
            program=(str(self._peer.executable),),
        )
        process = launch(command, ticket, os.environ)
        self.launched.append(process)
        return process

    async def connected(self, count: int) -> None:
        await self.controller.wait_for(
            self.run, lambda view: view.connected and view.connection_count == count, WAIT_S
        )

    async def perform(self, command_type: str) -> CommandRow:
        return await self.controller.perform(self.run, command_type, {}, WAIT_S)

    async def event_types(self) -> list[str]:
        return [event.event_type for event in await self.controller.read_events(self.run)]


@asynccontextmanager
async def session(peer: UpstreamRunner, folder: Path) -> AsyncGenerator[Session]:
    store = open_store(folder / "controller" / "controller.db")
    config = run_config(RUN, LEASE_TTL_MS)
    async with open_controller(store) as controller:
        await controller.create_run(config)
        opened = Session(controller, peer, config, folder / "runner")
        opened.url = (await controller.serve()).url
        try:
            yield opened
        finally:
            for process in opened.launched:
                process.kill()
                await process.wait()
    store.close()


def result_of(row: CommandRow) -> object:
    assert isinstance(row.result, msgspec.Raw)
    result = msgspec.json.decode(row.result, type=dict[str, object])
    return result["result"]


async def test_upstream_runner_answers_commands_and_shuts_down_with_its_ack(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        runner = await opened.launch()
        await opened.connected(1)

        drained = await opened.perform("runner.drain")
        shut_down = await opened.perform("runner.shutdown")
        ended = await runner.wait()

    assert (drained.status, result_of(drained)) == ("failed", NO_PROVIDER)
    assert (shut_down.status, result_of(shut_down)) == ("failed", NO_PROVIDER)
    assert ended.status == 0, ended.cause


async def test_upstream_runner_reconnects_on_its_lease_after_a_socket_drop(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        await opened.launch()
        await opened.connected(1)

        opened.controller.drop_connections(opened.run)
        await opened.connected(2)
        row = await opened.perform("session.snapshot")
        view = opened.controller.view(opened.run)

    assert row.status == "failed"
    assert view.replay_deliveries == 0


async def test_upstream_runner_is_reconciled_after_a_kill_and_a_fresh_ticket(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        first = await opened.launch()
        await opened.connected(1)
        before = await opened.perform("session.snapshot")
        first.kill()
        await first.wait()

        await opened.launch()
        await opened.connected(2)
        await opened.controller.wait_for(
            opened.run, lambda view: view.acked_source_seq == 1, WAIT_S
        )
        after = await opened.perform("session.snapshot")

        assert await opened.event_types() == ["runner.reconciled"]
    assert (before.controller_seq, after.controller_seq) == (1, 2)


async def test_upstream_runner_renews_a_short_lease_and_lives_on(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        await opened.launch()
        await opened.connected(1)
        granted = opened.controller.view(opened.run).lease_expires_at_unix_ms
        assert granted is not None

        await opened.controller.wait_for(
            opened.run,
            lambda view: (view.lease_expires_at_unix_ms or 0) > granted + LEASE_TTL_MS,
            WAIT_S,
        )
        view = opened.controller.view(opened.run)

    assert (view.connected, view.connection_count) == (True, 1)


async def test_upstream_runner_ends_cleanly_when_its_authority_is_revoked(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        runner = await opened.launch()
        await opened.connected(1)

        await opened.controller.revoke(opened.run)
        ended = await runner.wait()
        view = opened.controller.view(opened.run)

    assert ended.status == 0, ended.cause
    assert view.revoked


async def test_upstream_runner_answers_a_ping_with_its_lifecycle(
    peer: UpstreamRunner, tmp_path: Path
) -> None:
    async with session(peer, tmp_path) as opened:
        await opened.launch()
        await opened.connected(1)

        await opened.controller.ping(opened.run)
        view = await opened.controller.wait_for(
            opened.run, lambda seen: seen.runner_lifecycle is not None, WAIT_S
        )

    assert (view.runner_lifecycle, view.runner_outbox_bytes) == ("ready", 0)
