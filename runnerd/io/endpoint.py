"""The daemon's end of the connection once an event loop runs: one wire at a time.

It decides which connection an order is for. It refuses to decide when to dial, what to send
and what a message leads to.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup

from protocol.base.ports import Clock
from protocol.errors import ErrorCode, PrpError
from protocol.limits import TCP_CONNECT_TIMEOUT_MS
from runnerd.core.actions import (
    CloseConnection,
    Dial,
    SendEvent,
    SendPong,
    SendRenewal,
    SendResult,
)
from runnerd.core.inputs import ConnectFailed, Input
from runnerd.io.caller import Caller
from runnerd.io.dialling import Call, new_socket
from runnerd.io.resolver import Address, NotResolved
from runnerd.io.wire import Wire

EndpointAction = Dial | SendEvent | SendResult | SendRenewal | SendPong | CloseConnection

_MS: Final = 1000


class Endpoint:
    """Performs the core's orders to the connection; what comes of them is posted as inputs."""

    def __init__(
        self, caller: Caller, clock: Clock, post: Callable[[Input], None], tasks: TaskGroup
    ) -> None:
        self._caller = caller
        self._clock = clock
        self._post = post
        self._tasks = tasks
        self._wire: Wire | None = None
        self._calls = 0
        self._is_writing_state = False

    async def adopt(self, call: Call) -> None:
        """Take over the connection of the first contact."""
        await self._put_on_loop(call.endpoint, Wire(call.link, self._clock, self._post))

    def perform(self, action: EndpointAction) -> None:
        """Begin to carry out an order and return at once.

        What is for another connection than the present one is dropped: its core was told,
        or will be, that the connection is gone.
        """
        if isinstance(action, Dial):
            self._abandon()
            self._calls += 1
            self._tasks.start_soon(self._dial, action, self._calls)
            return
        wire = self._wire
        binding = None if wire is None else wire.link.binding
        if wire is None or binding is None or binding.connection_id != action.connection_id:
            return
        match action:
            case SendEvent() | SendResult():
                wire.send(action)
            case SendRenewal():
                wire.link.send_renewal(action.renewal)
            case SendPong():
                wire.link.send_pong(action.pong)
            case CloseConnection():
                wire.drop(action.code)

    def flush(self) -> None:
        """Let what was ordered since the last call leave together."""
        if self._wire is not None:
            self._wire.flush()

    def state_is_being_written(self, yes: bool) -> None:
        """Pass on that a state write began or ended."""
        self._is_writing_state = yes
        if self._wire is not None:
            self._wire.state_is_being_written(yes)

    def close(self) -> None:
        """Drop whatever connection there is."""
        if self._wire is not None:
            self._wire.abandon()

    def is_latest(self, call_number: int) -> bool:
        """Tell whether nothing was dialled after this."""
        return call_number == self._calls

    def use(self, wire: Wire) -> None:
        """Let orders go to this connection from now on."""
        self._wire = wire
        wire.state_is_being_written(self._is_writing_state)

    async def _dial(self, dial: Dial, call_number: int) -> None:
        deadline_s = anyio.current_time() + dial.timeout_ms / _MS
        code = ErrorCode.CONNECTION_LOST
        try:
            endpoint = await _connect_to_one(self._caller.addresses(), deadline_s)
            if not self.is_latest(call_number):
                _close(endpoint)
                return
            if endpoint is not None:
                wire = Wire(self._caller.link(dial), self._clock, self._post)
                wire.expect_welcome(deadline_s - anyio.current_time())
                await self._put_on_loop(endpoint, wire)
                return
        except NotResolved:
            pass
        except PrpError as error:
            code = error.code
        if self.is_latest(call_number):
            self._post(ConnectFailed(code=code))

    async def _put_on_loop(self, endpoint: socket.socket, wire: Wire) -> None:
        self.use(wire)
        try:
            await asyncio.get_running_loop().create_connection(lambda: wire, sock=endpoint)
        except OSError:
            endpoint.close()
            wire.drop(ErrorCode.CONNECTION_LOST)

    def _abandon(self) -> None:
        if self._wire is not None:
            self._wire.abandon()
            self._wire = None


async def _connect_to_one(addresses: Sequence[Address], deadline_s: float) -> socket.socket | None:
    for address in addresses:
        left_s = min(TCP_CONNECT_TIMEOUT_MS / _MS, deadline_s - anyio.current_time())
        if left_s > 0 and (endpoint := await _connect(address, left_s)) is not None:
            return endpoint
    return None


async def _connect(address: Address, timeout_s: float) -> socket.socket | None:
    endpoint = new_socket(address)
    if endpoint is None:
        return None
    is_connected = False
    try:
        with anyio.move_on_after(timeout_s):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(endpoint, (address.host, address.port))
            is_connected = True
    except OSError:
        # An unreachable network and a refused connection are told apart by nobody here.
        pass
    finally:
        if not is_connected:
            endpoint.close()
    return endpoint if is_connected else None


def _close(endpoint: socket.socket | None) -> None:
    if endpoint is not None:
        endpoint.close()
