"""The controller as an object in a process: what the command line, the demo and tests call.

It decides how a local caller asks for something and waits for it. It refuses to decide
anything about a run: that is the core behind the shell.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Final, TypeVar

import msgspec

from controller_mock.core.actions import Reply
from controller_mock.core.inputs import (
    CommandRequested,
    Input,
    PongRequested,
    RequestHandle,
    RevokeRequested,
    TicketIssued,
)
from controller_mock.core.state import RunConfig
from controller_mock.core.view import RunView
from controller_mock.io.listener import DEFAULT_PATH, LOOPBACK, Bound, Handles, Listener, listen
from controller_mock.io.system import SystemClock, SystemEntropy
from controller_mock.shell import Shell
from controller_mock.storage.store import CommandRow, Store, StoredEvent
from controller_mock.tool_bridge import ToolAnswer, ToolHandler
from controller_mock.tool_ledger import call_at, unsettled
from protocol.base.ports import Clock, Entropy
from protocol.canonical_json import JsonValue
from protocol.credentials import auth_key, credential_id
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CommandId, ControllerSeq, RunId
from protocol.limits import TICKET_TTL_MS
from protocol.secrets import Secret

ResultT = TypeVar("ResultT")

_EVENTS_PER_READ: Final = 500
_TOKEN_BYTES: Final = 32


class QueuedCommand(msgspec.Struct, frozen=True):
    """A command that is durably queued."""

    command_id: CommandId
    controller_seq: ControllerSeq


class Controller:
    """A running controller; made by `open_controller`. Use from its event loop only."""

    def __init__(self, store: Store, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._entropy = entropy
        self.shell = Shell(store, clock, entropy)
        self._handles = Handles()
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load every run of the store and start to serve."""
        await self.shell.load()
        self._task = asyncio.create_task(self.shell.run(), name="controller-shell")

    async def serve(
        self,
        host: str = LOOPBACK,
        port: int = 0,
        path: str = DEFAULT_PATH,
        tls: ssl.SSLContext | None = None,
    ) -> Bound:
        """Listen for runners; PrpError ``listen_failed``. Any number of addresses."""
        listener = await listen(
            self.shell.reception, self._handles, host=host, port=port, path=path, tls=tls
        )
        self._listeners.append(listener)
        return listener.bound

    async def close(self) -> None:
        """Stop listening, drop every connection and finish the commit in flight.

        The store stays open; it belongs to the caller.
        """
        for listener in self._listeners:
            listener.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
        await self.shell.close()

    async def failed(self) -> None:
        """Return never; raise the fault of ours that ended the controller."""
        assert self._task is not None, "the controller was not started"
        await asyncio.shield(self._task)

    # --- runs -----------------------------------------------------------------------------------

    async def create_run(self, config: RunConfig) -> None:
        """Add a run; PrpError ``run_exists`` or ``storage_write_failed``."""
        await self._unless_failed(self.shell.create(config))

    def run_ids(self) -> list[RunId]:
        """Return all runs in the order of their creation."""
        return [slot.run_id for slot in self.shell.runs()]

    def config(self, run_id: RunId) -> RunConfig:
        """Return what a run is bound to; PrpError ``run_unknown``."""
        return self.shell.slot(run_id).config

    def view(self, run_id: RunId) -> RunView:
        """Return a run as outsiders may see it: committed facts and the connection."""
        return self.shell.slot(run_id).view()

    def closings(self) -> dict[ErrorCode, int]:
        """Return how many connections this end closed since the start, by code."""
        return dict(self.shell.reception.closings)

    async def issue_ticket(self, run_id: RunId, ttl_ms: int = TICKET_TTL_MS) -> Secret:
        """Return a fresh one-use ticket, already stored; the caller wipes it after use.

        Args:
            ttl_ms: 1 to `TICKET_TTL_MS_CEILING`.

        Raises:
            PrpError: ``run_unknown``, ``storage_write_failed``, or the core's refusal.
        """
        token = Secret(f"bootstrap_{self._entropy.token_bytes(_TOKEN_BYTES).hex()}")
        reply = await self._request(
            run_id,
            lambda request: TicketIssued(
                request=request,
                credential_id=credential_id(token),
                auth_key=auth_key(token),
                ttl_ms=ttl_ms,
            ),
        )
        _raise_refusal(reply)
        return token

    async def queue(
        self,
        run_id: RunId,
        command_type: str,
        payload: object = msgspec.UNSET,
        *,
        command_id: str | None = None,
        deadline_at: str | None = None,
    ) -> QueuedCommand:
        """Queue a command; it is durable when this returns.

        Args:
            payload: any JSON object, or its bytes; an empty object by default.
            command_id: for a caller that may ask twice; one is made by default.

        Raises:
            PrpError: ``run_unknown``, ``storage_write_failed``, or the core's refusal.
        """
        body = payload if isinstance(payload, bytes) else _object_bytes(payload)
        reply = await self._request(
            run_id,
            lambda request: CommandRequested(
                request=request,
                type=command_type,
                payload=body,
                command_id=command_id,
                deadline_at=deadline_at,
            ),
        )
        _raise_refusal(reply)
        return _queued(reply)

    async def revoke(self, run_id: RunId) -> None:
        """Withdraw the run's authority; its runner may deliver what it holds, then ends."""
        _raise_refusal(
            await self._request(run_id, lambda request: RevokeRequested(request=request))
        )

    async def ping(self, run_id: RunId) -> None:
        """Ask the connected runner for its state; the answer shows in the view."""
        _raise_refusal(await self._request(run_id, lambda request: PongRequested(request=request)))

    def drop_connections(self, run_id: RunId) -> None:
        """Drop the run's connections, as a broken network would."""
        self.shell.drop_connections(self.shell.slot(run_id))

    # --- tools ----------------------------------------------------------------------------------

    def answer_tools(self, handler: ToolHandler, run_id: RunId | None = None) -> None:
        """Call ``handler`` for every call that a runner passes on from now on, each once.

        Args:
            run_id: the run whose calls it answers; all that have no handler of their own by
                default. A call that is committed while there is none stays unsettled.

        Source: prp-wire 9.2.
        """
        self.shell.tools.answer_with(handler, run_id)

    async def unsettled_calls(self, run_id: RunId) -> list[str]:
        """Return the ids of committed calls whose outcome nobody has told, oldest first."""
        calls = dict(self.shell.slot(run_id).driver.committed.durable.tool_calls)
        return await asyncio.to_thread(unsettled, self._store, run_id, calls)

    async def settle_call(
        self, run_id: RunId, call_id: str, result: JsonValue, *, is_error: bool = False
    ) -> QueuedCommand:
        """Say, as the authority, what came of a call; the tool is not called again.

        Raises:
            PrpError: ``run_unknown``, ``tool_call_unknown``, ``command_conflict`` if the call
                has another answer, or the core's refusal.
        """
        slot = self.shell.slot(run_id)
        source_seq = slot.driver.committed.durable.tool_calls.get(call_id)
        if source_seq is None:
            raise PrpError(ErrorCode.TOOL_CALL_UNKNOWN, call_id)
        identity = slot.config.identity
        order = await asyncio.to_thread(call_at, self._store, run_id, identity, source_seq)
        answer = ToolAnswer(result, is_error)
        return _queued(
            await self._unless_failed(self.shell.tools.settle(run_id, identity, order, answer))
        )

    # --- waiting and reading --------------------------------------------------------------------

    async def wait_for(
        self, run_id: RunId, predicate: Callable[[RunView], bool], timeout_s: float | None = None
    ) -> RunView:
        """Return the first view for which ``predicate`` holds.

        Raises:
            TimeoutError: it did not hold in time.
        """
        slot = self.shell.slot(run_id)

        async def held() -> RunView:
            while not predicate(seen := slot.view()):
                await slot.changed.wait()
            return seen

        async with asyncio.timeout(timeout_s):
            return await self._unless_failed(held())

    async def views(self, run_id: RunId) -> AsyncGenerator[RunView, None]:
        """Yield the view now and after each change, without end; a slow caller skips some."""
        slot = self.shell.slot(run_id)
        while True:
            changed = slot.changed
            yield slot.view()
            await self._unless_failed(changed.wait())

    async def result(
        self, run_id: RunId, controller_seq: int, timeout_s: float | None = None
    ) -> CommandRow:
        """Return a command once its result is committed; TimeoutError if not in time."""
        slot = self.shell.slot(run_id)

        async def settled() -> CommandRow:
            while True:
                changed = slot.changed
                if not slot.is_open(controller_seq):
                    row = await asyncio.to_thread(self._store.command, run_id, controller_seq)
                    if row is not None and row.status is not None:
                        return row
                await changed.wait()

        async with asyncio.timeout(timeout_s):
            return await self._unless_failed(settled())

    async def perform(
        self,
        run_id: RunId,
        command_type: str,
        payload: object = msgspec.UNSET,
        timeout_s: float | None = None,
    ) -> CommandRow:
        """Queue a command and return it with its result."""
        queued = await self.queue(run_id, command_type, payload)
        return await self.result(run_id, queued.controller_seq, timeout_s)

    async def read_events(
        self, run_id: RunId, after_seq: int = 0, limit: int = _EVENTS_PER_READ
    ) -> list[StoredEvent]:
        """Return committed events with a higher sequence, in order, without waiting for more."""
        # A commit is in the store before it is in the view, and all readers see one view.
        last_seq = self.view(run_id).acked_source_seq
        found = await asyncio.to_thread(self._store.events, run_id, after_seq, limit)
        return [event for event in found if event.source_seq <= last_seq]

    async def event_batches(
        self, run_id: RunId, after_seq: int = 0
    ) -> AsyncGenerator[list[StoredEvent], None]:
        """Yield committed events in order, as many as there are, waiting for more without end."""
        slot = self.shell.slot(run_id)
        while True:
            changed = slot.changed
            if batch := await self.read_events(run_id, after_seq):
                after_seq = batch[-1].source_seq
                yield batch
            else:
                await self._unless_failed(changed.wait())

    async def events(self, run_id: RunId, after_seq: int = 0) -> AsyncGenerator[StoredEvent, None]:
        """Yield committed events in order, waiting for more without end."""
        async for batch in self.event_batches(run_id, after_seq):
            for event in batch:
                yield event

    async def _request(self, run_id: RunId, make: Callable[[RequestHandle], Input]) -> Reply:
        return await self._unless_failed(self.shell.request(run_id, make))

    async def _unless_failed(self, work: Coroutine[None, None, ResultT]) -> ResultT:
        """Await ``work``, or raise what ended the shell: nothing would ever wake the caller."""
        assert self._task is not None, "the controller was not started"
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._task), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise PrpError(ErrorCode.INTERNAL_FAULT, "the controller has stopped")
            return task.result()
        finally:
            task.cancel()


@contextlib.asynccontextmanager
async def open_controller(
    store: Store, clock: Clock | None = None, entropy: Entropy | None = None
) -> AsyncGenerator[Controller]:
    """Run a controller over a store for as long as the block lasts."""
    controller = Controller(store, clock or SystemClock(), entropy or SystemEntropy())
    try:
        await controller.start()
        yield controller
    finally:
        await controller.close()


def _raise_refusal(reply: Reply) -> None:
    if reply.code is not None:
        raise PrpError(reply.code)


def _queued(reply: Reply) -> QueuedCommand:
    assert reply.command_id is not None, "a queued command has an id"
    assert reply.controller_seq is not None, "a queued command has a sequence"
    return QueuedCommand(reply.command_id, reply.controller_seq)


def _object_bytes(payload: object) -> bytes:
    return b"{}" if payload is msgspec.UNSET else msgspec.json.encode(payload)
