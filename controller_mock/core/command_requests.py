"""Whether a requested command may be queued, and what it looks like on the wire.

It decides content, id and size. It refuses to know when the command is handed out.
"""

from typing import Final

import msgspec

from controller_mock.core.inputs import CommandRequested
from controller_mock.core.state import DurableRun, SettledCommand
from protocol.base.clock import Now
from protocol.canonical_json import parse_strict
from protocol.commands import (
    COMMAND_SCHEMA_V1,
    COMMAND_SCHEMA_V2,
    COMMAND_TYPES_V2_ONLY,
    Precondition,
    WireCommand,
    admit_command,
    command_fingerprint,
)
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CommandId, ControllerSeq, is_stable_id
from protocol.limits import BODY_BYTES_MAX, COMMAND_ID_LENGTH_MAX, COMMANDS_PER_RUN_MAX
from protocol.timestamps import rfc3339_ms, unix_ms_of

NUMBERED_PREFIX: Final = "command_prp_"
"""Starts the ids that the controller makes itself."""
NEXT_AUTHORITY: Final = "paperclipNextAuthority"

_PRECONDITION: Final = msgspec.json.Decoder(Precondition)


def wire_command(
    durable: DurableRun, stimulus: CommandRequested, now: Now
) -> tuple[WireCommand, bytes]:
    """Return the requested command under the next number, and its body as it will be delivered.

    Raises:
        PrpError: ``runner_revoked``, ``command_too_large``, ``command_invalid``, or
            ``authority_change_unsupported`` for a `run.attach` to another run.

    Source: prp-wire 8.1, architecture 7.9.
    """
    if durable.revocation_epoch > 0:
        raise PrpError(ErrorCode.RUNNER_REVOKED)
    if len(stimulus.payload) > BODY_BYTES_MAX:
        raise PrpError(ErrorCode.COMMAND_TOO_LARGE)
    seq = ControllerSeq(durable.last_controller_seq + 1)
    command_id = _numbered(seq) if stimulus.command_id is None else stimulus.command_id
    command = WireCommand(
        schema=COMMAND_SCHEMA_V2 if stimulus.type in COMMAND_TYPES_V2_ONLY else COMMAND_SCHEMA_V1,
        command_id=CommandId(command_id),
        controller_seq=seq,
        type=stimulus.type,
        issued_at=rfc3339_ms(now.unix_ms),
        payload=msgspec.Raw(stimulus.payload),
        deadline_at=stimulus.deadline_at,
        precondition=_precondition(stimulus),
    )
    if not is_stable_id(command.command_id, COMMAND_ID_LENGTH_MAX):
        raise PrpError(ErrorCode.COMMAND_INVALID, "its id is not a stable id")
    if command.deadline_at is not None and unix_ms_of(command.deadline_at) is None:
        raise PrpError(ErrorCode.COMMAND_INVALID, "its deadline is not a timestamp")
    body = admit_command(command)
    _check_authority(stimulus)
    return command, body


def known_command(durable: DurableRun, command: WireCommand) -> WireCommand | SettledCommand | None:
    """Return the command that already has this id and content; None if the id is free.

    Raises:
        PrpError: ``command_conflict`` if the id names other content, ``command_invalid``
            if it is one that the controller would give to another number.
    """
    for known, fingerprint in _held(durable):
        if known.command_id == command.command_id:
            again = msgspec.structs.replace(
                command, controller_seq=known.controller_seq, issued_at=known.issued_at
            )
            if command_fingerprint(again) != fingerprint:
                raise PrpError(ErrorCode.COMMAND_CONFLICT)
            return known
    is_numbered = command.command_id.startswith(NUMBERED_PREFIX)
    if is_numbered and command.command_id != _numbered(command.controller_seq):
        raise PrpError(ErrorCode.COMMAND_INVALID, "its id belongs to another number")
    return None


def check_room(durable: DurableRun) -> None:
    """Raise ``command_queue_full`` if no further command may be open."""
    if len(durable.open_commands) >= COMMANDS_PER_RUN_MAX:
        raise PrpError(ErrorCode.COMMAND_QUEUE_FULL)


def _held(durable: DurableRun) -> list[tuple[WireCommand | SettledCommand, str]]:
    held: list[tuple[WireCommand | SettledCommand, str]] = [
        (open_.command, open_.fingerprint) for open_ in durable.open_commands
    ]
    held.extend((settled, settled.fingerprint) for settled in durable.settled)
    return held


def _numbered(seq: ControllerSeq) -> str:
    return f"{NUMBERED_PREFIX}{seq:08d}"


def _check_authority(stimulus: CommandRequested) -> None:
    payload = parse_strict(stimulus.payload)
    assert isinstance(payload, dict), "an admitted command has an object"
    if stimulus.type == "run.attach" and NEXT_AUTHORITY in payload:
        raise PrpError(ErrorCode.AUTHORITY_CHANGE_UNSUPPORTED)


def _precondition(stimulus: CommandRequested) -> Precondition | None:
    if stimulus.precondition is None:
        return None
    try:
        parse_strict(stimulus.precondition)
        return _PRECONDITION.decode(stimulus.precondition)
    except (PrpError, msgspec.ValidationError):
        raise PrpError(ErrorCode.COMMAND_INVALID, "its precondition is malformed") from None
