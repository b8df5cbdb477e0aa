"""Inputs of the runner's core: past facts about connection, harness, disk and time.

It decides what can happen to a runner. It refuses to know sockets, processes and files.
"""

from typing import Literal

import msgspec

from protocol.envelope import Binding, ControlMessage, OwnerEpoch, Welcome
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, Generation
from protocol.process_birth import ProcessBirth
from protocol.secrets import Secret
from runnerd.core.harness_messages import HarnessMessage
from runnerd.core.run_fact import RunFact
from runnerd.core.verdict import Recorded


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a harness process ended; all None when nobody saw it end (unknown)."""

    exit_code: int | None = None
    success: bool | None = None
    signal: int | None = None


class HarnessLogs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The bounded, redacted tail of standard error."""

    lines: tuple[str, ...] = ()
    retained_bytes: int = 0
    dropped_lines: int = 0


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """A connection was authenticated and its welcome accepted by the endpoint.

    ``lease_token`` is None on a reconnect (the held one stays). ``sent_at_unix_ms`` is the
    controller's clock when it sent the welcome, None if it did not say.
    """

    binding: Binding
    welcome: Welcome
    lease_token: Secret | None
    sent_at_unix_ms: int | None
    owner: OwnerEpoch | None = None
    """Which start of the controller has proven itself; None if it does not count them."""


class ConnectFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A dial attempt ended without a welcome.

    ``credential_spent`` is True when a bootstrap proof had left, so that the ticket may be used.
    """

    code: ErrorCode
    credential_spent: bool = False


class ConnectionLost(msgspec.Struct, frozen=True):
    """An authenticated connection ended; ``code`` says what the endpoint saw."""

    connection_id: ConnectionId
    code: ErrorCode


class ControlReceived(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated control message that decoded and matched its binding."""

    connection_id: ConnectionId
    message: ControlMessage
    sent_at_unix_ms: int | None = None


class OrphanSettled(msgspec.Struct, frozen=True):
    """The harness of an earlier runner process was looked for and dealt with.

    ``gone``: proven absent. ``ended``: found, killed and proven absent. ``survived``: neither.
    """

    generation: Generation
    outcome: Literal["gone", "ended", "survived"]


class Started(msgspec.Struct, frozen=True):
    """The first input of every process.

    ``orphan`` is what became of the harness that the stored state names as live; None if it
    names none. ``ended`` is its end, if an earlier process recorded it and died before it was
    told: then nothing is unknown.
    """

    orphan: OrphanSettled | None = None
    ended: "HarnessExited | None" = None


class HarnessSpawned(msgspec.Struct, frozen=True):
    """The harness process exists, held at its gate: nothing of the program has run."""

    generation: Generation
    birth: ProcessBirth


class HarnessStartFailed(msgspec.Struct, frozen=True):
    """The harness could not be started; nothing of the program has run. ``reason`` is redacted."""

    generation: Generation
    reason: str


class HarnessOutput(msgspec.Struct, frozen=True):
    """The answer to one `ReadHarness`: complete lines without their ends, at least one."""

    generation: Generation
    lines: tuple[str, ...]


class HarnessMessages(msgspec.Struct, frozen=True):
    """The answer to one `ReadHarness` by a program that speaks messages: at least one."""

    generation: Generation
    messages: tuple[HarnessMessage, ...]


class HarnessTold(msgspec.Struct, frozen=True):
    """The program's pipe has taken every line up to this number."""

    generation: Generation
    number: int


class HarnessExited(msgspec.Struct, frozen=True, kw_only=True):
    """The harness ended, its output was read to the end, and its process tree is gone.

    ``violation`` is set when its output broke a bound. ``survivors`` counts processes that
    could not be ended. ``recorded`` is None where no log of the run is kept.
    """

    generation: Generation
    exit: ProcessExit
    logs: HarnessLogs
    violation: ErrorCode | None = None
    survivors: int = 0
    recorded: Recorded | None = None


class FactsRecorded(msgspec.Struct, frozen=True, kw_only=True):
    """The run's log says this durably, or ``fault`` says why it does not."""

    facts: tuple[RunFact, ...]
    fault: ErrorCode | None = None


class CancelRecorded(msgspec.Struct, frozen=True):
    """The run's log has the end of a cancelled run; None if it could not take it."""

    recorded: Recorded | None


class WriteFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A state write failed and every held action was dropped.

    ``is_final`` is True when the rename happened but may not be durable: the process must end.
    """

    errno: int
    is_final: bool = False


class StorageRoom(msgspec.Struct, frozen=True):
    """The disk has no room any more, or has it again; what is stored meanwhile is in the reserve.

    Source: faults R15.
    """

    is_tight: bool


class StopRequested(msgspec.Struct, frozen=True):
    """SIGTERM or SIGINT; ``count`` is 1 for the first."""

    signal: int
    count: int = 1


class TimePassed(msgspec.Struct, frozen=True):
    """The deadline that the core named has come."""


Input = (
    Started
    | Connected
    | ConnectFailed
    | ConnectionLost
    | ControlReceived
    | HarnessSpawned
    | HarnessStartFailed
    | HarnessOutput
    | HarnessMessages
    | HarnessTold
    | HarnessExited
    | FactsRecorded
    | CancelRecorded
    | WriteFailed
    | StorageRoom
    | StopRequested
    | TimePassed
)
