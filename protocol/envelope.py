"""Messages inside and before the secure session, as the two tagged unions of their payloads.

It decides which messages exist in each direction and what they carry. It refuses to know
bytes (`codec`) and keys (`handshake`, `secure_channel`).
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from protocol.base.clock import UnixMs
from protocol.commands import CommandResult, WireCommand
from protocol.events import Event
from protocol.ids import ConnectionId, CredentialId, Identity, LeaseId, RevocationEpoch, SourceSeq

PROTOCOL_NAME: Final = "paperclip.runner"
PROTOCOL_MIN: Final = 1
PROTOCOL_MAX: Final = 2

ProtocolVersion = Literal[1, 2]
CredentialKind = Literal["bootstrap", "lease"]

_NATURAL: Final = msgspec.Meta(ge=0)
Natural: TypeAlias = Annotated[int, _NATURAL]
Cursor: TypeAlias = Annotated[SourceSeq, _NATURAL]
Epoch: TypeAlias = Annotated[RevocationEpoch, _NATURAL]
"""Decoding refuses what is below zero; the strict reader has bounded it above."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What every message of one authenticated connection must repeat."""

    version: ProtocolVersion
    identity: Identity
    connection_id: ConnectionId
    connection_lease_id: LeaseId


class OwnerEpoch(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Which start of a controller speaks (R7): a later start has a greater epoch.

    Copies of one store can reach the same epoch, so each start also draws a random id.
    """

    owner_epoch: int
    owner_id: str


class Resume(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Durable cursors that a runner reports in its hello; informative for the controller."""

    last_controller_command_seq: int
    next_source_event_seq: int
    acked_source_seq: int


# --- controller -> runner ---------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """First secure frame of a connection. Source: prp-wire 6."""

    selected_version: int
    connection_lease_id: LeaseId
    connection_lease_expires_at_unix_ms: Natural
    connection_lease_revocation_epoch: Epoch
    connection_lease_token: str | None = None
    """Only after a bootstrap. The endpoint moves it into a `Secret` at once."""
    connection_lease_expires_at: str | None = None
    connection_lease_renewal_version: int | None = None
    heartbeat_interval_ms: int | None = None
    lease_binding: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_frame_bytes: int | None = None
    max_batch_events: int | None = None
    acked_source_seq: Cursor | None = None
    pending_commands: tuple[WireCommand, ...] = ()
    warm_transition_version: int | None = None
    warm_transition: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    warm_transition_phase: str | None = None

    def __repr__(self) -> str:
        return f"Welcome(connection_lease_id={self.connection_lease_id!r}, <redacted>)"


class Ack(msgspec.Struct, frozen=True, rename="camel"):
    """Cumulative acknowledgement: every event with seq <= this is committed."""

    acked_source_seq: Cursor


class Deliver(msgspec.Struct, frozen=True):
    """A command, exactly as delivered; ``delivery`` counts deliveries from 1 (sender only)."""

    command: WireCommand
    delivery: int = 1


class CommandResultAck(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """The controller has stored a terminal command's result. Source: prp-wire 8.5."""

    command_id: str
    command_type: str
    controller_seq: int
    status: str
    warm_transition: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class LeaseRenewed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to `lease_renew`; echoes the expiry that the request observed."""

    previous_expires_at_unix_ms: Natural
    connection_lease_expires_at_unix_ms: Natural
    connection_lease_revocation_epoch: Epoch


class Revoke(msgspec.Struct, frozen=True, rename="camel"):
    """Authority ends now; the epoch exceeds the welcome's. Source: prp-wire 10.1."""

    revocation_epoch: Epoch


class Superseded(msgspec.Struct, frozen=True):
    """A newer incarnation of this runner has proven a fresh ticket: this one is to end (R8).

    An extension. A runner that does not know it drops the connection, as is about to happen.
    """


class Ping(msgspec.Struct, frozen=True):
    """Asks for a `pong` with the runner's state; any payload."""


class WarmTransitionActivatedAck(msgspec.Struct, frozen=True, rename="camel"):
    """The controller has committed the activation of a warm transition."""

    transition_id: str


ControlMessage = (
    Welcome
    | Ack
    | Deliver
    | CommandResultAck
    | LeaseRenewed
    | Revoke
    | Superseded
    | Ping
    | WarmTransitionActivatedAck
)


class Received(msgspec.Struct, frozen=True):
    """A controller's message and what its envelope says of the sender."""

    message: ControlMessage
    connection_id: ConnectionId
    sent_at_unix_ms: UnixMs | None
    """The controller's clock when it sent this; None if it did not say."""


# --- runner -> controller ---------------------------------------------------------------


class EventMessage(msgspec.Struct, frozen=True):
    """An event as received.

    ``body`` is the event object's bytes exactly as sent; ``digest`` is the raw 32-byte
    SHA-256 of the canonical envelope, which decides whether a redelivery is the same event.
    """

    event: Event
    body: bytes
    digest: bytes


class ResultMessage(msgspec.Struct, frozen=True):
    """A command result as received; ``digest`` is the raw SHA-256 of its canonical payload."""

    result: CommandResult
    body: bytes
    digest: bytes


class LeaseRenew(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for a later expiry; carries the values that the runner currently holds."""

    connection_lease_expires_at_unix_ms: Natural
    connection_lease_revocation_epoch: Epoch


class Pong(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to `ping`."""

    lifecycle: str
    acked_source_seq: Cursor
    outbox_bytes: Natural


class WarmTransitionActivated(msgspec.Struct, frozen=True, rename="camel"):
    """The runner has rotated to the new authority. Source: prp-wire 11."""

    transition_id: str


RunnerMessage = EventMessage | ResultMessage | LeaseRenew | Pong | WarmTransitionActivated

# --- before the session (plain JSON) ------------------------------------------------------


class AuthHello(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Payload of `auth_hello`; an absent member of any type is `UNSET`. Source: prp-wire 3.1."""

    credential_id: CredentialId
    client_nonce: str
    protocol_min: int
    protocol_max: int
    runner_instance_id: str
    environment_lease_id: str
    run_id: str
    normalized_session_id: str
    turn_id: str
    item_id: str
    runner_version: str
    runner_digest: str
    credential_kind: str | None = None
    resume: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    warm_transition_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    warm_transition_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    recovery_cursor_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    owner_epoch_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
