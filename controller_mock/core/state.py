"""State of one run: the durable half that a store holds, and the live half that it never sees.

It decides what the core remembers and how a stored run becomes state again. It refuses to
know inputs: those are the handlers that `step` dispatches to.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from controller_mock.core.actions import Action, Change, PutCredential, PutRun
from controller_mock.core.digest_window import DigestWindow, window_of
from controller_mock.core.inputs import ConnectionHandle
from protocol.base.clock import MonoMs
from protocol.base.revision import Revision, Transition
from protocol.commands import WireCommand, decode_command
from protocol.envelope import PROTOCOL_MAX, PROTOCOL_MIN, Binding, Pong
from protocol.handshake import Challenge
from protocol.ids import (
    CommandId,
    ControllerSeq,
    CredentialId,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceSeq,
    is_stable_id,
)
from protocol.limits import (
    ARTIFACT_TEXT_BYTES_MAX,
    LEASE_TTL_MS,
    LEASE_TTL_MS_CEILING,
    RUN_ID_LENGTH_MAX,
    TURN_ID_LENGTH_MAX,
    WIRE_IDENTITY_LENGTH_MAX,
)

_DIGEST_LABEL: Final = re.compile(r"sha256:[0-9a-f]{64}")


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is bound to for life; a ValueError if it cannot be spoken on the wire."""

    identity: Identity
    runner_version: str
    runner_digest: str
    """`sha256:` and 64 lower-case hex digits, as the runner's hello must repeat them."""
    lease_ttl_ms: int = LEASE_TTL_MS
    protocol_max: int = PROTOCOL_MAX

    def __post_init__(self) -> None:
        identity = self.identity
        for text, length_max in (
            (identity.runner_instance_id, RUN_ID_LENGTH_MAX),
            (identity.environment_lease_id, WIRE_IDENTITY_LENGTH_MAX),
            (identity.run_id, RUN_ID_LENGTH_MAX),
            (identity.normalized_session_id, RUN_ID_LENGTH_MAX),
            (identity.turn_id, TURN_ID_LENGTH_MAX),
            (identity.item_id, TURN_ID_LENGTH_MAX),
        ):
            _require(is_stable_id(text, length_max), "an identity is not a stable id")
        _require(
            1 <= len(self.runner_version.encode()) <= ARTIFACT_TEXT_BYTES_MAX,
            "the runner's version is empty or too long",
        )
        _require(
            _DIGEST_LABEL.fullmatch(self.runner_digest) is not None,
            "the runner's digest is not sha256 and 64 lower-case hex digits",
        )
        _require(1 <= self.lease_ttl_ms <= LEASE_TTL_MS_CEILING, "the lease's life is out of range")
        _require(PROTOCOL_MIN <= self.protocol_max <= PROTOCOL_MAX, "no such protocol version")


class OpenCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A queued command without a result; ``deliveries`` counts how often it was handed out."""

    command: WireCommand
    fingerprint: str
    deliveries: int = 0


class SettledCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What must be remembered of a command with a result, to judge what is said of it again."""

    command_id: CommandId
    controller_seq: ControllerSeq
    type: str
    issued_at: str
    fingerprint: str
    status: str
    result_digest: bytes


class StoredCommand(msgspec.Struct, frozen=True, kw_only=True):
    """An open command as a store returns it; ``body`` is the wire command."""

    body: bytes
    fingerprint: str
    deliveries: int


class StoredCall(msgspec.Struct, frozen=True):
    """A call of a tool that a committed event carries."""

    call_id: str
    source_seq: SourceSeq


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a store returns of one run: no history, only what judges the next input.

    ``digests`` joins the 32-byte digests of events ``first_digest_seq`` to the cursor.
    ``credentials`` are the newest ``CREDENTIALS_MAX`` in order of issue, and the newest
    lease even if it is older than those; commands are in order of their sequence.
    """

    row: PutRun
    credentials: tuple[PutCredential, ...] = ()
    open_commands: tuple[StoredCommand, ...] = ()
    settled: tuple[SettledCommand, ...] = ()
    first_digest_seq: SourceSeq = SourceSeq(1)
    digests: bytes = b""
    tool_calls: tuple[StoredCall, ...] = ()
    """Of all committed input events, in their order."""
    is_sparse: bool = False
    """It comes from a checkpoint that may lack acknowledged events (prp-wire 12)."""


class DurableRun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a restarted controller knows of a run."""

    acked_source_seq: SourceSeq = SourceSeq(0)
    """Highest committed event once this state is committed."""
    digests: DigestWindow = DigestWindow()
    last_controller_seq: ControllerSeq = ControllerSeq(0)
    open_commands: tuple[OpenCommand, ...] = ()
    settled: tuple[SettledCommand, ...] = ()
    """The newest ``SETTLED_RESULTS_MAX``, oldest first."""
    lease: PutCredential | None = None
    """The one lease that may still be current; whether it is, `admission` decides."""
    credentials: tuple[PutCredential, ...] = ()
    """Tickets and retired leases, oldest first, at most ``CREDENTIALS_MAX``."""
    revocation_epoch: RevocationEpoch = RevocationEpoch(0)
    """Above 0 the run is revoked: its runner may deliver what it holds and nothing else."""
    connection_count: int = 0
    malformed_frames: int = 0
    replay_deliveries: int = 0
    integrity_fault: str | None = None
    run_terminal_state: str | None = None
    tool_calls: Mapping[str, SourceSeq] = {}
    """Every call that was ever taken, and the event that carried it."""
    is_sparse: bool = False
    """Events that were acknowledged may be missing: a proven runner's cursor is believed."""


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """A challenge that waits for its answer; ``credential`` is as it stood at the hello."""

    connection: ConnectionHandle
    credential: PutCredential
    challenge: Challenge
    deadline: MonoMs


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The one authenticated connection."""

    connection: ConnectionHandle
    number: int
    """Counts authenticated connections of this run, from 1."""
    binding: Binding
    credential_id: CredentialId
    terminal_delivered: bool = False
    """A terminal command was handed out here: no further command, no renewal."""
    flush_deadline: MonoMs | None = None
    """Set by a revocation: until then events and results are still taken."""


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """What ends with the process. ``deadlines`` maps credentials of this process to their end.

    A credential is over when either clock says so, so that a wall clock that is set back
    extends nothing (R10).
    """

    handshakes: tuple[Handshake, ...] = ()
    session: Session | None = None
    deadlines: Mapping[CredentialId, MonoMs] = {}
    last_pong: Pong | None = None


class Run(msgspec.Struct, frozen=True):
    """One run as the core sees it."""

    config: RunConfig
    revision: Revision
    durable: DurableRun
    live: LiveRun


Step = Transition[Run, Action, Change]


def new_run(config: RunConfig) -> Run:
    """Return a run that nobody has connected to yet."""
    return Run(config, Revision(0), DurableRun(), LiveRun())


def restore(config: RunConfig, stored: StoredRun) -> Run:
    """Return the run as its store has it, with no connection.

    Raises PrpError ``command_invalid`` if a stored command does not decode; a store checks
    its rows before it returns them.
    """
    row = stored.row
    leases = [credential for credential in stored.credentials if credential.kind == "lease"]
    lease = leases[-1] if leases else None
    durable = DurableRun(
        acked_source_seq=row.acked_source_seq,
        digests=window_of(stored.first_digest_seq, stored.digests),
        last_controller_seq=row.last_controller_seq,
        open_commands=tuple(
            OpenCommand(
                command=decode_command(command.body),
                fingerprint=command.fingerprint,
                deliveries=command.deliveries,
            )
            for command in stored.open_commands
        ),
        settled=stored.settled,
        lease=lease,
        credentials=tuple(held for held in stored.credentials if held is not lease),
        revocation_epoch=RevocationEpoch(row.revocation_epoch),
        connection_count=row.connection_count,
        malformed_frames=row.malformed_frames,
        replay_deliveries=row.replay_deliveries,
        integrity_fault=row.integrity_fault,
        run_terminal_state=row.run_terminal_state,
        tool_calls=_calls(stored.tool_calls),
        is_sparse=stored.is_sparse,
    )
    return Run(config, Revision(0), durable, LiveRun())


def _calls(stored: tuple[StoredCall, ...]) -> dict[str, SourceSeq]:
    calls: dict[str, SourceSeq] = {}
    for call in stored:
        # Of several with one id only the first was ever handed on.
        calls.setdefault(call.call_id, call.source_seq)
    return calls


def run_row(durable: DurableRun) -> PutRun:
    """Return the run's row as it now stands."""
    return PutRun(
        acked_source_seq=durable.acked_source_seq,
        last_controller_seq=durable.last_controller_seq,
        revocation_epoch=durable.revocation_epoch,
        connection_count=durable.connection_count,
        malformed_frames=durable.malformed_frames,
        replay_deliveries=durable.replay_deliveries,
        integrity_fault=durable.integrity_fault,
        run_terminal_state=durable.run_terminal_state,
    )


def changed(run: Run, durable: DurableRun, live: LiveRun | None = None) -> Run:
    """Return the next revision of a run: its durable half has changed."""
    return Run(run.config, Revision(run.revision + 1), durable, run.live if live is None else live)


def moved(run: Run, live: LiveRun) -> Run:
    """Return a run whose live half alone has changed: no new revision."""
    return Run(run.config, run.revision, run.durable, live)


def lease_id_of(credential: PutCredential) -> LeaseId:
    """Return the id of a credential that is a lease."""
    assert credential.lease_id is not None, "a lease has an id"
    return LeaseId(credential.lease_id)


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise ValueError(words)
