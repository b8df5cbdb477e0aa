import asyncio
from pathlib import Path

import pytest

from protocol.envelope import Ack, Deliver, LeaseRenewed, Revoke
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RevocationEpoch, RunId, SourceSeq
from tests.controller_mock.runner_client import event_body, result_of, ticket
from tests.controller_mock.served import WAIT_S, eventually, run_config, served
from tests.controller_mock.stores import WaitingStore


async def test_runner_is_welcomed_and_its_events_are_stored_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()

        await client.send_events(event_body(client.config, seq) for seq in range(1, 301))
        await client.acked_through(300)

        assert world.sequences() == list(range(1, 301))
        view = world.controller.view(world.run_id)
        assert (view.connected, view.acked_source_seq, view.connection_count) == (True, 300, 1)
        assert world.controller.closings() == {}


async def test_welcome_after_a_lost_connection_has_the_committed_cursor(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        first = await world.bootstrap()
        await first.send_events(event_body(first.config, seq) for seq in range(1, 11))
        await first.acked_through(10)

        world.controller.drop_connections(world.run_id)
        await first.closed()
        assert first.credential is not None
        second = await world.connect(world.config, first.credential)
        await second.send_events(event_body(second.config, seq) for seq in range(9, 13))
        await second.acked_through(12)

        assert world.sequences() == list(range(1, 13))
        events = world.store.events(world.run_id, 0, 100)
        assert [event.delivery_count for event in events] == [1] * 8 + [2, 2] + [1, 1]
        assert [event.connection_number for event in events] == [1] * 10 + [2, 2]


async def test_newest_connection_closes_the_older_one(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        first = await world.bootstrap()

        second = await world.bootstrap()
        await first.closed()
        await second.send_events([event_body(second.config, 1)])
        await second.acked_through(1)

        assert world.controller.view(world.run_id).connection_number == 2


async def test_commands_are_delivered_one_at_a_time_and_results_reach_the_caller(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()

        queued = [
            await world.controller.queue(world.run_id, "session.snapshot", {"n": n}) for n in (1, 2)
        ]
        delivered: list[int] = []
        while len(delivered) < 2:
            message = await client.receive()
            assert isinstance(message, Deliver)
            if message.command.controller_seq > len(delivered):
                delivered.append(message.command.controller_seq)
                await client.send_result(result_of(message.command, nth=len(delivered)))
        rows = [
            await world.controller.result(world.run_id, command.controller_seq, WAIT_S)
            for command in queued
        ]

        assert delivered == [1, 2]
        assert [row.status for row in rows] == ["completed", "completed"]
        assert [row.command_id for row in rows] == [command.command_id for command in queued]


async def test_queued_command_waits_in_the_welcome(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        await world.controller.queue(world.run_id, "session.snapshot")

        token = await world.controller.issue_ticket(world.run_id)
        client = await world.connect(world.config, ticket(token))

        assert client.credential is not None
        view = world.controller.view(world.run_id)
        assert view.outstanding_command_type == "session.snapshot"


async def test_controller_takes_its_runs_up_again_from_the_store(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        await client.send_events(event_body(client.config, seq) for seq in range(1, 6))
        await client.acked_through(5)
        lease = client.credential

    async with served(tmp_path) as world:
        assert lease is not None
        again = await world.connect(world.config, lease)
        assert again.acked == 5
        await again.send_events(event_body(again.config, seq) for seq in range(5, 8))
        await again.acked_through(7)

        assert world.sequences() == list(range(1, 8))


async def test_renewal_extends_the_lease_and_is_stored(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        assert client.credential is not None
        before = client.credential.expires_at_unix_ms
        assert before is not None

        await client.send_renewal(before)
        renewed = await client.receive()

        assert isinstance(renewed, LeaseRenewed)
        assert renewed.previous_expires_at_unix_ms == before
        leases = [row for row in world.store.credentials(world.run_id) if row.kind == "lease"]
        assert [row.expires_at_unix_ms for row in leases] == [
            renewed.connection_lease_expires_at_unix_ms
        ]


async def test_revocation_reaches_the_runner_and_events_are_still_taken(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()

        await world.controller.revoke(world.run_id)
        revoke = await client.receive()
        await client.send_events([event_body(client.config, 1)])
        ack = await client.receive()

        assert (revoke, ack) == (Revoke(RevocationEpoch(1)), Ack(SourceSeq(1)))
        assert world.controller.view(world.run_id).revoked


async def test_runs_of_one_controller_do_not_see_each_other(tmp_path: Path) -> None:
    other = run_config("run-2")
    async with served(tmp_path) as world:
        await world.controller.create_run(other)
        clients = [await world.bootstrap(), await world.bootstrap(other)]

        for client, count in zip(clients, (3, 5), strict=True):
            await client.send_events(event_body(client.config, seq) for seq in range(1, count + 1))
            await client.acked_through(count)

        assert world.sequences() == [1, 2, 3]
        assert world.sequences(RunId("run-2")) == [1, 2, 3, 4, 5]


async def test_events_iterator_yields_history_and_what_comes_later(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()
        await client.send_events(event_body(client.config, seq) for seq in (1, 2))
        await client.acked_through(2)

        async def read() -> list[int]:
            found: list[int] = []
            async for event in world.controller.events(world.run_id, 1):
                found.append(event.source_seq)
                if event.source_seq == 4:
                    break
            return found

        reading = asyncio.create_task(read())
        await client.send_events(event_body(client.config, seq) for seq in (3, 4))

        assert await asyncio.wait_for(reading, WAIT_S) == [2, 3, 4]


async def test_events_are_not_shown_before_the_view_that_has_them(tmp_path: Path) -> None:
    store = WaitingStore(waits_after_commit=True)
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()
        store.hold()
        await client.send_events([event_body(client.config, 1)])
        await eventually(store.waiting.is_set)

        assert world.sequences() == [1]
        assert world.controller.view(world.run_id).acked_source_seq == 0
        assert await world.controller.read_events(world.run_id) == []

        store.go_on()
        async for event in world.controller.events(world.run_id):
            assert event.source_seq == 1
            assert world.controller.view(world.run_id).acked_source_seq == 1
            break


async def test_result_is_not_returned_before_the_view_that_has_it(tmp_path: Path) -> None:
    store = WaitingStore(waits_after_commit=True)
    async with served(tmp_path, store.over) as world:
        client = await world.bootstrap()
        seq = (await world.controller.queue(world.run_id, "session.snapshot", {})).controller_seq
        delivered = await client.receive()
        assert isinstance(delivered, Deliver)
        store.hold()
        await client.send_result(result_of(delivered.command))
        await eventually(store.waiting.is_set)

        [row] = store.commands(world.run_id)
        assert row.status == "completed"
        assert world.controller.view(world.run_id).open_commands == 1
        with pytest.raises(TimeoutError):
            await world.controller.result(world.run_id, seq, 0.05)

        store.go_on()
        assert (await world.controller.result(world.run_id, seq, WAIT_S)).status == "completed"
        assert world.controller.view(world.run_id).open_commands == 0


async def test_waiting_for_a_view_ends_when_it_holds_and_raises_when_it_does_not(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        waiting = asyncio.create_task(
            world.controller.wait_for(world.run_id, lambda view: view.connected, WAIT_S)
        )
        await world.bootstrap()
        assert (await waiting).connected

        with pytest.raises(TimeoutError):
            await world.controller.wait_for(world.run_id, lambda _: False, 0.01)


async def test_callers_get_the_code_of_a_refusal(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        with pytest.raises(PrpError) as unknown:
            await world.controller.queue(RunId("nobody"), "session.snapshot")
        with pytest.raises(PrpError) as invalid:
            await world.controller.queue(world.run_id, "no.such.command")
        with pytest.raises(PrpError) as exists:
            await world.controller.create_run(world.config)

        codes = [caught.value.code for caught in (unknown, invalid, exists)]
        assert codes == [
            ErrorCode.RUN_UNKNOWN,
            ErrorCode.COMMAND_INVALID,
            ErrorCode.RUN_EXISTS,
        ]
