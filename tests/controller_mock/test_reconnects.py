"""A runner that reconnects again and again leaves nothing behind at its controller (U02)."""

import asyncio
import gc
import os
import threading
from pathlib import Path

from tests.controller_mock.runner_client import event_body
from tests.controller_mock.served import Served, served

WARM_UP = 20
RECONNECTS = 200


def held() -> tuple[int, int, int]:
    """Return tasks of the loop, threads and open descriptors of this process."""
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    return len(asyncio.all_tasks()), threading.active_count(), descriptors


async def reconnect(world: Served, times: int) -> None:
    """Let the newest client go and connect again on its lease, with one event each time."""
    for _ in range(times):
        client = world.clients[-1]
        credential = client.credential
        assert credential is not None
        world.controller.drop_connections(world.run_id)
        await client.closed()
        await client.close()
        world.clients.remove(client)
        again = await world.connect(world.config, credential)
        seq = again.acked + 1
        await again.send_events([event_body(again.config, seq)])
        await again.acked_through(seq)


async def test_many_reconnects_leave_no_task_thread_or_descriptor(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        await world.bootstrap()
        await reconnect(world, WARM_UP)
        before = held()

        await reconnect(world, RECONNECTS)

        assert held() == before
        view = world.controller.view(world.run_id)
        assert view.connection_count == 1 + WARM_UP + RECONNECTS
        assert world.sequences() == list(range(1, 1 + WARM_UP + RECONNECTS))
