"""Actions of the runner's core: orders to endpoint, harness executor and process.

It decides what a runner can do. It refuses to know how. Every order to the harness names
its generation and may be repeated: a second one changes nothing.
"""

from typing import Literal

import msgspec

from protocol.commands import CommandResult
from protocol.envelope import CredentialKind, LeaseRenew, OwnerEpoch, Pong, Resume
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, Generation, LeaseId, SourceSeq
from protocol.limits import HARNESS_READY_MS
from protocol.secrets import Secret
from runnerd.core.run_fact import RunFact

StopIntent = Literal[
    "interrupt",
    "cancel",
    "stop",
    "authority",
    "overflow",
    "timeout",
    "budget",
    "unrecorded",
    "finished",
]
"""Why a harness is stopped: by command (interrupt, cancel), for the runner's own stop, because
authority ended (lease, grace, revocation), because its output has no room (R17), because the
turn's explicit timeout has passed, because a limit of the run is exceeded, because the run's log
does not take what it asks for, or because it lingers after it said that it is done."""
ProviderKind = Literal["command", "jsonl"]
"""What is spoken with a program: lines of text, or messages in both directions."""


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """Connect once and authenticate; answered by Connected or ConnectFailed.

    With ``credential_kind`` bootstrap the endpoint uses the ticket it holds; with lease,
    ``lease_token`` and the facts below.
    """

    credential_kind: CredentialKind
    resume: Resume
    lease_token: Secret | None = None
    lease_id: LeaseId | None = None
    lease_expires_at_unix_ms: int | None = None
    lease_revocation_epoch: int | None = None
    renewal_outstanding: bool = False
    obeyed_owner: OwnerEpoch | None = None
    timeout_ms: int = 0


class SendEvent(msgspec.Struct, frozen=True):
    """Send an event object's bytes, exactly as stored."""

    connection_id: ConnectionId
    source_seq: SourceSeq
    body: bytes


class SendResult(msgspec.Struct, frozen=True):
    """Send a stored command result."""

    connection_id: ConnectionId
    result: CommandResult


class SendRenewal(msgspec.Struct, frozen=True):
    """Ask for a later lease expiry; claims nothing about state."""

    connection_id: ConnectionId
    renewal: LeaseRenew


class SendPong(msgspec.Struct, frozen=True):
    """Answer a ping."""

    connection_id: ConnectionId
    pong: Pong


class CloseConnection(msgspec.Struct, frozen=True):
    """Drop the connection without a close frame."""

    connection_id: ConnectionId
    code: ErrorCode


class StartHarness(msgspec.Struct, frozen=True, kw_only=True):
    """Spawn the program behind its gate; answered by HarnessSpawned or HarnessStartFailed."""

    generation: Generation
    kind: ProviderKind = "command"
    ready_timeout_ms: int = HARNESS_READY_MS
    launch_mark: str
    """Unique text put into the harness's environment, by which its processes are known."""
    argv: tuple[str, ...]
    cwd: str
    env_names: tuple[str, ...]
    turn_ordinal: int
    lines_accepted: int
    """Output lines of this run that are durable: where a program with a checkpoint continues."""
    recorded_calls: tuple[str, ...] = ()
    """Calls that were answered: the log of the run has them all."""


class ReleaseHarness(msgspec.Struct, frozen=True):
    """Open the gate: its birth identity is durable, the program may run."""

    generation: Generation


class ReadHarness(msgspec.Struct, frozen=True, kw_only=True):
    """Hand over what it says next, when there is some; answered once.

    The answer is HarnessOutput or, from a program that speaks messages, HarnessMessages.

    At the end of output it is HarnessExited instead.
    """

    generation: Generation
    lines_max: int
    bytes_max: int


class TellHarness(msgspec.Struct, frozen=True, kw_only=True):
    """Write one line to the program; answered by HarnessTold when all of it was taken.

    ``number`` counts the lines of a generation from 1; one that was given before is ignored.
    """

    generation: Generation
    number: int
    line: bytes


class StopHarness(msgspec.Struct, frozen=True, kw_only=True):
    """End the whole process tree: TERM, then KILL after the grace; answered by HarnessExited.

    A program that speaks messages is told first, and has the first half of the grace for that.
    """

    generation: Generation
    intent: StopIntent
    grace_ms: int


class ForgetHarness(msgspec.Struct, frozen=True):
    """The end of this generation is durable; nothing of it need be kept."""

    generation: Generation


class RecordFacts(msgspec.Struct, frozen=True):
    """Have the run's log say this; answered by FactsRecorded. What it says already stays so."""

    facts: tuple[RunFact, ...]


class RecordCancel(msgspec.Struct, frozen=True):
    """Have the run's log say that a run of which nothing runs was cancelled.

    Answered by CancelRecorded; a log that says so already stays as it is.
    """


class Exit(msgspec.Struct, frozen=True):
    """End the process; None means the documented clean end."""

    code: ErrorCode | None


Action = (
    Dial
    | SendEvent
    | SendResult
    | SendRenewal
    | SendPong
    | CloseConnection
    | StartHarness
    | ReleaseHarness
    | ReadHarness
    | TellHarness
    | StopHarness
    | ForgetHarness
    | RecordFacts
    | RecordCancel
    | Exit
)
