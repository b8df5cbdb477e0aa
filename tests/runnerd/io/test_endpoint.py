"""Tests of the endpoint over real sockets: dialling on the loop and orders for a connection."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from protocol.base.posix_fs import SystemClock, SystemEntropy
from protocol.envelope import Pong
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, SourceSeq
from protocol.secrets import Secret
from runnerd.core.actions import CloseConnection, Dial, SendPong
from runnerd.core.inputs import Connected, ConnectFailed, ConnectionLost, Input
from runnerd.destination import parse_url
from runnerd.io.caller import Caller
from runnerd.io.endpoint import Endpoint
from tests.runnerd.io.links import RESUME
from tests.runnerd.io.test_dialling import SETTINGS
from tests.runnerd.peer import TICKET, Authority, Tamper
from tests.runnerd.peer_server import PATIENCE_S, serving

DIAL = Dial(credential_kind="bootstrap", resume=RESUME, timeout_ms=30_000)
PONG = Pong(lifecycle="ready", acked_source_seq=SourceSeq(0), outbox_bytes=0)


class Posts:
    """What the endpoint posted, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Input] = asyncio.Queue()

    def post(self, stimulus: Input) -> None:
        self._queue.put_nowait(stimulus)

    async def next(self) -> Input:
        async with asyncio.timeout(PATIENCE_S):
            return await self._queue.get()

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


@asynccontextmanager
async def endpoint_for(url: str) -> AsyncGenerator[tuple[Endpoint, Posts]]:
    posts = Posts()
    caller = Caller(SETTINGS, parse_url(url), Secret(TICKET), SystemEntropy())
    async with anyio.create_task_group() as tasks:
        endpoint = Endpoint(caller, SystemClock(), posts.post, tasks)
        yield endpoint, posts
        endpoint.close()
        tasks.cancel_scope.cancel()


async def test_dialling_ends_in_a_welcome() -> None:
    with serving(Authority()) as server:
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(DIAL)

            connected = await posts.next()

            assert isinstance(connected, Connected)
            assert connected.binding.connection_id == "connection_1"


async def test_dialling_fails_when_nobody_listens() -> None:
    with serving(Authority()) as server:
        url = server.url
    async with endpoint_for(url) as (endpoint, posts):
        endpoint.perform(DIAL)

        assert await posts.next() == ConnectFailed(code=ErrorCode.CONNECTION_LOST)


async def test_failed_dialling_says_whether_the_ticket_may_be_spent() -> None:
    with serving(Authority()) as server:
        server.tamper = Tamper(response=lambda response: False)
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(DIAL)

            failed = await posts.next()

    assert failed == ConnectFailed(code=ErrorCode.CONNECTION_LOST, credential_spent=True)


async def test_second_dial_takes_the_place_of_the_first_which_is_not_reported() -> None:
    with serving(Authority()) as server:
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(DIAL)
            endpoint.perform(DIAL)

            assert isinstance(await posts.next(), Connected)
            assert posts.is_empty


async def test_dial_over_a_standing_connection_reports_its_loss_first() -> None:
    with serving(Authority()) as server:
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(DIAL)
            await posts.next()
            with server.changing():
                server.authority.ticket_is_used = False

            endpoint.perform(DIAL)

            lost = ConnectionLost(ConnectionId("connection_1"), ErrorCode.CONNECTION_SUPERSEDED)
            assert await posts.next() == lost
            assert isinstance(await posts.next(), Connected)


async def test_order_for_another_connection_is_dropped() -> None:
    with serving(Authority()) as server:
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(SendPong(ConnectionId("connection_1"), PONG))
            endpoint.perform(DIAL)
            await posts.next()
            seen = len(server.newest().texts)

            endpoint.perform(SendPong(ConnectionId("connection_0"), PONG))
            endpoint.perform(CloseConnection(ConnectionId("connection_0"), ErrorCode.ACK_REGRESSED))
            endpoint.flush()
            endpoint.perform(SendPong(ConnectionId("connection_1"), PONG))
            endpoint.flush()

            peer = server.newest()
            await asyncio.to_thread(
                server.wait_until, lambda: len(peer.texts) == seen + 1, "one pong"
            )
            assert posts.is_empty


async def test_closed_connection_is_reported_once_with_the_code_of_the_order() -> None:
    with serving(Authority()) as server:
        async with endpoint_for(server.url) as (endpoint, posts):
            endpoint.perform(DIAL)
            await posts.next()
            order = CloseConnection(ConnectionId("connection_1"), ErrorCode.ACK_REGRESSED)

            endpoint.perform(order)
            endpoint.perform(order)

            lost = ConnectionLost(ConnectionId("connection_1"), ErrorCode.ACK_REGRESSED)
            assert await posts.next() == lost
            assert posts.is_empty
