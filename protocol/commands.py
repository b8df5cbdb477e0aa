"""Commands and their results as the wire has them.

It decides which command types exist, when two commands are the same and what a result may
say. It refuses to know what a command does.
"""

import hashlib
import unicodedata
from typing import Final, Literal

import msgspec

from protocol.admission import IN_ENVELOPE, IN_WELCOME, admit
from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CommandId, ControllerSeq
from protocol.limits import (
    COMMAND_ID_LENGTH_MAX,
    ISSUED_AT_BYTES_MAX,
    RESULT_BYTES_MAX,
    SAFE_INTEGER_MAX,
)

COMMAND_SCHEMA_V1: Final = "paperclip.prp.command.v1"
COMMAND_SCHEMA_V2: Final = "paperclip.prp.command.v2"

COMMAND_TYPES_V1: Final = frozenset(
    {
        "run.prepare",
        "run.attach",
        "session.open",
        "turn.start",
        "turn.steer",
        "turn.interrupt",
        "turn.stop",
        "request.resolve",
        "interaction.receipt",
        "semantic_tool.result",
        "session.snapshot",
        "session.close",
        "session.budget.increase",
        "session.destroy",
        "run.cancel",
        "runner.drain",
        "runner.suspend",
        "runner.shutdown",
    }
)
COMMAND_TYPES_V2_ONLY: Final = frozenset(
    {"session.goal.get", "session.goal.set", "session.goal.clear"}
)
TERMINAL_COMMAND_TYPES: Final = frozenset({"runner.suspend", "runner.shutdown"})
"""Commands whose result is acknowledged and after which the runner ends (prp-wire 8.5)."""

CommandStatus = Literal["completed", "failed", "rejected", "indeterminate"]


class Precondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """States that must hold for a command to have an effect."""

    runner_state: tuple[str, ...] | None = None
    run_state: tuple[str, ...] | None = None
    session_state: tuple[str, ...] | None = None
    active_turn_id: str | None = None


class WireCommand(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A command as `command` payload or element of `pendingCommands`; payload not looked into.

    Source: prp-wire 8.1.
    """

    schema: str
    command_id: CommandId
    controller_seq: ControllerSeq
    type: str
    issued_at: str
    payload: msgspec.Raw
    deadline_at: str | None = None
    precondition: Precondition | None = None


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The five members that a result digest covers; `result` is a JSON object.

    Source: prp-wire 8.4. `logicalEffectCount` goes inside ``result`` (architecture 7.7).
    """

    command_id: CommandId
    command_type: str
    controller_seq: ControllerSeq
    status: CommandStatus
    result: msgspec.Raw


_COMMAND: Final = msgspec.json.Decoder(WireCommand)
_RESULT_MEMBERS: Final = ("commandId", "commandType", "controllerSeq", "status", "result")
_DIAGNOSTIC_LENGTH_MAX: Final = 200


def decode_command(body: bytes) -> WireCommand:
    """Read a wire command out of text that `parse_strict` has accepted.

    Returns:
        A command that passes `validate_command`. Or raises ``command_invalid``.
    """
    try:
        command = _COMMAND.decode(body)
    except msgspec.ValidationError as error:
        # The text may quote the sender, so it is cut.
        raise _invalid(str(error)[:_DIAGNOSTIC_LENGTH_MAX]) from None
    validate_command(command)
    return command


def validate_command(command: WireCommand) -> None:
    """Refuse a command that no runner may execute, with ``command_invalid``.

    Source: prp-wire 8.1 and 8.3.
    """
    if command.type in COMMAND_TYPES_V2_ONLY:
        schemas: tuple[str, ...] = (COMMAND_SCHEMA_V2,)
    elif command.type in COMMAND_TYPES_V1:
        schemas = (COMMAND_SCHEMA_V1, COMMAND_SCHEMA_V2)
    else:
        raise _invalid("its type is unknown")
    if command.schema not in schemas:
        raise _invalid("its schema does not carry its type")
    if not 1 <= len(command.command_id) <= COMMAND_ID_LENGTH_MAX:
        raise _invalid("its id is empty or too long")
    if any(unicodedata.category(character) == "Cc" for character in command.command_id):
        raise _invalid("its id holds a control character")
    if not 1 <= command.controller_seq <= SAFE_INTEGER_MAX:
        raise _invalid("its sequence is not a positive integer")
    if not 1 <= len(command.issued_at.encode()) <= ISSUED_AT_BYTES_MAX:
        raise _invalid("its time of issue is empty or too long")
    if not is_object(command.payload):
        raise _invalid("its payload is not an object")


def is_object(raw: msgspec.Raw) -> bool:
    """Tell whether undecoded JSON is an object."""
    return bytes(raw)[:1] == b"{"


def command_fingerprint(command: WireCommand) -> str:
    """Return what two deliveries of one command have in common, as 64 hex digits.

    It covers every member that a command has; an absent `deadlineAt` or `precondition`
    counts as null.

    Source: prp-wire 8.6.
    """
    value: dict[str, JsonValue] = {
        "schema": command.schema,
        "commandId": command.command_id,
        "controllerSeq": command.controller_seq,
        "type": command.type,
        "issuedAt": command.issued_at,
        "payload": parse_strict(bytes(command.payload)),
        "deadlineAt": command.deadline_at,
        "precondition": parse_strict(msgspec.json.encode(command.precondition)),
    }
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def admit_command(command: WireCommand) -> bytes:
    """Encode a command that is about to be queued, as it will be delivered.

    Returns:
        Its body. Or raises ``command_invalid``, or ``command_too_large`` if no welcome
        could carry it.
    """
    validate_command(command)
    body = msgspec.json.encode(command)
    admit(
        body,
        IN_WELCOME,
        too_large=ErrorCode.COMMAND_TOO_LARGE,
        invalid=ErrorCode.COMMAND_INVALID,
    )
    return body


def admit_result(result: CommandResult) -> bytes:
    """Encode a result that is about to be stored, as it will be sent.

    Returns:
        Its body. Or raises ``result_too_large``, or ``message_invalid`` if ``result`` is
        not an object that the controller's reader takes.
    """
    body = msgspec.json.encode(result)
    if len(body) > RESULT_BYTES_MAX:
        raise PrpError(ErrorCode.RESULT_TOO_LARGE, f"{len(body)} bytes of a result")
    admit(
        body,
        IN_ENVELOPE,
        too_large=ErrorCode.RESULT_TOO_LARGE,
        invalid=ErrorCode.MESSAGE_INVALID,
    )
    if not is_object(result.result):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "the result is not an object")
    return body


def result_digest(body: bytes) -> bytes:
    """Return the raw SHA-256 of a result's canonical form, all five members of it.

    Args:
        body: the `payload` of a `command_result`.

    Returns:
        32 bytes. Or raises ``message_not_json`` or ``message_invalid``.

    Source: prp-wire 8.6.
    """
    return digest_of_result(parse_strict(body))


def digest_of_result(value: JsonValue) -> bytes:
    """Return `result_digest` of a body that is parsed already."""
    if not isinstance(value, dict) or not all(name in value for name in _RESULT_MEMBERS):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "not a command result")
    covered = {name: value[name] for name in _RESULT_MEMBERS}
    return hashlib.sha256(canonical_bytes(covered)).digest()


def _invalid(reason: str) -> PrpError:
    return PrpError(ErrorCode.COMMAND_INVALID, f"the command is refused: {reason}")
