"""A controller on a real socket with one run, and the clients that a test connects to it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from controller_mock.controller import Controller, open_controller
from controller_mock.core.state import RunConfig
from controller_mock.storage.sqlite import open_store
from controller_mock.storage.store import Store
from protocol.ids import Identity, RunId
from tests.controller_mock.runner_client import Credential, RunnerClient, ticket
from tests.controller_mock.stores import WaitingStore

WAIT_S = 20.0
"""A bound that only a hanging test reaches."""


def run_config(name: str = "run-1", lease_ttl_ms: int = 30_000) -> RunConfig:
    return RunConfig(
        identity=Identity(
            runner_instance_id=f"runner-{name}",
            environment_lease_id=f"environment-{name}",
            run_id=name,
            normalized_session_id=f"session-{name}",
            turn_id=f"turn-{name}",
            item_id=f"item-{name}",
        ),
        runner_version="1.2.3",
        runner_digest=f"sha256:{'a' * 64}",
        lease_ttl_ms=lease_ttl_ms,
    )


class Served:
    """What a test needs of a running controller."""

    def __init__(self, controller: Controller, store: Store, url: str) -> None:
        self.controller = controller
        self.store = store
        self.url = url
        self.config = run_config()
        self.run_id = RunId(self.config.identity.run_id)
        self.clients: list[RunnerClient] = []

    async def dial(self, config: RunConfig | None = None) -> RunnerClient:
        """Connect without proving anything."""
        client = await RunnerClient.dial(self.url, config or self.config)
        self.clients.append(client)
        return client

    async def connect(self, config: RunConfig, credential: Credential) -> RunnerClient:
        """Connect and prove a credential."""
        client = await self.dial(config)
        await client.authenticate(credential)
        return client

    async def bootstrap(self, config: RunConfig | None = None) -> RunnerClient:
        """Connect with a fresh ticket."""
        config = config or self.config
        token = await self.controller.issue_ticket(RunId(config.identity.run_id))
        return await self.connect(config, ticket(token))

    def sequences(self, run_id: RunId | None = None) -> list[int]:
        """Return the sequences of all stored events."""
        return [event.source_seq for event in self.store.events(run_id or self.run_id, 0, 100_000)]


@contextlib.asynccontextmanager
async def served(
    directory: Path, decorate: Callable[[Store], Store] | None = None
) -> AsyncGenerator[Served]:
    """Serve one run from a store in ``directory``; an earlier test's run is taken up again."""
    inner = open_store(directory / "data")
    store = inner if decorate is None else decorate(inner)
    try:
        async with open_controller(store) as controller:
            bound = await controller.serve()
            world = Served(controller, store, bound.url)
            if world.run_id not in controller.run_ids():
                await controller.create_run(world.config)
            try:
                yield world
            finally:
                if isinstance(store, WaitingStore):
                    store.go_on()
                for client in world.clients:
                    await client.close()
    finally:
        inner.close()


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what nothing announces."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
