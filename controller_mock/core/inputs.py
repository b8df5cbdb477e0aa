"""Inputs of the controller's core: past facts about one run.

It decides what can happen to a run. It refuses to know sockets and tables: connections
and requests are named by handles that the shell chose.
"""

from typing import NewType

import msgspec

from protocol.envelope import AuthHello, OwnerEpoch, RunnerMessage
from protocol.errors import ErrorCode
from protocol.ids import CredentialId, LeaseId, SourceSeq
from protocol.secrets import Secret

ConnectionHandle = NewType("ConnectionHandle", int)
"""Names one accepted socket for the life of the process."""
RequestHandle = NewType("RequestHandle", int)
"""Names one local caller that waits for a `Reply`."""


class TicketIssued(msgspec.Struct, frozen=True, kw_only=True):
    """A local caller made a bootstrap ticket and keeps the token; the core keeps id and key."""

    request: RequestHandle
    credential_id: CredentialId
    auth_key: Secret
    ttl_ms: int


class CommandRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A local caller wants a command queued; ``payload`` is a JSON object's bytes."""

    request: RequestHandle
    type: str
    payload: bytes
    command_id: str | None = None
    deadline_at: str | None = None
    precondition: bytes | None = None


class RevokeRequested(msgspec.Struct, frozen=True):
    """A local caller withdraws the run's authority."""

    request: RequestHandle


class HelloReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A connection opened and said hello; the nonce is fresh entropy from the shell."""

    connection: ConnectionHandle
    hello: AuthHello
    server_nonce: str
    owner: OwnerEpoch | None = None
    """This start of the controller, if its store counts them (R7)."""


class ResponseReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A connection answered its challenge; token and ids are fresh, used only after a bootstrap."""

    connection: ConnectionHandle
    frame: bytes
    lease_token: Secret
    lease_id: LeaseId


class MessageReceived(msgspec.Struct, frozen=True):
    """An authenticated connection sent a message that decoded and matched its binding."""

    connection: ConnectionHandle
    message: RunnerMessage


class MessageRefused(msgspec.Struct, frozen=True):
    """A connection sent something that did not open, decode or match; ``code`` says what."""

    connection: ConnectionHandle
    code: ErrorCode


class ConnectionLost(msgspec.Struct, frozen=True):
    """A connection ended, for whatever reason."""

    connection: ConnectionHandle


class IntegrityConflictFound(msgspec.Struct, frozen=True):
    """The store refused a commit because an event id is already used for another event."""

    source_seq: SourceSeq


class PongRequested(msgspec.Struct, frozen=True):
    """A local caller wants the connected runner pinged."""

    request: RequestHandle


class TimePassed(msgspec.Struct, frozen=True):
    """The deadline that the core named has come."""


Input = (
    TicketIssued
    | CommandRequested
    | RevokeRequested
    | HelloReceived
    | ResponseReceived
    | MessageReceived
    | MessageRefused
    | ConnectionLost
    | IntegrityConflictFound
    | PongRequested
    | TimePassed
)
