"""From a command line to an exit status.

It decides which command runs and what a fault becomes for a person: one line with a code and
a remedy, and a documented status. It refuses to know what the commands do.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar

import anyio
import msgspec
import structlog

from controller_mock.console import inspect
from controller_mock.console.arguments import parse
from controller_mock.console.conversation import Program
from controller_mock.console.data_directory import RUNNERS_NAME, make_private
from controller_mock.console.live_run import RunOptions, run_program
from controller_mock.console.output import put_out
from controller_mock.console.run_identity import checked_run_id, fresh_run_id
from controller_mock.console.serve import RUN_FIELD, ServeOptions, check_address, serve
from controller_mock.console.timeline import printable
from controller_mock.io.listener import tls_context
from controller_mock.io.runner_process import THIS_RUNNER
from controller_mock.io.system import SystemClock
from controller_mock.storage.sqlite import SqliteStore, open_store
from protocol.errors import ErrorCode, ExitStatus, PrpError, exit_status
from protocol.redaction import bounded_diagnostic, redact_text

OptionsT = TypeVar("OptionsT")

_REMEDIES: Final = {
    ErrorCode.STATE_LOCKED: "another controller has this data; wait for it or give another --data",
    ErrorCode.STATE_UNSAFE: "use a --data that is empty, or this user's own and private",
    ErrorCode.STATE_MISSING: "nothing was stored there yet; check --data",
    ErrorCode.STATE_CORRUPT: "it was left as it is; restore a copy or give another --data",
    ErrorCode.STATE_FOREIGN: "it was left as it is; give another --data",
    ErrorCode.STATE_VERSION_UNSUPPORTED: "it was written by a newer program; use that one",
    ErrorCode.STORAGE_READ_FAILED: "check the disk; what is stored was left as it is",
    ErrorCode.STORAGE_WRITE_FAILED: "make room on the disk or mend it; what is stored is whole",
    ErrorCode.STORAGE_SYNC_FAILED: "check the disk; what was acknowledged is stored",
    ErrorCode.STORAGE_UNAVAILABLE: "make room on the disk or mend it; what is stored is whole",
    ErrorCode.RUN_UNKNOWN: "list the runs with: controller-mock inspect",
    ErrorCode.RUN_EXISTS: "choose another --run-id",
    ErrorCode.LISTEN_FAILED: "choose another --host or --port, or check the certificate",
    ErrorCode.RUNNER_START_FAILED: "check --runner",
    ErrorCode.INTERNAL_FAULT: "report it, with what --verbose adds; what is stored is whole",
}
_OF_THE_DATA: Final = frozenset(
    code for code in _REMEDIES if code.startswith(("state_", "storage_"))
)
_STATUSES: Final = {
    # In this program these end the command, whatever they are for a connection.
    ErrorCode.RUN_UNKNOWN: ExitStatus.USAGE,
    ErrorCode.RUN_EXISTS: ExitStatus.USAGE,
    ErrorCode.STORAGE_WRITE_FAILED: ExitStatus.IO,
    ErrorCode.INTEGRITY_LATCHED: ExitStatus.PROTOCOL,
}


def perform(argv: Sequence[str]) -> int:
    """Run a command line and return the exit status; see `--help` for what they mean."""
    verbose = False
    try:
        options = parse(argv, os.environ)
        verbose = options.verbose
        _configure_log(verbose=verbose)
        return int(_perform(options))
    except PrpError as error:
        return _explain(error)
    except Exception as error:  # noqa: BLE001 - the process boundary: a fault becomes a code
        if verbose:
            print(redact_text("".join(traceback.format_exception(error))), file=sys.stderr)
        return _explain(_first_fault(error))


def _perform(options: argparse.Namespace) -> ExitStatus:
    if options.data is None:
        raise PrpError(ErrorCode.USAGE_INVALID, "there is no home directory; give --data")
    options.data = _absolute(options.data)
    match options.verb:
        case "run":
            return _run(options)
        case "serve":
            return _serve(options)
        case _:
            return _inspect(options)


def _run(options: argparse.Namespace) -> ExitStatus:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise PrpError(ErrorCode.USAGE_INVALID, "name the program to run: ... -- CMD ARGS")
    cwd = _absolute(options.cwd or Path())
    if not cwd.is_dir():
        raise PrpError(ErrorCode.USAGE_INVALID, f"--cwd {cwd} is not a directory")
    for name in options.env:
        if not name or "=" in name:
            raise PrpError(ErrorCode.USAGE_INVALID, f"--env {name}: give a name without a value")
    run_id = options.run_id
    chosen = RunOptions(
        data=options.data,
        program=Program(argv=tuple(command), cwd=str(cwd), env_names=tuple(options.env)),
        run_id=fresh_run_id(SystemClock().now().unix_ms)
        if run_id is None
        else checked_run_id(run_id),
        resumes_max=options.resume_interrupted,
        restarts_max=options.restarts,
        runner=THIS_RUNNER if options.runner is None else (options.runner,),
        reconnect_grace_ms=options.reconnect_grace_ms,
        lease_ttl_ms=options.lease_ttl_ms,
    )
    store = _open(options.data)
    try:
        return anyio.run(_with_log, run_program, chosen, store)
    finally:
        store.close()


def _serve(options: argparse.Namespace) -> ExitStatus:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise PrpError(ErrorCode.USAGE_INVALID, "--tls-cert and --tls-key go together")
    if not options.path.startswith("/"):
        raise PrpError(ErrorCode.USAGE_INVALID, "--path starts with /")
    has_tls = options.tls_cert is not None
    check_address(options.host, has_tls)
    run_ids = tuple(dict.fromkeys(checked_run_id(run) for run in options.run))
    ticket_file = options.ticket_file
    if ticket_file is not None and len(run_ids) > 1 and RUN_FIELD not in ticket_file:
        raise PrpError(ErrorCode.USAGE_INVALID, f"--ticket-file needs {RUN_FIELD} for several runs")
    chosen = ServeOptions(
        data=options.data,
        host=options.host,
        port=options.port,
        path=options.path,
        tls=tls_context(options.tls_cert, options.tls_key) if has_tls else None,
        run_ids=run_ids,
        ticket_file=ticket_file,
        lease_ttl_ms=options.lease_ttl_ms,
        reconnect_grace_ms=options.reconnect_grace_ms,
    )
    store = _open(options.data)
    try:
        return anyio.run(_with_log, serve, chosen, store)
    finally:
        store.close()


def _inspect(options: argparse.Namespace) -> ExitStatus:
    with _naming(options.data):
        shown = _shown(options)
    put_out(shown)
    return ExitStatus.OK


def _shown(options: argparse.Namespace) -> bytes:
    if options.run is None:
        runs = inspect.report_all(options.data)
        if options.json:
            return msgspec.json.encode(runs) + b"\n"
        return inspect.runs_as_text(runs).encode()
    report = inspect.report_one(options.data, checked_run_id(options.run))
    if options.json:
        return msgspec.json.encode(report) + b"\n"
    return inspect.run_as_text(report).encode()


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError:
        raise PrpError(ErrorCode.USAGE_INVALID, "the folder you are in is gone") from None


def _open(data: Path) -> SqliteStore:
    with _naming(data):
        make_private(data)
        return open_store(data, neighbours=(RUNNERS_NAME,))


@contextlib.contextmanager
def _naming(data: Path) -> Generator[None]:
    """Let what is wrong with the data say where they are."""
    try:
        yield
    except PrpError as error:
        if error.code not in _OF_THE_DATA:
            raise
        words = f"{data}: {error.message}" if error.message else str(data)
        raise PrpError(error.code, words) from None


def _explain(error: PrpError) -> int:
    remedy = f"; {_REMEDIES[error.code]}" if error.code in _REMEDIES else ""
    print(printable(f"controller-mock: {error}{remedy}"), file=sys.stderr)
    return int(_STATUSES.get(error.code, exit_status(error.code)))


def _first_fault(error: BaseException) -> PrpError:
    """Return the first fault that has a code; without one it is ours, told by kind and place."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, PrpError):
            return cause
    # What an error says may quote anything, except for the kernel's own words.
    frames = traceback.extract_tb(causes[0].__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown"
    kind = type(causes[0]).__name__
    if isinstance(causes[0], OSError) and causes[0].errno is not None:
        kind += f" ({os.strerror(causes[0].errno)})"
    return PrpError(ErrorCode.INTERNAL_FAULT, f"{kind} at {place}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    if _is_group(error):
        for member in error.exceptions:
            yield from _causes(member)
    else:
        yield error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


async def _with_log(
    work: Callable[[OptionsT, SqliteStore], Awaitable[ExitStatus]],
    options: OptionsT,
    store: SqliteStore,
) -> ExitStatus:
    asyncio.get_running_loop().set_exception_handler(_log_fault)
    return await work(options, store)


def _log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what no task could be told: one line, no traceback."""
    fault = context.get("exception")
    reason = context["message"] if fault is None else f"{context['message']}: {fault!r}"
    structlog.get_logger().error(
        "loop_fault", code=ErrorCode.INTERNAL_FAULT.value, reason=bounded_diagnostic(reason)
    )


def _configure_log(*, verbose: bool) -> None:
    # Its patterns load now: when a fault is to be told, no descriptor may be left for that.
    redact_text("")
    level = logging.INFO if verbose else logging.ERROR
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
