"""Extensions of the handshake: the recovery cursor and the owner epoch.

    auth_hello       recoveryCursorVersion 1        ownerEpochVersion 1
    auth_challenge   recoveryCursorVersion 1,       ownerEpochVersion 1, ownerEpoch,
                     recoveryAckedSourceSeq         ownerId

The runner offers both in its hello. A controller that knows one adds its members to the
challenge, where both proofs cover them; a hello without the offer gets none, so peers that
know neither never meet them. The cursor is the runner's own, from `resume` of its hello: what
a relay made of it would not match. The owner epoch counts starts of the controller.

It decides what the members may say and which controller is obeyed. It refuses to know proofs.
"""

from typing import Final

import msgspec

from protocol.envelope import AuthHello, OwnerEpoch
from protocol.errors import ErrorCode, PrpError
from protocol.ids import SourceSeq
from protocol.limits import OWNER_ID_LENGTH_MAX, SAFE_INTEGER_MAX
from protocol.plain_messages import ChallengePayload

VERSION: Final = 1
OFFERED: Final = msgspec.Raw(b"1")


class _Resume(msgspec.Struct, frozen=True, rename="camel"):
    acked_source_seq: int


# --- controller ---------------------------------------------------------------------------


def recovery_cursor(hello: AuthHello) -> SourceSeq | None:
    """Return the acknowledgement that a runner claims to have, None if it offers no claim."""
    if not _is_offered(hello.recovery_cursor_version) or not isinstance(hello.resume, msgspec.Raw):
        return None
    try:
        cursor = msgspec.json.decode(hello.resume, type=_Resume).acked_source_seq
    except (msgspec.MsgspecError, RecursionError):
        return None
    return SourceSeq(cursor) if 0 <= cursor <= SAFE_INTEGER_MAX else None


def extended(
    challenge: ChallengePayload, hello: AuthHello, owner: OwnerEpoch | None
) -> ChallengePayload:
    """Add the members of every extension that the hello offers."""
    cursor = recovery_cursor(hello)
    if cursor is not None:
        challenge = msgspec.structs.replace(
            challenge, recovery_cursor_version=VERSION, recovery_acked_source_seq=cursor
        )
    if owner is not None and _is_offered(hello.owner_epoch_version):
        challenge = msgspec.structs.replace(
            challenge,
            owner_epoch_version=VERSION,
            owner_epoch=owner.owner_epoch,
            owner_id=owner.owner_id,
        )
    return challenge


def _is_offered(member: msgspec.Raw | msgspec.UnsetType) -> bool:
    return isinstance(member, msgspec.Raw) and bytes(member) == bytes(OFFERED)


# --- runner -------------------------------------------------------------------------------


def check_recovery_cursor(challenge: ChallengePayload, acked_source_seq: int) -> None:
    """Refuse a cursor that is not the runner's own: PrpError ``challenge_altered``.

    Source: prp-wire 12.
    """
    stated = (challenge.recovery_cursor_version, challenge.recovery_acked_source_seq)
    if stated not in ((msgspec.UNSET, msgspec.UNSET), (VERSION, acked_source_seq)):
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "recovery_acked_source_seq")


def owner_of(challenge: ChallengePayload) -> OwnerEpoch | None:
    """Return which start of the controller speaks, None if it does not say.

    Raises PrpError ``challenge_altered`` for half of it or what cannot be.
    """
    version, epoch, owner_id = (
        challenge.owner_epoch_version,
        challenge.owner_epoch,
        challenge.owner_id,
    )
    if version is msgspec.UNSET and epoch is msgspec.UNSET and owner_id is msgspec.UNSET:
        return None
    if (
        version != VERSION
        or not isinstance(epoch, int)
        or not isinstance(owner_id, str)
        or not 1 <= epoch <= SAFE_INTEGER_MAX
        or not 1 <= len(owner_id) <= OWNER_ID_LENGTH_MAX
    ):
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "owner_epoch")
    return OwnerEpoch(owner_epoch=epoch, owner_id=owner_id)


def check_owner(obeyed: OwnerEpoch | None, owner: OwnerEpoch | None) -> None:
    """Refuse a controller that a later start has replaced: ``owner_epoch_superseded``.

    Once a runner has obeyed an epoch, a controller without one is not believed to be newer:
    a relay could have removed the offer from the hello.

    Args:
        obeyed: the highest so far.
        owner: of a challenge whose proof is good.

    Source: ruling R7.
    """
    if obeyed is None or owner == obeyed:
        return
    if owner is None:
        raise PrpError(ErrorCode.OWNER_EPOCH_SUPERSEDED, "the controller names no owner epoch")
    if owner.owner_epoch <= obeyed.owner_epoch:
        words = f"owner epoch {owner.owner_epoch} after {obeyed.owner_epoch}"
        raise PrpError(ErrorCode.OWNER_EPOCH_SUPERSEDED, words)
