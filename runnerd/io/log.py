"""The daemon's log: facts on standard error, one line each.

It decides which input and which order is a fact worth a line, and which of its values may be
seen. It refuses to log a body, a secret or a sentence, and to wait for whoever reads it.

Nothing of structlog is imported before the first line that is due: a start that goes well
has none before its welcome.
"""

import os
import select
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from protocol.envelope import (
    Ack,
    CommandResultAck,
    ControlMessage,
    Deliver,
    LeaseRenewed,
    Ping,
    Revoke,
    Superseded,
    WarmTransitionActivatedAck,
    Welcome,
)
from protocol.errors import ErrorCode
from protocol.ids import Identity
from protocol.limits import LOG_LINE_BYTES_MAX
from protocol.redaction import bounded_diagnostic
from runnerd.core.actions import (
    Action,
    CloseConnection,
    Dial,
    Exit,
    ReadHarness,
    SendEvent,
    StartHarness,
    StopHarness,
)
from runnerd.core.inputs import (
    Connected,
    ConnectFailed,
    ConnectionLost,
    ControlReceived,
    HarnessExited,
    HarnessOutput,
    HarnessSpawned,
    HarnessStartFailed,
    Input,
    StopRequested,
)

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40
_LEVELS: Final[Mapping[str, int]] = {
    "debug": DEBUG,
    "info": INFO,
    "warning": WARNING,
    "error": ERROR,
}
_STDERR: Final = 2
_HELD_MAX: Final = 8
"""A start with this many facts is in trouble, and its time no longer counts."""

_KEYS: Final = frozenset(
    (
        *("event", "level", "timestamp", "runner_instance_id", "run_id", "session_id"),
        *("connection", "lease_id", "epoch", "revision", "source_seq", "controller_seq"),
        *("command_id", "call_id", "code", "reason", "duration_ms", "bytes", "attempt"),
        *("version", "expires_at_unix_ms", "command_type", "kind", "generation", "pid"),
        *("intent", "signal", "exit_code", "lines", "outcome", "survivors", "dropped", "flags"),
    )
)
"""Values under any other key are dropped, whoever adds them."""

Fact = tuple[int, str, Mapping[str, object]]


class StandardError:
    """Takes whole lines and never waits: a line that nobody has room for is lost and counted."""

    def __init__(self, descriptor: int = _STDERR) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self.lost_lines = 0

    def write_line(self, line: str) -> None:
        """Write one line, cut to what a pipe takes at once."""
        data = line.encode(errors="replace")[: LOG_LINE_BYTES_MAX - 1] + b"\n"
        try:
            # A pipe that is ready has room for a line of this size.
            if self._poll.poll(0) and os.write(self._descriptor, data):
                return
        except OSError:
            pass
        self.lost_lines += 1


class Log:
    """Tells facts from what the core hears and orders."""

    def __init__(self, level: str, identity: Identity, sink: StandardError) -> None:
        self._threshold = _LEVELS[level]
        self._identity = identity
        self._sink = sink
        self._logger: FilteringBoundLogger | None = None
        self._held: list[Fact] | None = []
        self.last_failure: ErrorCode | None = None
        """Why the last connection or attempt ended; None while one stands."""

    def heard(self, stimulus: Input) -> None:
        """Note an input."""
        kind = type(stimulus)
        if kind is HarnessOutput or (kind is ControlReceived and self._is_silent(stimulus)):
            return
        if isinstance(stimulus, ConnectFailed | ConnectionLost):
            self.last_failure = stimulus.code
            self.release()
        elif kind is Connected:
            self.last_failure = None
            self.release()
        if (fact := _fact_of_input(stimulus)) is not None:
            self._write(*fact)

    def ordered(self, action: Action) -> None:
        """Note an order that leaves now."""
        if type(action) is SendEvent or type(action) is ReadHarness:
            return
        if (fact := _fact_of_action(action)) is not None:
            self._write(*fact)

    def noted(self, fact: str, **values: object) -> None:
        """Note something that went wrong outside the core; a reason may quote others."""
        self._write(WARNING, fact, values)

    def release(self) -> None:
        """Write what was held back, and hold back no more.

        Until the first attempt to connect has ended, lines wait: a start has no time to
        load what writes them.
        """
        held, self._held = self._held or [], None
        for fact in held:
            self._write(*fact)

    def _is_silent(self, stimulus: Input) -> bool:
        """Tell quickly whether this is what comes most and is almost never wanted."""
        assert isinstance(stimulus, ControlReceived)
        return type(stimulus.message) is Ack and self._threshold > DEBUG

    def _write(self, level: int, name: str, values: Mapping[str, object]) -> None:
        if level < self._threshold:
            return
        if self._held is not None:
            self._held.append((level, name, values))
            if len(self._held) == _HELD_MAX:
                self.release()
            return
        if self._logger is None:
            self._logger = self._made()
        if isinstance(reason := values.get("reason"), str):
            values = {**values, "reason": bounded_diagnostic(reason)}
        self._logger.log(level, name, **values)

    def _made(self) -> "FilteringBoundLogger":
        import structlog

        identity = self._identity
        logger: FilteringBoundLogger = structlog.wrap_logger(
            _Lines(self._sink),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _only_known_keys,
                structlog.processors.JSONRenderer(serializer=_as_json),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(self._threshold),
            cache_logger_on_first_use=True,
            runner_instance_id=identity.runner_instance_id,
            run_id=identity.run_id,
            session_id=identity.normalized_session_id,
        )
        return logger


class _Lines:
    """The end of structlog's chain: every level is a line."""

    def __init__(self, sink: StandardError) -> None:
        self.debug = self.info = self.warning = self.error = sink.write_line


def _only_known_keys(_logger: "WrappedLogger", _method: str, values: "EventDict") -> "EventDict":
    return {key: value for key, value in values.items() if key in _KEYS}


def _as_json(values: "EventDict", **_ignored: object) -> str:
    return msgspec.json.encode(values).decode()


def _fact_of_input(stimulus: Input) -> Fact | None:
    match stimulus:
        case ControlReceived(connection_id=connection, message=message):
            return _fact_of_control(connection, message)
        case Connected(binding=binding, welcome=welcome):
            return (
                INFO,
                "connected",
                {
                    "connection": binding.connection_id,
                    "version": binding.version,
                    "lease_id": binding.connection_lease_id,
                    "expires_at_unix_ms": welcome.connection_lease_expires_at_unix_ms,
                    "source_seq": welcome.acked_source_seq,
                },
            )
        case ConnectFailed(code=code):
            return WARNING, "connect_failed", {"code": code.value}
        case ConnectionLost(connection_id=connection, code=code):
            return WARNING, "connection_lost", {"connection": connection, "code": code.value}
        case HarnessSpawned(generation=generation, birth=birth):
            return INFO, "harness_spawned", {"generation": generation, "pid": birth.pid}
        case HarnessStartFailed(generation=generation, reason=reason):
            return WARNING, "harness_start_failed", {"generation": generation, "reason": reason}
        case HarnessExited(generation=generation, exit=ended, survivors=survivors):
            values = {
                "generation": generation,
                "exit_code": ended.exit_code,
                "signal": ended.signal,
                "survivors": survivors,
                "code": None if stimulus.violation is None else stimulus.violation.value,
            }
            return INFO, "harness_exited", values
        case StopRequested(signal=number, count=count):
            return INFO, "stop_requested", {"signal": number, "attempt": count}
        case _:
            return None


def _fact_of_control(connection: str, message: ControlMessage) -> Fact | None:
    values: dict[str, object] = {"connection": connection}
    match message:
        case Ack(acked_source_seq=source_seq):
            return DEBUG, "acknowledged", {**values, "source_seq": source_seq}
        case Deliver(command=command):
            values["command_id"] = command.command_id
            values["controller_seq"] = command.controller_seq
            values["command_type"] = command.type
            return INFO, "command_received", values
        case LeaseRenewed(connection_lease_expires_at_unix_ms=expires):
            return DEBUG, "lease_renewed", {**values, "expires_at_unix_ms": expires}
        case Superseded():
            return WARNING, "superseded", values
        case Revoke(revocation_epoch=epoch):
            return WARNING, "revoked", {**values, "epoch": epoch}
        case CommandResultAck(command_id=command_id):
            return INFO, "result_acknowledged", {**values, "command_id": command_id}
        case Ping() | Welcome() | WarmTransitionActivatedAck():
            return None


def _fact_of_action(action: Action) -> Fact | None:
    match action:
        case Dial(credential_kind=kind):
            return DEBUG, "dialling", {"kind": kind}
        case CloseConnection(connection_id=connection, code=code):
            return WARNING, "closing_connection", {"connection": connection, "code": code.value}
        case StartHarness(generation=generation, lines_accepted=lines):
            return INFO, "starting_harness", {"generation": generation, "lines": lines}
        case StopHarness(generation=generation, intent=intent):
            return INFO, "stopping_harness", {"generation": generation, "intent": intent}
        case Exit(code=code):
            return INFO, "ending", {"code": None if code is None else code.value}
        case _:
            return None
