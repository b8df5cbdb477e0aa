"""Actions of the controller's core: orders to the shell, and what the next commit adds.

It decides what a run can ask for. It refuses to know how a message is sealed or a row written.
"""

import msgspec

from controller_mock.core.inputs import ConnectionHandle, RequestHandle
from protocol.envelope import Binding, ControlMessage, CredentialKind, ProtocolVersion
from protocol.errors import ErrorCode
from protocol.events import Event
from protocol.handshake import SessionKeys
from protocol.ids import CommandId, ControllerSeq, CredentialId, SourceSeq
from protocol.secrets import Secret
from protocol.semantic_tools import SemanticInput

# --- actions ------------------------------------------------------------------------------


class SendPlain(msgspec.Struct, frozen=True):
    """Send a handshake frame as it is."""

    connection: ConnectionHandle
    frame: bytes


class OpenChannel(msgspec.Struct, frozen=True, kw_only=True):
    """From now on the connection is sealed under these keys and bound to these ids."""

    connection: ConnectionHandle
    keys: SessionKeys
    binding: Binding


class SendControl(msgspec.Struct, frozen=True, kw_only=True):
    """Encode, seal and send a control message."""

    connection: ConnectionHandle
    message: ControlMessage
    envelope_id: str


class CloseConnection(msgspec.Struct, frozen=True):
    """Drop the connection without a close frame."""

    connection: ConnectionHandle
    code: ErrorCode


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a local caller: a queued command's identity, or the code of a refusal."""

    request: RequestHandle
    code: ErrorCode | None = None
    command_id: CommandId | None = None
    controller_seq: ControllerSeq | None = None


class CallTool(msgspec.Struct, frozen=True, kw_only=True):
    """Hand a committed call on to whoever answers for its tool; given once in all time."""

    call: SemanticInput
    event: Event
    """The event that carried it, without its payload."""


class Publish(msgspec.Struct, frozen=True):
    """The view has changed; readers may look.

    It stands where no other action waits for the change. A new event has its ACK instead,
    so a shell tells its readers after each commit as well.
    """


Action = SendPlain | OpenChannel | SendControl | CloseConnection | Reply | CallTool | Publish

# --- what a commit adds (D8) ----------------------------------------------------------------


class PutEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A new event, once; ``body`` is the event object's bytes as received."""

    source_seq: SourceSeq
    source_event_id: str
    event_type: str
    priority: int
    digest: bytes
    body: bytes
    received_at_unix_ms: int
    connection_number: int


class CountRedelivery(msgspec.Struct, frozen=True):
    """An event that is already stored arrived again, unchanged."""

    source_seq: SourceSeq


class PutCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command, when it is queued."""

    controller_seq: ControllerSeq
    command_id: CommandId
    type: str
    body: bytes
    """The wire command's bytes, delivered as they are each time."""
    fingerprint: str
    issued_at: str


class CountDelivery(msgspec.Struct, frozen=True):
    """A command was handed to a connection once more."""

    controller_seq: ControllerSeq


class PutResult(msgspec.Struct, frozen=True, kw_only=True):
    """A command's first result; it is never replaced."""

    controller_seq: ControllerSeq
    status: str
    body: bytes
    digest: bytes
    received_at_unix_ms: int


class CountResultRedelivery(msgspec.Struct, frozen=True):
    """A stored result arrived again, unchanged."""

    controller_seq: ControllerSeq


class PutCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket or lease as it now stands (insert or replace); never the token itself.

    A ticket is ``used`` once it has bought a lease. ``superseded`` marks what a newer
    bootstrap has replaced (R8), ``revoked`` what a revocation has ended.
    """

    credential_id: CredentialId
    kind: CredentialKind
    auth_key: Secret
    expires_at_unix_ms: int
    revocation_epoch: int
    lease_id: str | None = None
    lease_version: ProtocolVersion | None = None
    used: bool = False
    revoked: bool = False
    superseded: bool = False


class PutRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run's row: cursors, counters and latches as they now stand."""

    acked_source_seq: SourceSeq
    last_controller_seq: ControllerSeq
    revocation_epoch: int
    connection_count: int
    malformed_frames: int
    replay_deliveries: int
    integrity_fault: str | None
    run_terminal_state: str | None


Change = (
    PutEvent
    | CountRedelivery
    | PutCommand
    | CountDelivery
    | PutResult
    | CountResultRedelivery
    | PutCredential
    | PutRun
)
