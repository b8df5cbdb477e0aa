"""Our controller in a process of its own, as measurements need it.

It decides nothing: each line on standard input is one order, each line on standard output
its answer with the moment at which it was true. The clock is the machine's monotonic one,
which all processes share.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path

import msgspec
import structlog

from controller_mock.controller import Controller, open_controller
from controller_mock.core.state import RunConfig
from controller_mock.storage.sqlite import open_store
from protocol.errors import PrpError
from protocol.ids import RunId
from protocol.limits import TICKET_TTL_MS_CEILING


class Create(msgspec.Struct, frozen=True, tag=True):
    """Add a run."""

    config: RunConfig


class Ticket(msgspec.Struct, frozen=True, tag=True):
    """Issue a ticket."""

    run_id: RunId


class Perform(msgspec.Struct, frozen=True, tag=True):
    """Queue a command and wait for its result."""

    run_id: RunId
    command_type: str
    payload: msgspec.Raw


class Acked(msgspec.Struct, frozen=True, tag=True):
    """Wait until events through a sequence are committed."""

    run_id: RunId
    source_seq: int


class FirstLine(msgspec.Struct, frozen=True, tag=True):
    """Wait until the first line of output is committed."""

    run_id: RunId


class Connected(msgspec.Struct, frozen=True, tag=True):
    """Wait until a runner was welcomed."""

    run_id: RunId


Order = Create | Ticket | Perform | Acked | FirstLine | Connected


class Request(msgspec.Struct, frozen=True):
    """One line on standard input."""

    number: int
    order: Order


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line on standard output."""

    number: int
    at_ns: int = 0
    text: str = ""
    """A ticket, or the status of a command."""
    source_seq: int = 0
    """Of the event that was waited for."""
    error: str | None = None


class Ready(msgspec.Struct, frozen=True):
    """The first line."""

    url: str
    pid: int


async def _main(directory: Path) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    with contextlib.closing(open_store(directory)) as store:
        async with open_controller(store) as controller, asyncio.TaskGroup() as tasks:
            bound = await controller.serve()
            _say(Ready(bound.url, os.getpid()))
            while line := await orders.readline():
                request = msgspec.json.decode(line, type=Request)
                tasks.create_task(_answer(controller, request))


async def _answer(controller: Controller, request: Request) -> None:
    try:
        _say(await _carry_out(controller, request))
    except PrpError as error:
        _say(Answer(number=request.number, error=f"{error.code.value}: {error.message}"))


async def _carry_out(controller: Controller, request: Request) -> Answer:
    text, source_seq = "", 0
    match order := request.order:
        case Create(config):
            await controller.create_run(config)
        case Ticket(run_id):
            token = await controller.issue_ticket(run_id, TICKET_TTL_MS_CEILING)
            text = bytes(token.reveal()).decode()
        case Perform(run_id, command_type, payload):
            row = await controller.perform(run_id, command_type, bytes(payload))
            text = row.status or ""
        case Acked(run_id, wanted):
            view = await controller.wait_for(run_id, lambda it: it.acked_source_seq >= wanted)
            source_seq = view.acked_source_seq
        case FirstLine(run_id):
            source_seq = await _first_line(controller, run_id)
        case Connected(run_id):
            await controller.wait_for(run_id, lambda it: it.connection_count >= 1)
        case _:
            raise AssertionError(order)
    at_ns = time.monotonic_ns()
    return Answer(number=request.number, at_ns=at_ns, text=text, source_seq=source_seq)


async def _first_line(controller: Controller, run_id: RunId) -> int:
    async with contextlib.aclosing(controller.events(run_id)) as events:
        async for event in events:
            if event.event_type == "item.delta":
                return event.source_seq
    raise AssertionError("events are waited for without end")


def _say(line: Ready | Answer) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
