"""A controller process on its simulated machine: shell, reception and core are the product's.

It decides how a local caller asks and how a connection arrives. It refuses to decide when a
job of the store is done: the world does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import structs

from controller_mock.core.actions import (
    CloseConnection,
    OpenChannel,
    Reply,
    SendControl,
    SendPlain,
)
from controller_mock.core.inputs import (
    CommandRequested,
    Input,
    PongRequested,
    RequestHandle,
    RevokeRequested,
    TicketIssued,
)
from controller_mock.io.listener import DEFAULT_PATH, Handles
from controller_mock.io.peer import Peer
from controller_mock.io.websocket import Connection as ServerConnection
from controller_mock.io.writer import ResultT, Writer
from controller_mock.shell import Shell
from protocol.base.clock import Now
from protocol.carrier import ServerCarrier
from protocol.credentials import auth_key, credential_id
from protocol.envelope import Welcome
from protocol.ids import RunId, SourceSeq
from protocol.limits import FRAME_BYTES_MAX, TICKET_TTL_MS
from protocol.secrets import Secret
from tests.simulator.full.loop import VirtualLoop, as_loop, running
from tests.simulator.full.network import Transport

if TYPE_CHECKING:
    from tests.simulator.full.world import World

Answered = Callable[[Reply | BaseException], None]


class _Writer(Writer):
    """The writer thread as simulated jobs."""

    def __init__(self, world: "World", loop: VirtualLoop) -> None:
        self._world = world
        self._closed = False
        self._virtual_loop = loop

    def submit(
        self, work: Callable[[], ResultT], done: Callable[[ResultT | Exception], None]
    ) -> None:
        loop = self._virtual_loop

        def job() -> None:
            try:
                outcome: ResultT | Exception = work()
            except Exception as error:  # noqa: BLE001 - as the thread does
                outcome = error
            self._world.committed()
            loop.call_soon_threadsafe(done, outcome)

        self._world.begin_job("controller writer", loop, job)

    async def call(self, work: Callable[[], ResultT]) -> ResultT:
        return work()


class NodeShell(Shell):
    """The product's shell; a welcome may name an earlier cursor, once (lost-ack)."""

    lags = False
    world: "World"

    def _perform_on(
        self, peer: Peer, action: SendPlain | OpenChannel | SendControl | CloseConnection, now: Now
    ) -> None:
        if self.lags and isinstance(action, SendControl) and isinstance(action.message, Welcome):
            action = structs.replace(action, message=self._earlier(action.message))
        super()._perform_on(peer, action, now)

    def _earlier(self, welcome: Welcome) -> Welcome:
        # Below what the runner was told it would be a rollback.
        told, cursor = self.world.oracle.ack_allowed, welcome.acked_source_seq or 0
        if told >= cursor or self.world.observers.is_contradicted:
            return welcome
        self.lags = False
        earlier = told + self.world.draws.stream("net").choose("cursor", cursor - told)
        self.world.observers.lagging = earlier
        return structs.replace(welcome, acked_source_seq=SourceSeq(earlier))


class ControllerNode:
    """One incarnation of the controller."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.name = "controller"
        self.loop = VirtualLoop(world.controller_machine)
        self.store = world.store
        self._handles = Handles()
        self._requests: list[Coroutine[Any, Any, Reply]] = []
        with running(self.loop):
            self.shell = NodeShell(
                world.store,
                world.controller_machine,
                world.controller_machine,
                lambda _: _Writer(world, self.loop),
            )
            self.shell.world = world
            _finish(self.shell.load())
            # It waits for a fault of ours for ever; until then nothing of it need run.
            self._serving = self.shell.run()
            self._fault: asyncio.Future[None] = self._serving.send(None)

    def check(self) -> None:
        """Raise the fault of ours that has ended the shell, if there is one."""
        if self._fault.done() and (error := self._fault.exception()) is not None:
            raise error

    def retire(self) -> None:
        """Live on, cut off, while another controller takes over from a copy of the store."""
        self.name = "retired"

    def close(self) -> None:
        """End with the process."""
        self.loop.kill()
        self._serving.close()
        for request in self._requests:
            request.close()

    def accept(self, transport: Transport) -> None:
        """Take a new connection."""
        connection = ServerConnection(
            self._handles.take(),
            ServerCarrier(DEFAULT_PATH, FRAME_BYTES_MAX),
            self.shell.reception,
            as_loop(self.loop),
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)

    @property
    def is_fenced(self) -> bool:
        """True while the run waits to be loaded again."""
        return self.shell.slot(RunId(self.world.run_id)).is_fenced

    # --- local callers ------------------------------------------------------------------------

    def issue_ticket(self, token: bytes, answered: Answered, ttl_ms: int = TICKET_TTL_MS) -> None:
        """Ask for a bootstrap ticket."""
        secret = Secret(token)
        self._ask(
            lambda request: TicketIssued(
                request=request,
                credential_id=credential_id(secret),
                auth_key=auth_key(secret),
                ttl_ms=ttl_ms,
            ),
            answered,
        )

    def queue(self, command_type: str, payload: bytes, answered: Answered) -> None:
        """Ask for a command."""
        self._ask(
            lambda request: CommandRequested(request=request, type=command_type, payload=payload),
            answered,
        )

    def revoke(self, answered: Answered) -> None:
        """Withdraw the run's authority."""
        self._ask(RevokeRequested, answered)

    def ping(self, answered: Answered) -> None:
        """Ask the runner for its state."""
        self._ask(PongRequested, answered)

    def _ask(self, make: Callable[[RequestHandle], Input], answered: Answered) -> None:
        request = self.shell.request(RunId(self.world.run_id), make)
        self._requests.append(request)
        with running(self.loop):
            task: asyncio.Task[Reply] = asyncio.Task(request, loop=as_loop(self.loop))
        task.add_done_callback(lambda done: answered(done.exception() or done.result()))


def _finish(coroutine: Any) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waits")
