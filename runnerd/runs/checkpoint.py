"""Checkpoints: a file is saved before a tool changes it, and can be put back afterwards.

It decides what is saved, when a restore is allowed, and that every change of a snapshot or
of a file is one replacement. It refuses to know when a tool runs, and who asked for a
restore.

    capture ─▶ tool ─▶ mark_applied ─▶ restore     only if the file is what the tool left
       └─ fails: the tool must not run      └─ again: refused, the file is another one now
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from protocol.base.ports import Entropy, Filesystem
from protocol.base.private_directory import (
    check_private_file,
    close_quietly,
    open_private_directory,
)
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import CHECKPOINT_BYTES_MAX, CHECKPOINT_PATHS_MAX
from runnerd.runs.checkpoint_records import (
    RECORD_VERSION,
    CheckpointDiff,
    CheckpointRecord,
    Correlation,
    FileState,
    Snapshot,
    check_checkpoint_id,
    decode_snapshot,
    encode_snapshot,
    is_same_checkpoint,
    snapshot_corrupt,
)
from runnerd.runs.checkpoint_workspace import Place, Sight, Workspace
from runnerd.runs.records import check_run_id
from runnerd.runs.run_file import RunFolder, failures_as
from runnerd.runs.tool_classes import CheckpointClass, ToolCapability

DEFAULT_PATH_FIELDS: Final = ("path",)
NO_CORRELATION: Final = Correlation()

_SUFFIX: Final = ".json"
_ID_BYTES: Final = 16
_UNSUPPORTED: Final = "what this tool changes cannot be saved before"


class Checkpoints:
    """The checkpoints of one run. One thread at a time may use an instance.

    Nothing is created before the first capture. Who restores holds the exclusive lease of
    the workspace.
    """

    def __init__(
        self,
        fs: Filesystem,
        entropy: Entropy,
        *,
        root: str,
        workspace: str,
        run_id: str,
        file_bytes_max: int = CHECKPOINT_BYTES_MAX,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        check_run_id(run_id)
        self._fs = fs
        self._entropy = entropy
        self._root = root
        self._workspace = Workspace(fs, entropy, workspace)
        self._run_id = run_id
        self._path = f"{root}/{run_id}"
        self._file_bytes_max = file_bytes_max
        self._new_id = new_id or (lambda: entropy.token_bytes(_ID_BYTES).hex())
        self._folder: RunFolder | None = None
        self._is_clean = False

    def capture(
        self,
        capability: ToolCapability,
        arguments: Mapping[str, JsonValue],
        *,
        timestamp: str,
        path_fields: Sequence[str] = DEFAULT_PATH_FIELDS,
        correlation: Correlation = NO_CORRELATION,
    ) -> tuple[CheckpointRecord, ...]:
        """Save every file that a call may change, before the call.

        Args:
            capability: of the tool; its checkpoint class decides.
            path_fields: arguments that name files; one that is absent names none.

        Returns:
            A record for each distinct path, durable when this returns; for a tool that
            cannot be undone, one that says so; none for a tool that changes nothing. Or
            raises PrpError, and the call must not be made: ``checkpoint_failed`` (no path,
            out of the workspace, into the store, unreadable), ``checkpoint_too_large``,
            ``invalid_checkpoint_id``, ``checkpoint_conflict`` if the id exists,
            ``state_unsafe`` or ``durability_barrier_failed``.

        Source: durable-runs 8.
        """
        if capability.checkpoint is CheckpointClass.NONE:
            return ()
        places: list[Place | None] = [None]
        if capability.checkpoint is CheckpointClass.REQUIRED:
            places = [*self._places(arguments, path_fields)]
        records: list[CheckpointRecord] = []
        for place in places:
            record = self._record(capability.tool, timestamp, correlation)
            snapshot = _irreversible(record) if place is None else self._saved(record, place)
            self._publish_new(snapshot)
            records.append(snapshot.record)
        return tuple(records)

    def mark_applied(self, record: CheckpointRecord) -> CheckpointRecord:
        """Store what the tool left of the file, after the call.

        Returns:
            The record with its after-state; the same one if that is known already. Raises
            PrpError ``checkpoint_corrupt``, ``checkpoint_failed``, or
            ``checkpoint_conflict`` if another after-state is known.
        """
        snapshot = self._of(record)
        if not snapshot.record.reversible:
            return snapshot.record
        state = self._workspace.look(self._place(snapshot)).state
        if snapshot.record.after not in (None, state):
            raise _conflict("the file is not what the tool left")
        # Also if it is known: whoever stored it may have died before that was durable.
        after = msgspec.structs.replace(
            snapshot.record, after_existed=state.existed, after_sha256=state.sha256
        )
        self._publish(Snapshot(after, snapshot.content))
        return after

    def diff(self, record: CheckpointRecord) -> CheckpointDiff:
        """Return how the file differs now from what was saved.

        Raises PrpError ``checkpoint_corrupt``, ``checkpoint_failed``, or
        ``checkpoint_too_large`` if the file has grown beyond the bound of a checkpoint.
        """
        snapshot = self._of(record)
        before = snapshot.record
        if not before.reversible:
            return CheckpointDiff(
                checkpoint_id=before.checkpoint_id, reversible=False, changed=False
            )
        now = self._workspace.read(self._place(snapshot), self._file_bytes_max)
        before_text, after_text = _texts(snapshot.content, now.content)
        return CheckpointDiff(
            checkpoint_id=before.checkpoint_id,
            reversible=True,
            changed=_before(snapshot) != now.state,
            target_path=before.target_path,
            before_sha256=before.before_sha256,
            after_sha256=now.state.sha256,
            before_text=before_text,
            after_text=after_text,
        )

    def restore(
        self, record: CheckpointRecord, expected: FileState | None = None
    ) -> CheckpointRecord:
        """Put back the bytes and mode that were saved, or remove a file that was not there.

        Args:
            record: with or without its after-state.
            expected: the state in which the file must be; without it, the after-state.

        Returns:
            The stored record; the file is durable as it was. Or raises PrpError, and the
            file stands: ``checkpoint_not_reversible``, ``checkpoint_corrupt``,
            ``checkpoint_failed``, ``checkpoint_conflict`` if no state is expected or the
            file is in another one, as it is after a restore. Only
            ``durability_barrier_failed`` leaves open which file will be found.

        Source: durable-runs 8.
        """
        snapshot = self._of(record)
        if not snapshot.record.reversible:
            raise PrpError(ErrorCode.CHECKPOINT_NOT_REVERSIBLE, _UNSUPPORTED)
        wanted = snapshot.record.after if expected is None else expected
        if wanted is None:
            raise _conflict("nobody knows what the tool left: name the state that is expected")
        place = self._place(snapshot)
        seen = self._workspace.look(place)
        if seen.state != wanted:
            is_restored = seen.state == _before(snapshot)
            raise _conflict("as it was before" if is_restored else "not in the state expected")
        if snapshot.content is None:
            self._workspace.remove(place, seen)
        else:
            assert isinstance(snapshot.record.before_mode, int), "checked with the snapshot"
            self._workspace.replace(place, snapshot.content, snapshot.record.before_mode, seen)
        return snapshot.record

    def load(self, checkpoint_id: str) -> CheckpointRecord:
        """Return the record of a checkpoint by its id.

        Raises PrpError ``invalid_checkpoint_id``, ``checkpoint_not_found``,
        ``checkpoint_corrupt``, or ``state_unsafe`` if others may reach the snapshot.
        """
        check_checkpoint_id(checkpoint_id)
        snapshot = self._read(checkpoint_id)
        if snapshot is None:
            raise PrpError(ErrorCode.CHECKPOINT_NOT_FOUND, "there is no such checkpoint")
        return snapshot.record

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            close_quietly(self._fs, self._folder.directory)
            self._folder = None

    def _places(self, arguments: Mapping[str, JsonValue], fields: Sequence[str]) -> Iterator[Place]:
        found: dict[str, Place] = {}
        for path in _paths(arguments, fields):
            place = self._workspace.locate(path)
            if self._workspace.holds(self._root, place):
                raise _failed("the path leads into the store of the checkpoints")
            found.setdefault(place.path, place)
        if not found:
            raise _failed("no argument names a file")
        if len(found) > CHECKPOINT_PATHS_MAX:
            raise _failed(f"more than {CHECKPOINT_PATHS_MAX} paths in one call")
        yield from found.values()

    def _record(self, tool: str, timestamp: str, correlation: Correlation) -> CheckpointRecord:
        checkpoint_id = self._new_id()
        check_checkpoint_id(checkpoint_id)
        return CheckpointRecord(
            version=RECORD_VERSION,
            checkpoint_id=checkpoint_id,
            run_id=self._run_id,
            timestamp=timestamp,
            tool=tool,
            reversible=True,
            snapshot_file=f"{self._path}/{checkpoint_id}{_SUFFIX}",
            **msgspec.structs.asdict(correlation),
        )

    def _saved(self, record: CheckpointRecord, place: Place) -> Snapshot:
        seen = self._workspace.read(place, self._file_bytes_max)
        saved = msgspec.structs.replace(
            record,
            target_path=place.path,
            existed=seen.state.existed,
            before_sha256=seen.state.sha256,
            before_mode=_mode(seen),
        )
        return Snapshot(saved, seen.content)

    def _place(self, snapshot: Snapshot) -> Place:
        """Find the file again; links on its way may lead elsewhere by now."""
        path = snapshot.record.target_path
        assert isinstance(path, str), "checked with the snapshot"
        place = self._workspace.locate(path)
        if place.path != path:
            raise _conflict("a link stands on the way to the file")
        return place

    def _of(self, record: CheckpointRecord) -> Snapshot:
        """Return the stored snapshot of a record, which alone decides."""
        check_checkpoint_id(record.checkpoint_id)
        snapshot = self._read(record.checkpoint_id)
        if snapshot is None:
            raise snapshot_corrupt("the snapshot is gone")
        stored = snapshot.record
        if not is_same_checkpoint(record, stored) or record.after not in (None, stored.after):
            raise snapshot_corrupt("the snapshot is of another record")
        return snapshot

    def _read(self, checkpoint_id: str) -> Snapshot | None:
        name = checkpoint_id + _SUFFIX
        with failures_as(ErrorCode.CHECKPOINT_FAILED):
            folder = self._opened(is_made=False)
            status = None if folder is None else folder.status(name)
            if folder is None or status is None:
                return None
            check_private_file(self._fs, status, name)
            data = b"".join(folder.pieces(name))
        return decode_snapshot(data, self._run_id, checkpoint_id)

    def _publish_new(self, snapshot: Snapshot) -> None:
        with failures_as(ErrorCode.CHECKPOINT_FAILED):
            folder = self._opened(is_made=True)
            assert folder is not None, "it was made"
            if not self._is_clean:
                # Only who captures may do this: another's unfinished file looks the same.
                folder.remove_leftovers()
                self._is_clean = True
            name = snapshot.record.checkpoint_id + _SUFFIX
            if folder.status(name) is not None:
                raise _conflict("the checkpoint id exists")
            folder.publish(name, (encode_snapshot(snapshot),))

    def _publish(self, snapshot: Snapshot) -> None:
        with failures_as(ErrorCode.CHECKPOINT_FAILED):
            assert self._folder is not None, "the snapshot was read from it"
            name = snapshot.record.checkpoint_id + _SUFFIX
            self._folder.remove_leftovers(name)
            self._folder.publish(name, (encode_snapshot(snapshot),))

    def _opened(self, *, is_made: bool) -> RunFolder | None:
        if self._folder is None:
            if not is_made:
                try:
                    close_quietly(self._fs, self._fs.open_directory(self._path))
                except FileNotFoundError:
                    return None
            directory = open_private_directory(self._fs, self._path, _is_of_a_checkpoint)
            self._folder = RunFolder(self._fs, self._entropy, directory)
        return self._folder


def _irreversible(record: CheckpointRecord) -> Snapshot:
    return Snapshot(msgspec.structs.replace(record, reversible=False, reason=_UNSUPPORTED))


def _paths(arguments: Mapping[str, JsonValue], fields: Sequence[str]) -> Iterator[str]:
    for field in fields:
        if field in arguments:
            value = arguments[field]
            if not isinstance(value, str):
                raise _failed(f"argument {field} is not a path")
            yield value


def _before(snapshot: Snapshot) -> FileState:
    record = snapshot.record
    return FileState(existed=snapshot.content is not None, sha256=record.before_sha256)


def _mode(seen: Sight) -> int | UnsetType:
    return UNSET if seen.status is None else seen.status.mode


def _texts(*contents: bytes | None) -> list[str | UnsetType]:
    """Return contents as texts if all are UTF-8, else none of them."""
    try:
        return [UNSET if content is None else content.decode() for content in contents]
    except UnicodeDecodeError:
        return [UNSET for _ in contents]


def _is_of_a_checkpoint(name: str) -> bool:
    stem = name.removeprefix(".").partition(".")[0]
    with contextlib.suppress(PrpError):
        check_checkpoint_id(stem)
        return name.removeprefix(".").startswith(stem + _SUFFIX)
    return False


def _failed(reason: str) -> PrpError:
    return PrpError(ErrorCode.CHECKPOINT_FAILED, reason)


def _conflict(reason: str) -> PrpError:
    return PrpError(ErrorCode.CHECKPOINT_CONFLICT, reason)
