"""The runner's state: a durable half that is written whole, and a live half that never is.

It decides what survives a crash. It refuses to decide what happens next: that is `step`.
"""

import enum
from typing import Final, Literal

import msgspec

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Revision
from protocol.commands import CommandResult
from protocol.envelope import Binding, LeaseRenewed, OwnerEpoch
from protocol.errors import ErrorCode
from protocol.events import Priority
from protocol.ids import CommandId, ControllerSeq, Generation, Identity, LeaseId, SourceSeq
from protocol.limits import HARNESS_READY_MS
from protocol.process_birth import ProcessBirth
from protocol.secrets import Secret
from runnerd.core.actions import ProviderKind, StopIntent
from runnerd.core.conversation import Dialogue, RuntimeRequest, ToolCall, ToolSet
from runnerd.core.run_fact import RunFact

STATE_SCHEMA: Final = "paperclip.runner.durable.state.py.v1"


class Lifecycle(enum.StrEnum):
    """What the runner may do. Source: runner-behaviour 4."""

    CONNECTING = "connecting"
    READY = "ready"
    BACKPRESSURE = "backpressure"
    DRAINING = "draining"
    TERMINAL = "terminal"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    REVOKED = "revoked"
    RECOVERABLE_FAILURE = "recoverable_failure"
    UNRECOVERABLE = "unrecoverable"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line fixed for this process."""

    identity: Identity
    runner_version: str
    runner_digest: str
    max_outbox_bytes: int
    p0_reserve_bytes: int
    max_frame_bytes: int
    reconnect_delay_ms: int
    reconnect_grace_ms: int | None
    max_runtime_ms: int
    bootstrap_deadline_ms: int
    keeps_run_log: bool = False
    """Calls and answers wait for the log of the run; without one there is nothing to wait for."""


class OutboxEntry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An unacknowledged event; ``body`` is the event object's bytes and never changes."""

    source_seq: SourceSeq
    priority: Priority
    event_type: str
    body: msgspec.Raw


class RetainedEvent(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The newest native v2 payload of one kind that no v2 peer has acknowledged."""

    event_type: str
    payload: msgspec.Raw


class CommandRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A journaled command: its digest, and its result once there is one."""

    command_id: CommandId
    command_type: str
    controller_seq: ControllerSeq
    fingerprint: str
    result: CommandResult | None = None


class Provider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The prepared program: what `run.prepare` named."""

    kind: ProviderKind
    argv: tuple[str, ...]
    cwd: str
    env_names: tuple[str, ...] = ()
    ready_timeout_ms: int = HARNESS_READY_MS
    """How long a program that speaks messages may take to say that it is ready."""
    harness_restarts_max: int = 0
    """How often one turn starts the program again that was lost to a signal; 0 unless the
    program continues from what it has recorded itself."""


class RunLimits(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Bounds of the whole run; None is unlimited, a name that is no limit is refused."""

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What was reported of tokens and cost, and how many reports lacked either."""

    reports: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    without_tokens: int = 0
    without_cost: int = 0


class Turn(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The live turn and the one harness process that does its work."""

    ordinal: int
    generation: Generation
    controller_seq: ControllerSeq
    """The `turn.start` command that admitted it."""
    birth: ProcessBirth | None = None
    """Recorded before the program may run; None while the process is not known yet."""
    timeout_ms: int = 0
    """Explicit bound of the whole turn, tool waits included; 0 means none."""
    lines: int = 0
    output_bytes: int = 0
    restarts: int = 0
    """How often its program was lost and started again."""
    usage: Usage = Usage()
    """Of the program of this generation."""
    intent: StopIntent | None = None
    """Why it is to end, once that is decided; what happens after does not change it."""


class TerminalDelivery(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Fence of an accepted `runner.suspend` or `runner.shutdown` until it is fully delivered."""

    controller_seq: ControllerSeq
    lifecycle: Literal["suspended", "stopped"]


class Durable(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Everything that a restarted process knows. Source: runner-behaviour 3.1."""

    identity: Identity
    state_id: str
    """32 random hex digits drawn when the state was created; part of every launch mark."""
    lifecycle: Lifecycle = Lifecycle.CONNECTING
    next_source_seq: SourceSeq = SourceSeq(1)
    acked_source_seq: SourceSeq = SourceSeq(0)
    outbox: tuple[OutboxEntry, ...] = ()
    peak_outbox_bytes: int = 0
    last_controller_command_seq: ControllerSeq = ControllerSeq(0)
    compacted_through_controller_seq: ControllerSeq = ControllerSeq(0)
    commands: tuple[CommandRecord, ...] = ()
    """Contiguous, ascending, from compacted + 1 through last."""
    compacted_commands: int = 0
    compacted_command_filter: str | None = None
    """Ids that left ``commands``, as 8,192 hex digits; None before the first."""
    reconnect_count: int = 0
    revocation_epoch: int | None = None
    """Highest epoch that a welcome or a revocation named; None before the first welcome."""
    owner: OwnerEpoch | None = None
    """The latest start of a controller that was obeyed; an earlier one is refused (R7)."""
    provider: Provider | None = None
    session_open: bool = False
    turn: Turn | None = None
    turns_started: int = 0
    generation: Generation = Generation(0)
    lines_accepted: int = 0
    """Output lines of the whole run that became events."""
    tools: ToolSet | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    """Open ones and the newest settled ones, in the order in which they were made."""
    compacted_calls: int = 0
    compacted_call_filter: str | None = None
    """Call ids that left ``tool_calls``; None before the first."""
    requests: tuple[RuntimeRequest, ...] = ()
    """Open ones and the newest settled ones, in the order in which they were asked."""
    limits: RunLimits | None = None
    usage: Usage = Usage()
    run_terminal: bool = False
    cancel_unrecorded: bool = False
    """The run was cancelled while nothing ran; its log does not say so yet, so nobody is told."""
    harness_survived: bool = False
    terminal_delivery: TerminalDelivery | None = None
    retained_events: tuple[RetainedEvent, ...] = ()
    """At most one for each kind of native v2 state."""
    recoverable_failure: str | None = None
    unrecoverable_outcome: str | None = None
    diagnostics: tuple[str, ...] = ()


class Renewal(msgspec.Struct, frozen=True):
    """An unanswered `lease_renew`: the expiry it observed."""

    observed_expires_at_unix_ms: int


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to apply control data; lives in memory only (D4)."""

    token: Secret
    lease_id: LeaseId
    expires_at_unix_ms: int
    deadline_mono_ms: MonoMs
    revocation_epoch: int
    can_renew: bool
    renew_at_mono_ms: MonoMs
    renewal: Renewal | None = None
    answer: LeaseRenewed | None = None
    """What extended it last: a request that was repeated is answered twice."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated connection."""

    binding: Binding
    sent_through: SourceSeq
    """Every stored event with seq <= this has been ordered to be sent on this connection."""
    closing: ErrorCode | None = None
    """Set when we refused the peer: nothing more is applied or sent until it is gone."""
    expires_mono_ms: MonoMs = MonoMs(2**53)
    """When its keys are too old and it is to be replaced (R21)."""
    made_progress: bool = False
    """A message after the welcome was applied: the next reconnect need not back off."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The process is on its way out; one mechanism for every orderly end."""

    code: ErrorCode | None
    """Why the process ends when all that is waited for has happened; None is the clean end."""
    code_at_deadline: ErrorCode
    deadline_mono_ms: MonoMs
    waits_for_outbox: bool
    waits_for_result_ack: bool = False


class RecordedOf(msgspec.Struct, frozen=True):
    """The very calls and questions of which the run's log was told."""

    tool_calls: tuple[ToolCall, ...]
    requests: tuple[RuntimeRequest, ...]
    has_attempt: bool


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What dies with the process. Nothing in here can be encoded into the state file."""

    connection: Connection | None = None
    lease: Lease | None = None
    has_connected: bool = False
    """True once this process was welcomed: from then on the ticket is spent."""
    dialing: bool = False
    dial_attempts: int = 0
    jitter: int = 0
    dial_at_mono_ms: MonoMs = MonoMs(0)
    is_new: bool = False
    """True if no state was found: this process created it."""
    started_mono_ms: MonoMs = MonoMs(0)
    disconnected_at_mono_ms: MonoMs | None = None
    """When the last authenticated connection ended; None before the first and while connected."""
    frozen_through: SourceSeq = SourceSeq(0)
    """Events with seq <= this may have been handed to a socket: their bytes never change."""
    outbox_bytes: int = 0
    """Bytes that the outbox will cost on the wire before sealing: bodies and envelopes."""
    storage_tight: bool = False
    """The disk is full: only facts of priority 0 may use what is reserved on it (R15)."""
    storage_failing_since_mono_ms: MonoMs | None = None
    storage_retry_at_mono_ms: MonoMs | None = None
    harness_started: Generation = Generation(0)
    """Newest generation for which each order was given; reset when an order may be lost."""
    harness_released: Generation = Generation(0)
    harness_reading: bool = False
    harness_paused_at_mono_ms: MonoMs | None = None
    """Since when its output cannot be read for lack of room; None while it can."""
    turn_deadline_mono_ms: MonoMs | None = None
    """When the live turn's explicit timeout passes; None if it has none."""
    harness_stopped: Generation = Generation(0)
    harness_forgotten: Generation = Generation(0)
    turn_input: bytes = b"{}"
    """What `turn.start` said; it is told to the program and never stored."""
    dialogue: Dialogue | None = None
    """With the live program, if it speaks messages."""
    linger_deadline_mono_ms: MonoMs | None = None
    """When a program that has concluded is ended if it has not by itself."""
    request_deadline_mono_ms: MonoMs | None = None
    """When the next open request expires."""
    recorded: frozenset[RunFact] = frozenset()
    """What the run's log says of what is open now, as far as this process knows."""
    recording: frozenset[RunFact] = frozenset()
    """What was ordered to be recorded and is not answered; emptied when an order may be lost."""
    recorded_of: RecordedOf | None = None
    """What all of that was derived from; None if some of it is due again."""
    record_retry_at_mono_ms: MonoMs | None = None
    cancel_ordered: bool = False
    ending: Ending | None = None
    exit_ordered: bool = False


class Runner(msgspec.Struct, frozen=True):
    """State of the core; only a change of ``durable`` raises ``revision``."""

    settings: Settings
    revision: Revision
    durable: Durable
    live: Live


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """Entropy and time that a starting process brings."""

    state_id: str
    jitter_seed: int
    now: Now
