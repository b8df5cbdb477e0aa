"""The scripted controller of a short history: it holds the keys and may lie with them.

It decides what the runner is told. It refuses to judge the runner: that is the oracle.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from protocol.commands import CommandResult, WireCommand
from protocol.envelope import Binding, ControlMessage, LeaseRenewed, Welcome
from protocol.ids import (
    CommandId,
    ConnectionId,
    ControllerSeq,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceSeq,
)
from protocol.secrets import Secret
from runnerd.core.actions import Dial
from runnerd.core.inputs import Connected, ControlReceived

LEASE_MS: Final = 30_000
SCHEMA: Final = "paperclip.prp.command.v1"
ISSUED_AT: Final = "2026-01-02T03:04:05.678Z"
NO_LEASE: Final = LeaseId("lease_0")


@dataclass
class Link:
    """The one connection that the peer knows of."""

    binding: Binding
    expected_seq: int
    is_open: bool = True
    """False from the moment on which either side gave it up: no more bytes move."""
    is_current: bool = True
    """False once the runner closed it or was told that it is lost."""


@dataclass
class Peer:
    """What the controller has committed, and what it is about to say."""

    identity: Identity
    cursor: int = 0
    """Highest committed event."""
    arrived: int = 0
    """Highest event that arrived in order on the present connection."""
    commands: list[WireCommand] = field(default_factory=list[WireCommand])
    settled: dict[int, CommandResult] = field(default_factory=dict[int, CommandResult])
    settled_types: set[str] = field(default_factory=set[str])
    settled_through: int = 0
    """How many of the first commands have their answer."""
    delivered: set[int] = field(default_factory=set[int])
    link: Link | None = None
    dial: Dial | None = None
    """An attempt that waits for its answer."""
    connections: int = 0
    leases: int = 0
    lease_id: LeaseId = NO_LEASE
    expires_at_unix_ms: int = 0
    lease_ms: int = LEASE_MS
    epoch: int = 0
    revoked: bool = False
    renewals: list[int] = field(default_factory=list[int])
    """Observed expiries of the requests that were not answered yet."""
    owed_acks: list[CommandResult] = field(default_factory=list[CommandResult])
    """Results of terminal commands that arrived on this connection."""

    def settle(self, result: CommandResult) -> None:
        """Keep the first answer to a command."""
        self.settled.setdefault(result.controller_seq, result)
        self.settled_types.add(result.command_type)

    def continue_from(self, other: "Peer") -> None:
        """Remember the commands, answers and events that another one does."""
        self.commands, self.settled = list(other.commands), dict(other.settled)
        self.settled_types, self.settled_through = set(other.settled_types), other.settled_through
        self.delivered = set(other.delivered)
        self.cursor = other.cursor

    @property
    def open_command(self) -> WireCommand | None:
        """The lowest command without an answer."""
        while self.settled_through < len(self.commands):
            command = self.commands[self.settled_through]
            if command.controller_seq not in self.settled:
                return command
            self.settled_through += 1
        return None

    @property
    def may_command(self) -> bool:
        """True if every command that was handed out has its answer, and none is in vain."""
        if self.revoked:
            return False
        pending = self.open_command
        return pending is None or pending.controller_seq not in self.delivered

    def queue(self, command_type: str, payload: bytes = b"{}") -> WireCommand:
        """Give a command the next number."""
        number = len(self.commands) + 1
        command = WireCommand(
            schema=SCHEMA,
            command_id=CommandId(f"cmd_{number}"),
            controller_seq=ControllerSeq(number),
            type=command_type,
            issued_at=ISSUED_AT,
            payload=msgspec.Raw(payload),
        )
        self.commands.append(command)
        return command

    def welcome(self, dial: Dial, now_ms: int, *, cursor: int | None = None) -> Connected:
        """Answer a dial; a bootstrap buys a new lease, a lease is confirmed as it stands."""
        self.connections += 1
        is_new = dial.credential_kind == "bootstrap"
        if is_new:
            self.leases += 1
            self.lease_id = LeaseId(f"lease_{self.leases}")
            self.expires_at_unix_ms = now_ms + self.lease_ms
            self.renewals.clear()
        told = self.cursor if cursor is None else cursor
        pending = None if self.revoked else self.open_command
        if pending is not None:
            self.delivered.add(pending.controller_seq)
        binding = Binding(
            version=2,
            identity=self.identity,
            connection_id=ConnectionId(f"connection_{self.connections}"),
            connection_lease_id=self.lease_id,
        )
        self.arrived = self.cursor
        self.owed_acks.clear()
        self.link = Link(binding, told + 1)
        return Connected(
            binding=binding,
            welcome=Welcome(
                selected_version=2,
                connection_lease_id=self.lease_id,
                connection_lease_expires_at_unix_ms=self.expires_at_unix_ms,
                connection_lease_revocation_epoch=RevocationEpoch(self.epoch),
                connection_lease_renewal_version=1,
                acked_source_seq=SourceSeq(told),
                pending_commands=() if pending is None else (pending,),
            ),
            lease_token=Secret(f"lease-token-{self.leases}") if is_new else None,
            sent_at_unix_ms=now_ms,
        )

    def says(self, message: ControlMessage, now_ms: int) -> ControlReceived:
        """Put a message on the present connection."""
        assert self.link is not None, "nobody is connected"
        return ControlReceived(
            connection_id=self.link.binding.connection_id, message=message, sent_at_unix_ms=now_ms
        )

    def renewed(self, observed: int, now_ms: int) -> LeaseRenewed:
        """Extend the lease as a stored extension would."""
        if observed == self.expires_at_unix_ms:
            self.expires_at_unix_ms = max(observed, now_ms + self.lease_ms)
        return LeaseRenewed(
            previous_expires_at_unix_ms=observed,
            connection_lease_expires_at_unix_ms=self.expires_at_unix_ms,
            connection_lease_revocation_epoch=RevocationEpoch(self.epoch),
        )
