"""What is kept of a file before a tool changes it: the record, and the snapshot on disk.

It decides which bytes are a snapshot that may be restored. It refuses to know where files
lie and whether a restore is allowed at this moment.
"""

import hashlib
import re
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.base.proven_content import disclose, enclose
from protocol.errors import ErrorCode, PrpError
from protocol.limits import CHECKPOINT_ID_LENGTH_MAX

RECORD_VERSION: Final = 1
SNAPSHOT_SCHEMA: Final = "runnerd.checkpoint.v1"

_ID: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_MODE_MAX: Final = 0o7777


class Correlation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What ties a checkpoint to its call and its receipts."""

    operation_id: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET


class FileState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether a file is there and, if so, the SHA-256 of its bytes."""

    existed: bool
    sha256: str | UnsetType = UNSET


class CheckpointRecord(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What a run log says of a checkpoint; the content is in the snapshot alone.

    It is logged before the tool runs, and once more with the after-state.
    """

    version: int
    checkpoint_id: str
    run_id: str
    timestamp: str
    tool: str
    reversible: bool
    snapshot_file: str
    operation_id: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    idempotency_key: str | UnsetType = UNSET
    target_path: str | UnsetType = UNSET
    existed: bool | UnsetType = UNSET
    before_sha256: str | UnsetType = UNSET
    before_mode: int | UnsetType = UNSET
    after_existed: bool | UnsetType = UNSET
    after_sha256: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """Why it is not reversible."""

    @property
    def after(self) -> FileState | None:
        """The state that the tool left, None before that is known."""
        if self.after_existed is UNSET:
            return None
        return FileState(existed=self.after_existed, sha256=self.after_sha256)


class Snapshot(msgspec.Struct, frozen=True):
    """A record and the bytes that the file had; None if there was no file."""

    record: CheckpointRecord
    content: bytes | None = None


class CheckpointDiff(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A file before its change and now. Texts are there only where both are UTF-8."""

    checkpoint_id: str
    reversible: bool
    changed: bool
    target_path: str | UnsetType = UNSET
    before_sha256: str | UnsetType = UNSET
    after_sha256: str | UnsetType = UNSET
    before_text: str | UnsetType = UNSET
    after_text: str | UnsetType = UNSET


class _Stored(CheckpointRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a snapshot file."""

    content_base64: bytes | UnsetType = UNSET


def check_checkpoint_id(checkpoint_id: str) -> None:
    """Refuse an id that is not a plain file name: PrpError ``invalid_checkpoint_id``."""
    if len(checkpoint_id) > CHECKPOINT_ID_LENGTH_MAX or _ID.fullmatch(checkpoint_id) is None:
        raise PrpError(ErrorCode.INVALID_CHECKPOINT_ID, "an id is letters, digits, _ and -")


def sha256_of(content: bytes) -> str:
    """Return the lower-case hex digest of a file's bytes."""
    return hashlib.sha256(content).hexdigest()


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the bytes of a snapshot file; they prove themselves."""
    content = UNSET if snapshot.content is None else snapshot.content
    stored = _Stored(**msgspec.structs.asdict(snapshot.record), content_base64=content)
    return enclose(SNAPSHOT_SCHEMA, msgspec.json.encode(stored))


def decode_snapshot(data: bytes, run_id: str, checkpoint_id: str) -> Snapshot:
    """Return what a snapshot file holds.

    Raises PrpError ``checkpoint_corrupt`` if one bit of it was changed, if it is of
    another run or another checkpoint, or if its content is not the one it names.
    """
    try:
        stored = msgspec.json.decode(disclose(SNAPSHOT_SCHEMA, data), type=_Stored)
    except (PrpError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise snapshot_corrupt("the snapshot is not as it was written") from error
    members = msgspec.structs.asdict(stored)
    content = members.pop("content_base64")
    snapshot = Snapshot(CheckpointRecord(**members), None if content is UNSET else content)
    if (misfit := _misfit(snapshot, run_id, checkpoint_id)) is not None:
        raise snapshot_corrupt(misfit)
    return snapshot


def is_same_checkpoint(one: CheckpointRecord, other: CheckpointRecord) -> bool:
    """Tell whether two records differ at most in the after-state and in where the file lies."""
    return _without_after(one) == _without_after(other)


def snapshot_corrupt(what: str) -> PrpError:
    """Return the refusal of a snapshot that is not what it should be."""
    return PrpError(ErrorCode.CHECKPOINT_CORRUPT, what)


def _without_after(record: CheckpointRecord) -> CheckpointRecord:
    return msgspec.structs.replace(
        record, after_existed=UNSET, after_sha256=UNSET, snapshot_file=""
    )


def _misfit(snapshot: Snapshot, run_id: str, checkpoint_id: str) -> str | None:
    record, content = snapshot.record, snapshot.content
    if record.version != RECORD_VERSION:
        return "a snapshot of another version"
    if (record.run_id, record.checkpoint_id) != (run_id, checkpoint_id):
        return "a snapshot of another run or checkpoint"
    if not record.reversible:
        return None if content is None else "content of what cannot be reversed"
    if record.target_path is UNSET or record.existed is UNSET:
        return "a snapshot of no file"
    if record.existed != (content is not None):
        return "a snapshot whose content is missing or was not there"
    if content is not None and not (
        record.before_sha256 == sha256_of(content)
        and isinstance(record.before_mode, int)
        and 0 <= record.before_mode <= _MODE_MAX
    ):
        return "content that is not the one it names"
    if record.after_existed is not UNSET and record.after_existed == (record.after_sha256 is UNSET):
        return "an after-state that contradicts itself"
    return None
