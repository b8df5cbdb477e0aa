"""The receipt by which two peers agree that a runner moves from one run to the next.

It decides what a receipt covers and whether one is whole. It refuses to know in which phase
a transition is.
"""

import hashlib
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.commands import CommandResult, WireCommand, command_fingerprint, result_digest
from protocol.errors import ErrorCode, PrpError
from protocol.ids import (
    CommandId,
    ControllerSeq,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceSeq,
    is_stable_id,
)
from protocol.limits import WIRE_IDENTITY_LENGTH_MAX

WARM_TRANSITION_SCHEMA: Final = "paperclip.runner.warm-transition.v1"
WARM_TRANSITION_VERSION: Final = 1
NEXT_AUTHORITY_MEMBER: Final = "paperclipNextAuthority"


class NextAuthority(msgspec.Struct, frozen=True):
    """Where a `run.attach` leads: the six ids of the next run and how it is reached."""

    identity: Identity
    connection: msgspec.Raw


class WarmTransitionReceipt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the old authority gave away. Source: prp-wire 11."""

    schema: str
    old_identity: Identity
    new_identity: Identity
    command_id: CommandId
    controller_seq: ControllerSeq
    command_fingerprint: str
    result_digest: str
    """64 lower-case hex digits."""
    old_acked_source_seq: SourceSeq
    connection: msgspec.Raw
    runner_version: str
    runner_digest: str
    lease_id: LeaseId
    lease_expires_at_unix_ms: int
    lease_revocation_epoch: RevocationEpoch
    transition_id: str = ""
    """64 lower-case hex digits of SHA-256 over the canonical form of all other members."""


_AUTHORITY: Final = msgspec.json.Decoder(NextAuthority)
_RECEIPT: Final = msgspec.json.Decoder(WarmTransitionReceipt)


def next_authority(command: WireCommand, identity: Identity) -> NextAuthority | None:
    """Return the authority that a `run.attach` hands over to, or None if it names none.

    Args:
        identity: of the run that gets the command.

    Returns:
        Or raises ``command_invalid`` if the authority is malformed, stays in the same run,
        or leaves the runner, its environment or its session.

    Source: prp-wire 11.
    """
    payload = parse_strict(bytes(command.payload))
    if not isinstance(payload, dict) or NEXT_AUTHORITY_MEMBER not in payload:
        return None
    try:
        authority = _AUTHORITY.decode(msgspec.json.encode(payload[NEXT_AUTHORITY_MEMBER]))
    except msgspec.ValidationError as error:
        raise PrpError(ErrorCode.COMMAND_INVALID, f"the next authority: {error}") from None
    following = authority.identity
    if not all(
        is_stable_id(one, WIRE_IDENTITY_LENGTH_MAX) for one in msgspec.structs.astuple(following)
    ):
        raise PrpError(ErrorCode.COMMAND_INVALID, "the next authority: not an identity")
    if (
        following.runner_instance_id != identity.runner_instance_id
        or following.environment_lease_id != identity.environment_lease_id
        or following.normalized_session_id != identity.normalized_session_id
        or following.run_id == identity.run_id
    ):
        raise PrpError(ErrorCode.COMMAND_INVALID, "the next authority: not the next run here")
    return authority


def warm_transition_receipt(
    *,
    identity: Identity,
    command: WireCommand,
    result: CommandResult,
    old_acked_source_seq: SourceSeq,
    runner_version: str,
    runner_digest: str,
    lease_id: LeaseId,
    lease_expires_at_unix_ms: int,
    lease_revocation_epoch: RevocationEpoch,
) -> WarmTransitionReceipt:
    """Return the receipt for a completed `run.attach`, with its transition id.

    Args:
        identity: of the run that ends.
        command: an attach that names the next authority.

    Returns:
        Or raises ``command_invalid`` as `next_authority` does, or if there is none.
    """
    authority = next_authority(command, identity)
    if authority is None:
        raise PrpError(ErrorCode.COMMAND_INVALID, "the attach names no next authority")
    receipt = WarmTransitionReceipt(
        schema=WARM_TRANSITION_SCHEMA,
        old_identity=identity,
        new_identity=authority.identity,
        command_id=command.command_id,
        controller_seq=command.controller_seq,
        command_fingerprint=command_fingerprint(command),
        result_digest=result_digest(msgspec.json.encode(result)).hex(),
        old_acked_source_seq=old_acked_source_seq,
        connection=authority.connection,
        runner_version=runner_version,
        runner_digest=runner_digest,
        lease_id=lease_id,
        lease_expires_at_unix_ms=lease_expires_at_unix_ms,
        lease_revocation_epoch=lease_revocation_epoch,
    )
    value = parse_strict(msgspec.json.encode(receipt))
    return msgspec.structs.replace(receipt, transition_id=_transition_id(value))


def read_receipt(body: bytes) -> WarmTransitionReceipt:
    """Read the `warmTransition` member of a result's ACK or of a welcome.

    Returns:
        A receipt whose id is that of its content. Or raises ``message_not_json`` or
        ``message_invalid``.
    """
    value = parse_strict(body)
    try:
        receipt = _RECEIPT.decode(body)
    except msgspec.ValidationError as error:
        raise PrpError(ErrorCode.MESSAGE_INVALID, f"the receipt: {error}") from None
    if receipt.schema != WARM_TRANSITION_SCHEMA:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "the receipt: another schema")
    if receipt.transition_id != _transition_id(value):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "the receipt: its id is of other content")
    return receipt


def _transition_id(receipt: JsonValue) -> str:
    assert isinstance(receipt, dict), "a receipt is an object"
    covered = {name: value for name, value in receipt.items() if name != "transitionId"}
    return hashlib.sha256(canonical_bytes(covered)).hexdigest()
