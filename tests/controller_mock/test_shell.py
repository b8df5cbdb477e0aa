import asyncio
from pathlib import Path

import pytest

from protocol.canonical_json import JsonValue
from protocol.envelope import Ack, Deliver
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId, SourceSeq
from protocol.limits import READ_AHEAD_BYTES_MAX
from tests.controller_mock.runner_client import READ_BYTES, RunnerClient, event_body, ticket
from tests.controller_mock.served import WAIT_S, Served, eventually, run_config, served
from tests.controller_mock.stores import BrokenStore, FailingStore, WaitingStore


async def until_waiting(store: WaitingStore) -> None:
    assert await asyncio.to_thread(store.waiting.wait, WAIT_S)


# --- gates --------------------------------------------------------------------------------


async def test_no_ack_leaves_while_the_commit_it_names_is_in_flight(tmp_path: Path) -> None:
    store = WaitingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()

        store.hold()
        await client.send_events(event_body(client.config, seq) for seq in range(1, 4))
        await until_waiting(store)
        await client.send_events(event_body(client.config, seq) for seq in range(4, 6))
        await client.ping()
        assert client.texts_waiting == 0
        store.go_on()
        await client.acked_through(5)

        assert world.sequences() == [1, 2, 3, 4, 5]


async def test_acks_of_one_commit_are_one_message(tmp_path: Path) -> None:
    store = WaitingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()

        store.hold()
        await client.send_events([event_body(client.config, 1)])
        await until_waiting(store)
        await client.send_events(event_body(client.config, seq) for seq in range(2, 101))
        await client.ping()
        store.go_on()
        acks = [await client.receive(), await client.receive()]

        assert acks == [Ack(SourceSeq(1)), Ack(SourceSeq(100))]


async def test_runs_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    store = WaitingStore()
    names = [f"many-{n}" for n in range(5)]
    async with served(tmp_path, store.over) as world:
        clients: list[RunnerClient] = []
        for name in names:
            await world.controller.create_run(run_config(name))
            clients.append(await world.bootstrap(run_config(name)))
        store.commits.clear()

        store.hold()
        await clients[0].send_events([event_body(clients[0].config, 1)])
        await until_waiting(store)
        for client in clients[1:]:
            await client.send_events([event_body(client.config, 1)])
            await client.ping()
        store.go_on()
        for client in clients:
            await client.acked_through(1)

        assert store.commits == [[names[0]], names[1:]]


async def test_lease_is_renewed_after_a_commit_that_took_long(tmp_path: Path) -> None:
    store = WaitingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()
        assert client.credential is not None
        expires = client.credential.expires_at_unix_ms
        assert expires is not None

        store.hold()
        await client.send_events([event_body(client.config, 1)])
        await until_waiting(store)
        await client.send_renewal(expires)
        await client.ping()
        assert client.texts_waiting == 0, "a renewal is stored before it is answered"
        store.go_on()
        messages = [await client.receive(), await client.receive()]

        assert [type(message).__name__ for message in messages] == ["Ack", "LeaseRenewed"]


# --- a store that fails -------------------------------------------------------------------


@pytest.mark.parametrize("after_commit", [False, True], ids=["before commit", "after commit"])
async def test_failed_commit_acks_nothing_and_the_runner_resumes_after_the_reload(
    tmp_path: Path, after_commit: bool
) -> None:
    store = FailingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)

        store.commits_to_fail, store.fails_after_commit = 1, after_commit
        await client.send_events([event_body(client.config, 2)])
        await client.closed()
        assert client.acked == 1
        again = await _reconnected(world, client)
        await again.send_events(event_body(again.config, seq) for seq in (2, 3))
        await again.acked_through(3)

        assert world.sequences() == [1, 2, 3]
        counts = [event.delivery_count for event in world.store.events(world.run_id, 0, 10)]
        assert counts == [1, 2 if after_commit else 1, 1]


async def test_caller_learns_that_a_failed_commit_leaves_its_request_unknown(
    tmp_path: Path,
) -> None:
    store = FailingStore()
    async with served(tmp_path, store.over) as world:
        store.commits_to_fail = 1

        with pytest.raises(PrpError) as caught:
            await world.controller.queue(world.run_id, "session.snapshot")
        queued = await world.controller.queue(world.run_id, "session.snapshot")

        assert caught.value.code is ErrorCode.STORAGE_WRITE_FAILED
        assert queued.controller_seq == 1


async def test_store_that_keeps_failing_is_tried_again_until_it_works(tmp_path: Path) -> None:
    store = FailingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()

        for _ in range(3):
            store.commits_to_fail = 1
            await client.send_events([event_body(client.config, 1)])
            await client.closed()
            client = await _reconnected(world, client)
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)

        assert world.sequences() == [1]


async def test_run_that_cannot_be_loaded_is_loaded_later(tmp_path: Path) -> None:
    store = FailingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()

        store.commits_to_fail, store.loads_to_fail = 1, 2
        await client.send_events([event_body(client.config, 1)])
        await client.closed()
        again = await _reconnected(world, client)
        await again.send_events([event_body(client.config, 1)])
        await again.acked_through(1)

        assert (store.loads_to_fail, world.sequences()) == (0, [1])


async def test_hello_of_a_fenced_run_is_closed_without_spending_its_ticket(tmp_path: Path) -> None:
    store = FailingStore()
    async with served(tmp_path, store.over) as world:
        token = await world.controller.issue_ticket(world.run_id)
        store.commits_to_fail, store.loads_to_fail = 1, 1
        with pytest.raises(PrpError):
            await world.controller.queue(world.run_id, "session.snapshot")

        with pytest.raises(PrpError):
            await world.connect(world.config, ticket(token))
        slot = world.controller.shell.slot(world.run_id)
        await eventually(lambda: not slot.is_fenced)
        client = await world.connect(world.config, ticket(token))

        assert client.acked == 0
        assert world.controller.closings() == {ErrorCode.STORAGE_WRITE_FAILED: 1}


async def test_event_id_used_twice_latches_its_run_and_spares_the_others(tmp_path: Path) -> None:
    store = WaitingStore()
    other = run_config("run-2")
    async with served(tmp_path, store.over) as world:
        await world.controller.create_run(other)
        bad, good = await world.bootstrap(), await world.bootstrap(other)
        await bad.send_events([event_body(bad.config, 1, source_event_id="twice")])
        await bad.acked_through(1)

        store.hold()
        await good.send_events([event_body(other, 1)])
        await until_waiting(store)
        await bad.send_events([event_body(bad.config, 2, source_event_id="twice")])
        await good.send_events([event_body(other, 2)])
        await bad.ping()
        await good.ping()
        store.go_on()
        await good.acked_through(2)
        await bad.closed()
        view = await world.controller.wait_for(
            world.run_id, lambda view: view.integrity_fault is not None, WAIT_S
        )

        assert view.integrity_fault == ErrorCode.EVENT_IDENTITY_CONFLICT
        assert world.sequences() == [1]
        assert world.sequences(RunId("run-2")) == [1, 2]


async def test_fault_of_the_store_code_ends_the_controller_and_its_callers(tmp_path: Path) -> None:
    async with served(tmp_path, BrokenStore().over) as world:
        with pytest.raises(PrpError) as caught:
            await world.controller.queue(world.run_id, "session.snapshot")
        with pytest.raises(ZeroDivisionError):
            await world.controller.failed()

        assert caught.value.code is ErrorCode.INTERNAL_FAULT


# --- load ---------------------------------------------------------------------------------


async def test_commit_in_flight_bounds_what_is_read_from_a_flooding_peer(tmp_path: Path) -> None:
    store = WaitingStore()
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()
        line: JsonValue = {"text": "x" * 100_000, "stream": "stdout", "lineNumber": 1}
        reception = world.controller.shell.reception

        store.hold()
        await client.send_events([event_body(client.config, 1)])
        await until_waiting(store)
        # 40 MB of frames, more than the sockets' buffers hold.
        flood = asyncio.create_task(
            client.send_events(
                event_body(client.config, seq, payload=line) for seq in range(2, 202)
            )
        )
        await eventually(lambda: reception.read_ahead_bytes > READ_AHEAD_BYTES_MAX)
        read = reception.read_ahead_bytes
        store.go_on()
        await client.acked_through(201)
        await flood

        assert read < READ_AHEAD_BYTES_MAX + 2 * READ_BYTES
        assert world.sequences() == list(range(1, 202))


async def test_write_ends_while_many_peers_keep_the_loop_busy(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        configs = [run_config(f"busy-{n}") for n in range(8)]
        for config in configs:
            await world.controller.create_run(config)
        clients = [await world.bootstrap(config) for config in configs]

        async def flood(client: RunnerClient) -> None:
            for first in range(1, 401, 100):
                await client.send_events(
                    event_body(client.config, seq) for seq in range(first, first + 100)
                )
            await client.acked_through(400)

        await asyncio.wait_for(asyncio.gather(*map(flood, clients)), WAIT_S)

        assert [world.sequences(RunId(f"busy-{n}"))[-1] for n in range(8)] == [400] * 8


async def test_redelivered_command_follows_a_lost_connection(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        queued = await world.controller.queue(world.run_id, "session.snapshot")
        first = await client.receive()
        assert isinstance(first, Deliver)

        world.controller.drop_connections(world.run_id)
        await client.closed()
        token = await world.controller.issue_ticket(world.run_id)
        dialled = await world.dial()
        welcome = await dialled.authenticate(ticket(token))

        assert welcome.pending_commands == (first.command,)
        row = world.store.command(world.run_id, queued.controller_seq)
        assert row is not None
        assert row.delivery_count == 2


# --- helpers ------------------------------------------------------------------------------


async def _reconnected(world: Served, client: RunnerClient) -> RunnerClient:
    """Connect on the lease again once the run's store was loaded again."""
    slot = world.controller.shell.slot(world.run_id)
    await eventually(lambda: not slot.is_fenced)
    assert client.credential is not None
    return await world.connect(client.config, client.credential)
