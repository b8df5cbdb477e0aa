"""The only encoder and decoder of messages inside the secure session.

It decides how a message becomes plaintext and which plaintext is a message of this
connection. It refuses to know keys, order and what a message leads to.
"""

import hashlib
from typing import Final, TypeVar, assert_never

import msgspec

from protocol.canonical_json import JsonValue, parse_and_spell, parse_strict
from protocol.commands import CommandResult, decode_command, digest_of_result, is_object
from protocol.envelope import (
    PROTOCOL_NAME,
    Ack,
    Binding,
    CommandResultAck,
    ControlMessage,
    Deliver,
    EventMessage,
    LeaseRenew,
    LeaseRenewed,
    Ping,
    Pong,
    ProtocolVersion,
    Received,
    ResultMessage,
    Revoke,
    RunnerMessage,
    Superseded,
    WarmTransitionActivated,
    WarmTransitionActivatedAck,
    Welcome,
)
from protocol.errors import ErrorCode, PrpError
from protocol.event_types import INPUT_TYPES
from protocol.events import read_event
from protocol.ids import ConnectionId, Identity
from protocol.limits import WIRE_IDENTITY_LENGTH_MAX
from protocol.timestamps import unix_ms_of

T = TypeVar("T")

_DIAGNOSTIC_LENGTH_MAX: Final = 200


# --- What is sent -------------------------------------------------------------------------


class _RunnerEnvelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    protocol: str
    version: int
    kind: str
    runner_instance_id: str
    environment_lease_id: str
    run_id: str
    normalized_session_id: str
    turn_id: str
    item_id: str
    payload: object


class _BoundRunnerEnvelope(_RunnerEnvelope, frozen=True, kw_only=True, rename="camel"):
    connection_id: str
    connection_lease_id: str


class _ControlEnvelope(_BoundRunnerEnvelope, frozen=True, kw_only=True, rename="camel"):
    envelope_id: str
    sent_at: str


def encode_control(
    binding: Binding, message: ControlMessage, *, envelope_id: str, sent_at: str
) -> bytes:
    """Return the plaintext of a controller's message.

    Args:
        sent_at: from `rfc3339_ms`.

    Source: prp-wire 5.1.
    """
    kind, payload = _control_payload(message)
    return msgspec.json.encode(
        _ControlEnvelope(
            protocol=PROTOCOL_NAME,
            version=binding.version,
            kind=kind,
            **msgspec.structs.asdict(binding.identity),
            payload=payload,
            connection_id=binding.connection_id,
            connection_lease_id=binding.connection_lease_id,
            envelope_id=envelope_id,
            sent_at=sent_at,
        )
    )


def event_envelope(version: ProtocolVersion, identity: Identity) -> tuple[bytes, bytes]:
    """Return what stands before and after an event's body in the plaintext of its frame."""
    return _around("event", version, identity)


def encode_result(version: ProtocolVersion, identity: Identity, result: CommandResult) -> bytes:
    """Return the plaintext of a command result."""
    before, after = _around("command_result", version, identity)
    return before + msgspec.json.encode(result) + after


def encode_renew(binding: Binding, renew: LeaseRenew) -> bytes:
    """Return the plaintext of a lease renewal."""
    return _encode_bound(binding, "lease_renew", renew)


def encode_pong(binding: Binding, pong: Pong) -> bytes:
    """Return the plaintext of a pong."""
    return _encode_bound(binding, "pong", pong)


def encode_activated(binding: Binding, activated: WarmTransitionActivated) -> bytes:
    """Return the plaintext that reports an activated warm transition."""
    return _encode_bound(binding, "warm_transition_activated", activated)


def _control_payload(message: ControlMessage) -> tuple[str, object]:
    match message:
        case Welcome():
            return "welcome", _welcome_payload(message)
        case Ack():
            return "ack", message
        case Deliver():
            return "command", message.command
        case CommandResultAck():
            return "command_result_ack", message
        case LeaseRenewed():
            return "lease_renewed", message
        case Revoke():
            return "revoke", message
        case Superseded():
            return "superseded", message
        case Ping():
            return "ping", message
        case WarmTransitionActivatedAck():
            return "warm_transition_activated_ack", message
        case _:
            assert_never(message)


def _welcome_payload(welcome: Welcome) -> dict[str, msgspec.Raw]:
    # The upstream controller always names its pending commands, though defaults are left out.
    payload = msgspec.json.decode(msgspec.json.encode(welcome), type=dict[str, msgspec.Raw])
    payload.setdefault("pendingCommands", msgspec.Raw(b"[]"))
    return payload


def _around(kind: str, version: ProtocolVersion, identity: Identity) -> tuple[bytes, bytes]:
    envelope = _RunnerEnvelope(
        protocol=PROTOCOL_NAME,
        version=version,
        kind=kind,
        **msgspec.structs.asdict(identity),
        payload=None,
    )
    return msgspec.json.encode(envelope).removesuffix(b"null}"), b"}"


def _encode_bound(
    binding: Binding, kind: str, payload: LeaseRenew | Pong | WarmTransitionActivated
) -> bytes:
    return msgspec.json.encode(
        _BoundRunnerEnvelope(
            protocol=PROTOCOL_NAME,
            version=binding.version,
            kind=kind,
            **msgspec.structs.asdict(binding.identity),
            payload=payload,
            connection_id=binding.connection_id,
            connection_lease_id=binding.connection_lease_id,
        )
    )


# --- What is received ---------------------------------------------------------------------


class _Slice(msgspec.Struct, frozen=True):
    payload: msgspec.Raw


class _PendingCommands(msgspec.Struct, frozen=True, rename="camel"):
    pending_commands: tuple[msgspec.Raw, ...] = ()


_SLICE: Final = msgspec.json.Decoder(_Slice)
_WELCOME: Final = msgspec.json.Decoder(Welcome)
_PENDING: Final = msgspec.json.Decoder(_PendingCommands)
_ACK: Final = msgspec.json.Decoder(Ack)
_COMMAND_RESULT_ACK: Final = msgspec.json.Decoder(CommandResultAck)
_LEASE_RENEWED: Final = msgspec.json.Decoder(LeaseRenewed)
_REVOKE: Final = msgspec.json.Decoder(Revoke)
_ACTIVATED_ACK: Final = msgspec.json.Decoder(WarmTransitionActivatedAck)
_RESULT: Final = msgspec.json.Decoder(CommandResult)
_LEASE_RENEW: Final = msgspec.json.Decoder(LeaseRenew)
_PONG: Final = msgspec.json.Decoder(Pong)
_ACTIVATED: Final = msgspec.json.Decoder(WarmTransitionActivated)


def decode_control(
    plaintext: bytes,
    *,
    version: ProtocolVersion,
    identity: Identity,
    connection: Binding | None,
) -> Received:
    """Read a controller's message on the runner's side.

    Args:
        plaintext: from an authenticated frame.
        connection: None until the welcome; then only a welcome is a message, and its
            envelope names the connection.

    Returns:
        The message and what its envelope says. Or raises ``message_not_json`` or
        ``message_invalid``; ``protocol_version_mismatch``; ``identity_mismatch`` for any
        of the six ids, the connection or its lease; ``message_unexpected`` for a welcome
        out of place or anything else before it; ``message_unknown_kind``;
        ``command_invalid`` for a command, also a pending one.

    Source: prp-wire 5.1, 6.
    """
    envelope = parse_strict(plaintext)
    kind = _check_envelope(envelope, version, identity)
    connection_id = ConnectionId(_connection_id(envelope))
    if connection is not None:
        _check_connection(envelope, connection)
        message = _control(kind, _slice(plaintext))
    elif kind == "welcome":
        message = _welcome(_slice(plaintext), envelope, version)
    else:
        raise PrpError(ErrorCode.MESSAGE_UNEXPECTED, "the first message is not a welcome")
    return Received(message, connection_id, unix_ms_of(_object(envelope).get("sentAt")))


def _control(kind: str, body: msgspec.Raw) -> ControlMessage:
    match kind:
        case "ack":
            return _decode(_ACK, body)
        case "command":
            return Deliver(decode_command(bytes(body)))
        case "command_result_ack":
            return _decode(_COMMAND_RESULT_ACK, body)
        case "lease_renewed":
            return _decode(_LEASE_RENEWED, body)
        case "revoke":
            return _decode(_REVOKE, body)
        case "superseded":
            return Superseded()
        case "ping":
            return Ping()
        case "warm_transition_activated_ack":
            return _decode(_ACTIVATED_ACK, body)
        case "welcome":
            raise PrpError(ErrorCode.MESSAGE_UNEXPECTED, "a second welcome")
        case _:
            raise PrpError(ErrorCode.MESSAGE_UNKNOWN_KIND, "not a message to a runner")


def decode_runner(plaintext: bytes, binding: Binding) -> RunnerMessage:
    """Read a runner's message on the controller's side.

    Args:
        plaintext: from an authenticated frame.

    Returns:
        The message. Or raises ``message_not_json`` or ``message_invalid``;
        ``protocol_version_mismatch``; ``identity_mismatch`` for an envelope, an event or
        a connection of somebody else; ``message_unknown_kind``; ``event_invalid`` with a
        JSON pointer; ``semantic_digest_mismatch``.

    Source: prp-wire 5.2, 5.3, 7.1.
    """
    envelope, spelled = parse_and_spell(plaintext)
    kind = _check_envelope(envelope, binding.version, binding.identity)
    body = _slice(plaintext)
    if kind == "event":
        return _event(envelope, spelled, bytes(body), binding.identity)
    if kind == "command_result":
        return _result(envelope, body)
    if kind not in ("lease_renew", "pong", "warm_transition_activated"):
        raise PrpError(ErrorCode.MESSAGE_UNKNOWN_KIND, "not a message to a controller")
    _check_connection(envelope, binding)
    if kind == "lease_renew":
        return _decode(_LEASE_RENEW, body)
    if kind == "pong":
        return _decode(_PONG, body)
    return _decode(_ACTIVATED, body)


def _check_envelope(envelope: JsonValue, version: ProtocolVersion, identity: Identity) -> str:
    message = _object(envelope)
    kind = message.get("kind")
    if message.get("protocol") != PROTOCOL_NAME or not isinstance(kind, str):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "not an envelope of this protocol")
    found = message.get("version")
    if type(found) is not int or found != version:
        raise PrpError(ErrorCode.PROTOCOL_VERSION_MISMATCH, "not the negotiated version")
    if (
        message.get("runnerInstanceId") != identity.runner_instance_id
        or message.get("environmentLeaseId") != identity.environment_lease_id
    ):
        raise _foreign("the envelope")
    _check_run(message, identity, "the envelope")
    return kind


def _check_run(message: dict[str, JsonValue], identity: Identity, what: str) -> None:
    if (
        message.get("runId") != identity.run_id
        or message.get("normalizedSessionId") != identity.normalized_session_id
        or message.get("turnId") != identity.turn_id
        or message.get("itemId") != identity.item_id
    ):
        raise _foreign(what)


def _check_connection(envelope: JsonValue, connection: Binding) -> None:
    message = _object(envelope)
    if (
        message.get("connectionId") != connection.connection_id
        or message.get("connectionLeaseId") != connection.connection_lease_id
    ):
        raise _foreign("the connection")


def _connection_id(envelope: JsonValue) -> str:
    found = _object(envelope).get("connectionId")
    if not isinstance(found, str) or not 1 <= len(found) <= WIRE_IDENTITY_LENGTH_MAX:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "no connection id")
    return found


def _welcome(body: msgspec.Raw, envelope: JsonValue, version: ProtocolVersion) -> Welcome:
    for pending in _decode(_PENDING, body).pending_commands:
        decode_command(bytes(pending))
    welcome = _decode(_WELCOME, body)
    if welcome.selected_version != version:
        raise PrpError(ErrorCode.PROTOCOL_VERSION_MISMATCH, "the welcome selects another version")
    if _object(envelope).get("connectionLeaseId") != welcome.connection_lease_id:
        raise _foreign("the welcome's lease")
    return welcome


def _event(envelope: JsonValue, spelled: bytes, body: bytes, identity: Identity) -> EventMessage:
    value = _object(envelope)["payload"]
    event = read_event(value, body)
    fields = _object(value)
    if event.source_instance_id != identity.runner_instance_id:
        raise _foreign("the event")
    _check_run(fields, identity, "the event")
    if event.event_type in INPUT_TYPES:
        # A runner's start-up imports this module and never reads a call.
        from protocol.semantic_tools import read_semantic_input

        read_semantic_input(fields["payload"], identity)
    return EventMessage(event, body, hashlib.sha256(spelled).digest())


def _result(envelope: JsonValue, body: msgspec.Raw) -> ResultMessage:
    result = _decode(_RESULT, body)
    if not is_object(result.result):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "the result is not an object")
    digest = digest_of_result(_object(envelope)["payload"])
    return ResultMessage(result, bytes(body), digest)


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "not a JSON object")
    return value


def _slice(plaintext: bytes) -> msgspec.Raw:
    return _decode(_SLICE, plaintext).payload


def _decode(decoder: msgspec.json.Decoder[T], body: msgspec.Raw | bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        # The text may quote the sender, so it is cut.
        words = str(error)[:_DIAGNOSTIC_LENGTH_MAX]
        raise PrpError(ErrorCode.MESSAGE_INVALID, words) from None


def _foreign(what: str) -> PrpError:
    return PrpError(ErrorCode.IDENTITY_MISMATCH, f"{what} names another authority")
