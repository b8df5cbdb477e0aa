"""`controller-mock serve`: a controller for runners that somebody else starts.

It decides what a supervisor is told about each run and where its ticket is put. It refuses
to start runners and to print a ticket.
"""

import contextlib
import ipaddress
import os
import secrets
import signal
import ssl
from pathlib import Path
from typing import Final

import anyio
import msgspec
import structlog

from controller_mock.console.data_directory import make_private, runner_directory
from controller_mock.console.output import put_out
from controller_mock.console.run_identity import run_config
from controller_mock.controller import Controller, open_controller
from controller_mock.core.state import RunConfig
from controller_mock.io.listener import Bound
from controller_mock.io.runner_process import TICKET_VARIABLE, runner_command
from controller_mock.storage.store import Store
from protocol.errors import ErrorCode, ExitStatus, PrpError
from protocol.ids import RunId
from protocol.limits import TICKET_TTL_MS_CEILING

log = structlog.get_logger()

RUN_FIELD: Final = "{run}"
"""Stands for the run's id in a ticket file's path."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    data: Path
    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None
    run_ids: tuple[RunId, ...]
    ticket_file: str | None
    ticket_ttl_ms: int = TICKET_TTL_MS_CEILING
    lease_ttl_ms: int
    reconnect_grace_ms: int


class RunnerInstructions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How to start a runner for one run."""

    run_id: str
    argv: tuple[str, ...]
    ticket_variable: str = TICKET_VARIABLE
    ticket_file: str | None
    """Its content goes into the variable; renewed by SIGHUP."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The one line on standard output, written once runners can connect."""

    url: str
    host: str
    port: int
    data: str
    pid: int
    runs: list[RunnerInstructions]


async def serve(options: ServeOptions, store: Store) -> ExitStatus:
    """Serve until SIGINT or SIGTERM; SIGHUP issues fresh tickets."""
    # Before anything is announced: a signal that comes right after it must not be lost.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with open_controller(store) as controller, anyio.create_task_group() as tasks:
            bound = await controller.serve(options.host, options.port, options.path, options.tls)
            configs = [await _ensure_run(controller, options, run) for run in options.run_ids]
            await _write_tickets(controller, options)
            _announce(options, bound, configs)
            tasks.start_soon(controller.failed)
            async for number in signals:
                if number != signal.SIGHUP:
                    break
                await _renew_tickets(controller, options)
            tasks.cancel_scope.cancel()
    return ExitStatus.OK


def check_address(host: str, has_tls: bool) -> None:
    """Refuse to serve plain WebSockets to other machines: PrpError ``usage_invalid``.

    Source: architecture 7.12.
    """
    if not has_tls and not _is_loopback(host):
        raise PrpError(
            ErrorCode.USAGE_INVALID,
            f"{host} is not loopback and there runners only connect over TLS;"
            " give --tls-cert and --tls-key",
        )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


async def _ensure_run(controller: Controller, options: ServeOptions, run_id: RunId) -> RunConfig:
    if run_id not in controller.run_ids():
        await controller.create_run(run_config(run_id, options.lease_ttl_ms))
    return controller.config(run_id)


async def _write_tickets(controller: Controller, options: ServeOptions) -> None:
    for run_id in options.run_ids if options.ticket_file is not None else ():
        await _write_ticket(controller, options, run_id)


async def _renew_tickets(controller: Controller, options: ServeOptions) -> None:
    """Do what `_write_tickets` does; a file that cannot be written stops no run."""
    for run_id in options.run_ids if options.ticket_file is not None else ():
        try:
            await _write_ticket(controller, options, run_id)
        except PrpError as error:
            log.error("ticket_not_written", run_id=run_id, code=error.code, reason=error.message)


async def _write_ticket(controller: Controller, options: ServeOptions, run_id: RunId) -> None:
    assert options.ticket_file is not None, "the callers have looked"
    ticket = await controller.issue_ticket(run_id, options.ticket_ttl_ms)
    try:
        write_private(Path(options.ticket_file.replace(RUN_FIELD, run_id)), ticket.reveal())
    finally:
        ticket.wipe()


def write_private(path: Path, data: memoryview) -> None:
    """Put a file that only this user can read under a name, whole; PrpError ``usage_invalid``."""
    try:
        sibling = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            _write_new(sibling, data)
            os.replace(sibling, path)
        except OSError:
            with contextlib.suppress(OSError):
                sibling.unlink()
            raise
    except (OSError, ValueError) as error:
        words = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not a file's name"
        raise PrpError(
            ErrorCode.USAGE_INVALID, f"--ticket-file {path} cannot be written: {words}"
        ) from None


def _write_new(path: Path, data: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def _announce(options: ServeOptions, bound: Bound, configs: list[RunConfig]) -> None:
    runs = [_instructions(options, bound, config) for config in configs]
    line = Announcement(
        url=bound.url,
        host=bound.host,
        port=bound.port,
        data=str(options.data),
        pid=os.getpid(),
        runs=runs,
    )
    put_out(msgspec.json.encode(line) + b"\n")


def _instructions(options: ServeOptions, bound: Bound, config: RunConfig) -> RunnerInstructions:
    run_id = RunId(config.identity.run_id)
    state_dir = runner_directory(options.data, run_id)
    make_private(state_dir.parent)
    command = runner_command(config, bound.url, state_dir, options.reconnect_grace_ms)
    ticket_file = options.ticket_file
    return RunnerInstructions(
        run_id=run_id,
        argv=command.argv(),
        ticket_file=None if ticket_file is None else ticket_file.replace(RUN_FIELD, run_id),
    )
