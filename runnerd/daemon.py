"""The daemon put together: configuration, ticket, state, first contact, shell.

It decides the order of a start and how an end is reported. It refuses to decide anything
about the protocol: newcomers begin here and follow the calls.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from protocol.base.posix_fs import PosixFilesystem, SystemClock, SystemEntropy
from protocol.errors import ErrorCode, ExitStatus, PrpError
from protocol.limits import HARNESS_GRACE_MS
from runnerd.config import LOG_LEVEL_VARIABLE, Config, read_config
from runnerd.core.actions import Exit
from runnerd.core.duties import launch_mark
from runnerd.core.inputs import HarnessExited, OrphanSettled, Started
from runnerd.core.recovery import start
from runnerd.core.state import Boot, Durable
from runnerd.core.step import step
from runnerd.driving import RunnerDriver, tell_room
from runnerd.first_contact import World, make_contact
from runnerd.io.caller import Caller
from runnerd.io.diagnostics import check_diagnostics_directory
from runnerd.io.log import Log, StandardError
from runnerd.io.resolver import Address, NotResolved, resolve
from runnerd.io.signals import StopSignals
from runnerd.io.state_file import RUNS_FOLDER, StateFile
from runnerd.io.ticket_source import choose_ticket
from runnerd.ticket import CapturedTicket

if TYPE_CHECKING:
    import ssl

Run: TypeAlias = Callable[[Sequence[str], CapturedTicket, StopSignals], int]

_STANDARD_OUTPUT: Final = 1
_STATE_ID_BYTES: Final = 16
_SEED_BYTES: Final = 4
_INSPECT: Final = "inspect"
_RUNS: Final = "runs"
_SESSIONS: Final = "sessions"
_INFORMATION: Final = ("-h", "--version", "--build-metadata")
_CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"


class Known(msgspec.Struct, kw_only=True):
    """What a start has come to know and an end may need."""

    diagnostics_directory: str | None = None
    log: Log | None = None


def run(arguments: Sequence[str], captured: CapturedTicket, stops: StopSignals) -> int:
    """Run the program and return its exit status; nothing is raised.

    Args:
        arguments: without the program's name.
        captured: what the environment held of a ticket.

    Source: runner-behaviour 1, protocol/errors.py for the statuses.
    """
    command = "".join(arguments[:1])
    has_own_help = command in (_RUNS, _SESSIONS)
    if not has_own_help and (text := _information(arguments)) is not None:
        with contextlib.suppress(OSError):
            os.write(_STANDARD_OUTPUT, text.encode())
        return ExitStatus.OK
    known = Known()
    try:
        if command in (_INSPECT, _RUNS, _SESSIONS):
            stops.give_back()
        if command == _INSPECT:
            from runnerd.inspecting import run_inspect

            return run_inspect(arguments[1:])
        if command == _RUNS:
            from runnerd.console.runs_command import run_runs

            return run_runs(arguments[1:])
        if command == _SESSIONS:
            from runnerd.console.sessions_command import run_sessions

            return run_sessions(arguments[1:])
        config = read_config(arguments, os.environ.get(LOG_LEVEL_VARIABLE))
        code = _run(config, captured, stops, known)
    except PrpError as error:
        return _end(known, error.code, error.message)
    except Exception as error:  # noqa: BLE001 - the process boundary: a fault becomes a code
        from runnerd.ending import tell_fault

        return tell_fault(error, diagnostics_directory=known.diagnostics_directory)
    finally:
        stops.ignore()
    return ExitStatus.OK if code is None else _end(known, code, "")


def _end(known: Known, code: ErrorCode, message: str) -> ExitStatus:
    # Words are loaded when they are needed.
    from runnerd.ending import tell_end

    return tell_end(
        code,
        message,
        last_failure=None if known.log is None else known.log.last_failure,
        diagnostics_directory=known.diagnostics_directory,
    )


def _information(arguments: Sequence[str]) -> str | None:
    asked = "--help" if "--help" in arguments else "".join(arguments[:1])
    if asked != "--help" and (len(arguments) != 1 or asked not in _INFORMATION):
        return None
    from runnerd.help import USAGE, VERSION, build_metadata

    match asked:
        case "--version":
            return f"runnerd {VERSION}\n"
        case "--build-metadata":
            return build_metadata() + "\n"
        case _:
            return USAGE


def _run(
    config: Config, captured: CapturedTicket, stops: StopSignals, known: Known
) -> ErrorCode | None:
    """Start, serve and end; returns the code of the end, None if it is the clean one."""
    ticket = choose_ticket(captured, config.ticket_file, os.environ.get(_CREDENTIALS_VARIABLE))
    if config.diagnostics_directory is not None:
        check_diagnostics_directory(config.diagnostics_directory)
        known.diagnostics_directory = config.diagnostics_directory
    settings, entropy = config.settings, SystemEntropy()
    log = known.log = Log(config.log_level, settings.identity, StandardError())
    caller = Caller(
        settings,
        config.destination,
        ticket,
        entropy,
        tls=_tls(config),
        addresses=_addresses(config),
        note=lambda code, reason: log.noted("peer_refused", code=code.value, reason=reason),
    )
    store = StateFile(PosixFilesystem(), entropy, config.state_dir, settings)
    world = World(
        clock=SystemClock(),
        store=store,
        caller=caller,
        stops=stops,
        log=log,
        room=store,
        run_folder=os.path.join(config.state_dir, RUNS_FOLDER),
    )
    _note_oddities(config, captured, log)
    try:
        driver = _begin(config, store.open(), world)
        return _serve(driver, world)
    finally:
        log.release()
        caller.forget_ticket()
        store.close()


def _begin(config: Config, durable: Durable | None, world: World) -> RunnerDriver:
    """Settle what an earlier process left behind, and give the core its first input."""
    entropy, clock = SystemEntropy(), world.clock
    orphan = _settle_orphan(durable, world)
    ended = None if orphan is None else _settle_log(config, durable, orphan, world)
    boot = Boot(
        state_id=entropy.token_bytes(_STATE_ID_BYTES).hex(),
        jitter_seed=int.from_bytes(entropy.token_bytes(_SEED_BYTES)),
        now=clock.now(),
    )
    driver: RunnerDriver = RunnerDriver(start(config.settings, durable, boot), step)
    driver.feed(Started(orphan, ended), clock.now())
    tell_room(driver, world.log, world.room, clock.now())
    return driver


def _settle_orphan(durable: Durable | None, world: World) -> OrphanSettled | None:
    """End the harness that a dead process left, before anything may start in its place."""
    if durable is None or durable.turn is None:
        return None
    from runnerd.harness.orphan import settle_orphan

    mark = launch_mark(durable.state_id, durable.turn)
    settled = settle_orphan(durable.turn, mark, HARNESS_GRACE_MS)
    world.log.noted("orphan_settled", generation=settled.generation, outcome=settled.outcome)
    return settled


def _settle_log(
    config: Config, durable: Durable | None, orphan: OrphanSettled, world: World
) -> HarnessExited | None:
    """Bring the run's log up to the death of the process that kept it."""
    from runnerd.core.recording import end_facts_of
    from runnerd.harness.recording import recorder_in

    assert world.run_folder is not None, "the daemon keeps a log"
    recorder = recorder_in(world.run_folder, world.clock, config.settings.identity)
    try:
        return recorder.settle(orphan.generation, () if durable is None else end_facts_of(durable))
    except PrpError as error:
        # The next turn is refused for the same reason, if it still holds then.
        world.log.noted("run_log_not_settled", code=error.code.value, reason=error.message)
        return None


def _serve(driver: RunnerDriver, world: World) -> ErrorCode | None:
    outcome = make_contact(driver, world)
    if isinstance(outcome, Exit):
        return outcome.code
    world.caller.forget_ticket()
    # Only a connected runner needs an event loop, so its modules are loaded here (D11).
    import anyio

    from runnerd.shell import serve

    gc.freeze()
    gc.enable()
    return anyio.run(serve, driver, world, outcome, os.environ).code


def _tls(config: Config) -> "ssl.SSLContext | None":
    if not config.destination.is_secure:
        return None
    from runnerd.io.tls import client_context

    return client_context(config.ca_bundle_path)


def _addresses(config: Config) -> tuple[Address, ...]:
    """Refuse a forbidden destination before anything is written; no answer yet is no refusal."""
    try:
        return resolve(config.destination)
    except NotResolved:
        return ()


def _note_oddities(config: Config, captured: CapturedTicket, log: Log) -> None:
    if not captured.is_overwritten:
        log.noted("ticket_not_overwritten", reason="the environment block could not be written")
    if config.ignored:
        log.noted("flags_ignored", flags=config.ignored)
