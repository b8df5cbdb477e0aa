"""A client that is nothing but a wire, and the upstream controller that it is also used on.

It decides how events are sent so that only the controller is measured. It refuses to be
durable: what it sends comes from nowhere.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from controller_mock.core.state import RunConfig
from protocol.envelope import Resume
from protocol.secrets import Secret
from tests.bench.ours import WAIT_S, OurController, run_config
from tests.controller_mock.runner_client import RunnerClient, event_body, ticket
from tests.interop.peers import UpstreamController
from tests.interop.upstream.client import Driver, upstream_driver

UPSTREAM_EVENTS_MAX = 4_096
"""The upstream controller keeps no more."""


def bodies(config: RunConfig, first: int, count: int) -> list[bytes]:
    """Return events from sequence ``first`` on."""
    return [event_body(config, seq) for seq in range(first, first + count)]


async def send(client: RunnerClient, events: Sequence[bytes], last: int) -> float:
    """Send events at once and return the seconds until the last is acknowledged.

    They are sealed and framed before: this is not the controller's work.
    """
    for body in events:
        client.put_text(client.seal(client.event_plaintext(body)))
    async with asyncio.timeout(WAIT_S):
        start = time.perf_counter()
        await client.flush()
        await client.acked_through(last)
        return time.perf_counter() - start


@asynccontextmanager
async def client_of(
    url: str, config: RunConfig, token: Secret, history: int = 0
) -> AsyncGenerator[RunnerClient]:
    """Connect as the runner of ``config`` with so many events acknowledged."""
    client = await RunnerClient.dial(url, config)
    try:
        await client.authenticate(
            ticket(token),
            Resume(
                last_controller_command_seq=0,
                next_source_event_seq=history + 1,
                acked_source_seq=history,
            ),
        )
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def our_client(
    controller: OurController, history: int
) -> AsyncGenerator[tuple[RunnerClient, RunConfig]]:
    """Connect to a new run of ours that is given so many events first."""
    config = await controller.new_run()
    async with client_of(controller.url, config, await controller.ticket(config)) as client:
        if history:
            await send(client, bodies(config, 1, history), history)
        yield client, config


class UpstreamHistory:
    """The upstream controller with a history that each sample begins from anew."""

    def __init__(self, driver: Driver, directory: Path, history: int) -> None:
        self._driver = driver
        self._template = directory / "template"
        self._live = directory / "live"
        self._history = history
        self.config = run_config("upstrm")

    async def prepare(self) -> None:
        """Send the history once and keep the controller's state."""
        await self._open(self._template)
        async with self._client(0) as client:
            await send(client, bodies(self.config, 1, self._history), self._history)
        await self._driver.stop()

    async def events_per_s(self, count: int) -> float:
        """Take one sample from the history on."""
        shutil.rmtree(self._live, ignore_errors=True)
        shutil.copytree(self._template, self._live)
        await self._open(self._live)
        first, last = self._history + 1, self._history + count
        async with self._client(self._history) as client:
            seconds = await send(client, bodies(self.config, first, count), last)
        await self._driver.stop()
        return count / seconds

    async def _open(self, state: Path) -> None:
        opened = await self._driver.open(
            state_directory=state,
            identity=self.config.identity,
            runner_version=self.config.runner_version,
            runner_digest=self.config.runner_digest,
            options={"report": False},
        )
        self._url = opened.connect_url

    @asynccontextmanager
    async def _client(self, history: int) -> AsyncGenerator[RunnerClient]:
        token = Secret((await self._driver.ticket()).ticket)
        async with client_of(self._url, self.config, token, history) as client:
            yield client


@asynccontextmanager
async def upstream_history(
    peer: UpstreamController, directory: Path, history: int
) -> AsyncGenerator[UpstreamHistory]:
    """Run the upstream controller for the length of the block."""
    async with upstream_driver(peer) as driver:
        upstream = UpstreamHistory(driver, directory, history)
        await upstream.prepare()
        yield upstream
