"""Handlers of the controller's tools: called once for each call, answered with one command.

It decides what becomes of a handler that raises, hangs or is cut off. It refuses to know any
tool, and to call a handler again: what was lost stays unsettled until an authority says so.

    handed on ─▶ waits for a place ─▶ handler runs ─▶ result ─▶ command_tool_<32 hex> is queued
                    │                     ├─ raises ───▶ semantic_tool_bridge_failed ─┘
                    └─ no handler         └─ OutcomeUnknown, cut off, too large: unsettled
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
import structlog

from controller_mock.core.actions import CallTool, Reply
from controller_mock.core.inputs import CommandRequested, Input, RequestHandle
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity, RunId
from protocol.limits import (
    STORE_RETRY_MS,
    STORE_RETRY_MS_MAX,
    TOOL_HANDLERS_MAX,
    TOOL_HANDLERS_WAITING_MAX,
)
from protocol.semantic_tools import SemanticInput, result_command_id, result_command_payload

RESULT_COMMAND: Final = "semantic_tool.result"
_MS: Final = 1000
_TRY_LATER: Final = frozenset({ErrorCode.STORAGE_WRITE_FAILED, ErrorCode.COMMAND_QUEUE_FULL})

log = structlog.get_logger()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as its handler gets it; the input is exactly what the program passed."""

    run_id: RunId
    call_id: str
    operation_id: str
    idempotency_key: str | None
    input: JsonValue
    input_digest: str


class ToolAnswer(msgspec.Struct, frozen=True):
    """What a tool says; any JSON value.

    An error leaves in doubt what the call did, and its run cannot be claimed to have succeeded,
    unless the value is an object whose `effect` is ``not_started`` or ``committed``.
    """

    result: JsonValue
    is_error: bool = False


class OutcomeUnknown(Exception):
    """Raised by a handler that cannot say what its call did: nobody may claim that it failed."""


ToolHandler = Callable[[ToolCall], Awaitable[ToolAnswer]]


class Requester(Protocol):
    """Feeds a local caller's input to a run and returns the core's reply."""

    async def __call__(self, run_id: RunId, make: Callable[[RequestHandle], Input]) -> Reply:
        """Raises PrpError ``storage_write_failed`` if it may or may not hold."""
        ...


class ToolBridge:
    """The handlers of one controller and the calls that are under way; one event loop only."""

    def __init__(self, request: Requester) -> None:
        self._request = request
        self._handlers: dict[RunId | None, ToolHandler] = {}
        self._places = asyncio.Semaphore(TOOL_HANDLERS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def answer_with(self, handler: ToolHandler, run_id: RunId | None) -> None:
        """Call this handler from now on, for one run or for every run without its own."""
        self._handlers[run_id] = handler

    def call(self, run_id: RunId, identity: Identity, order: CallTool) -> None:
        """Hand a call on, if there is somebody to answer it; never waits."""
        handler = self._handlers.get(run_id, self._handlers.get(None))
        if handler is None or len(self._tasks) >= TOOL_HANDLERS_WAITING_MAX:
            reason = "no_handler" if handler is None else "too_many_calls"
            log.warning("tool_call_unsettled", run_id=run_id, reason=reason)
            return
        task = asyncio.create_task(self._run(run_id, identity, order, handler))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut every handler off; what it was doing stays unsettled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, run_id: RunId, identity: Identity, order: CallTool, handler: ToolHandler
    ) -> None:
        async with self._places:
            answer = await _answer_of(handler, run_id, order.call)
        if answer is None:
            log.warning("tool_call_unsettled", run_id=run_id, reason="outcome_unknown")
            return
        try:
            await self.settle(run_id, identity, order, answer)
        except PrpError as error:
            log.error("tool_call_unsettled", run_id=run_id, code=error.code.value)

    async def settle(
        self, run_id: RunId, identity: Identity, order: CallTool, answer: ToolAnswer
    ) -> Reply:
        """Queue the one command that answers a call; durable when this returns.

        A store that fails is tried again: the same command under the same id is the same.

        Raises:
            PrpError: the core's refusal, e.g. ``command_too_large`` or, if the call was
                answered otherwise before, ``command_conflict``.

        Source: prp-wire 9.2.
        """
        payload = result_command_payload(
            order.call, order.event, identity, answer.result, is_error=answer.is_error
        )
        body, delay_ms = _encoded(payload), STORE_RETRY_MS
        while True:
            code = await self._try(run_id, order.call.call_id, body)
            if isinstance(code, Reply):
                return code
            if code not in _TRY_LATER:
                raise PrpError(code, f"the result of call {order.call.call_id} cannot be queued")
            await asyncio.sleep(delay_ms / _MS)
            delay_ms = min(2 * delay_ms, STORE_RETRY_MS_MAX)

    async def _try(self, run_id: RunId, call_id: str, body: bytes) -> Reply | ErrorCode:
        def make(request: RequestHandle) -> Input:
            return CommandRequested(
                request=request,
                type=RESULT_COMMAND,
                payload=body,
                command_id=result_command_id(run_id, call_id),
            )

        try:
            reply = await self._request(run_id, make)
        except PrpError as error:
            return error.code
        return reply if reply.code is None else reply.code


async def _answer_of(handler: ToolHandler, run_id: RunId, call: SemanticInput) -> ToolAnswer | None:
    asked = ToolCall(
        run_id=run_id,
        call_id=call.call_id,
        operation_id=call.operation_id,
        idempotency_key=call.idempotency_key,
        input=call.input,
        input_digest=call.input_digest,
    )
    try:
        answer = await handler(asked)
        # An answer that is no JSON is a fault of the handler, like an exception.
        msgspec.json.encode(answer.result)
    except OutcomeUnknown:
        return None
    except Exception as fault:  # noqa: BLE001 - the boundary to code that is not ours
        log.error("tool_handler_failed", run_id=run_id, reason=type(fault).__name__)
        failed = ErrorCode.SEMANTIC_TOOL_BRIDGE_FAILED.value
        return ToolAnswer({"code": failed}, is_error=True)
    return answer


def _encoded(payload: dict[str, JsonValue]) -> bytes:
    try:
        return msgspec.json.encode(payload)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        raise PrpError(ErrorCode.COMMAND_INVALID, "the result is no JSON") from None
