"""A conversation as its user sees it: opened from a backend, shown, and added to.

It decides which mutations a wish becomes, and that a handle writes only onto what it has
seen. It refuses to know where sessions lie.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, TypeGuard

import msgspec
from msgspec import UNSET

from protocol.base.clock import UnixMs
from protocol.base.ports import Entropy
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import JSON_DEPTH_MAX
from runnerd.runs.json_lines import parse_json
from runnerd.runs.sessions.backend import Opened, Opening, SessionBackend, WriteLease
from runnerd.runs.sessions.log import LF, SessionMark, encode_mutations
from runnerd.runs.sessions.records import (
    MAIN_LANE,
    RECORD_TYPES,
    Entry,
    Header,
    JsonObject,
    LabelFact,
    LaneMove,
    LaneRecord,
    Mutation,
    NameFact,
    misfit_of_entry,
    read_mutation,
)
from runnerd.runs.sessions.tree import SessionTree

_ID_BYTES: Final = 16


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a conversation for all that came before it."""

    summary: str
    tokens_before: int
    retained_tail: Sequence[JsonObject] = ()
    """Messages that stay as they are, behind the summary."""
    details: JsonValue = None
    """Whatever its maker wants to keep with it; None is nothing."""


class Sessions:
    """The conversations that a backend keeps."""

    def __init__(self, backend: SessionBackend, entropy: Entropy) -> None:
        self._backend = backend
        self._entropy = entropy

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session; nothing is changed."""
        return self._backend.exists(session_id)

    def open(self, session_id: str, cwd: str | None, now: UnixMs) -> "Session":
        """Return a session, made if there is none; see `FileSessions.open`."""
        opened = self._backend.open(session_id, cwd, now)
        return Session(self._backend, self._entropy, opened)


class Session:
    """One conversation as it was when it was opened, and as this handle went on with it.

    What other handles add is not seen. One thread at a time may use an instance; values
    that it returns are not to be changed.
    """

    def __init__(self, backend: SessionBackend, entropy: Entropy, opened: Opened) -> None:
        self._backend = backend
        self._entropy = entropy
        self.header: Header = opened.log.header
        self.opening: Opening = opened.opening
        """What opening it came to."""
        self.mark: SessionMark = opened.log.mark
        """Which content this handle has seen."""
        self.tree: SessionTree = opened.log.tree()

    @property
    def is_new(self) -> bool:
        """Whether this handle made the session."""
        return self.opening is Opening.CREATED

    @property
    def seq(self) -> int:
        """The highest sequence of the conversation; 0 for an empty one."""
        return self.tree.seq_mark()

    def messages(self, lane: str = MAIN_LANE) -> list[dict[str, JsonValue]]:
        """Return the conversation, the last compaction in place of what came before."""
        return self.tree.messages(lane)

    def branch(self, lane: str = MAIN_LANE) -> list[Entry]:
        """Return every entry from the root to the end of a lane."""
        return self.tree.branch(lane)

    def writer(self) -> "SessionWriter":
        """Become the one writer until the writer is closed.

        Raises PrpError ``session_write_locked`` while somebody else writes,
        ``session_snapshot_stale`` if somebody else wrote since this handle was opened.
        """
        lease = self._backend.lease(self.header.session_id, self.mark)
        return SessionWriter(self, lease, self._entropy)

    def append(self, messages: Iterable[JsonObject], now: UnixMs) -> int:
        """Add messages under a lease of their own, and return the conversation's sequence."""
        with self.writer() as writer:
            writer.append(messages, now)
        return self.seq


class SessionWriter:
    """The right to add to one session. Every method returns when what it added is durable.

    Raises PrpError ``message_invalid`` for what cannot be written, ``message_too_large``
    for what is nested too deeply, and what `WriteLease.append` raises; then nothing was
    added, or the code says that this is not known.
    """

    def __init__(self, session: Session, lease: WriteLease, entropy: Entropy) -> None:
        self._session = session
        self._lease = lease
        self._entropy = entropy

    def __enter__(self) -> "SessionWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others write."""
        self._lease.close()

    def append(
        self, messages: Iterable[JsonObject], now: UnixMs, lane: str = MAIN_LANE
    ) -> list[str]:
        """Add messages to a lane and return the ids of their entries.

        Each must be plain JSON; members that are UNSET are left out. After a crash a
        batch may be there in part, from its beginning.
        """
        members = [{"message": plain_json(message)} for message in messages]
        return self._append_entries("message", members, now, lane)

    def append_entry(
        self, entry_type: str, members: JsonObject, now: UnixMs, lane: str = MAIN_LANE
    ) -> str:
        """Add an entry of another type, e.g. `model_change`, and return its id."""
        plain = _members(members)
        if (misfit := misfit_of_entry(entry_type, plain)) is not None:
            raise _invalid(misfit)
        [entry_id] = self._append_entries(entry_type, [plain], now, lane)
        return entry_id

    def compact(self, compaction: Compaction, now: UnixMs, lane: str = MAIN_LANE) -> str:
        """Let a summary stand for the conversation so far; the history stays."""
        members: dict[str, JsonValue] = {
            "summary": compaction.summary,
            "retainedTail": [dict(message) for message in compaction.retained_tail],
            "tokensBefore": compaction.tokens_before,
        }
        if compaction.details is not None:
            members["details"] = compaction.details
        return self.append_entry("compaction", members, now, lane)

    def compact_when_over(
        self, tokens: int, budget: int, make: Callable[[], Compaction], now: UnixMs
    ) -> bool:
        """Compact the conversation if it is over its budget; tell whether that was done."""
        if tokens <= budget:
            return False
        self.compact(make(), now)
        return True

    def append_record(
        self, record_type: str, members: JsonObject, now: UnixMs, lane: str = MAIN_LANE
    ) -> str:
        """Add what happened on a lane beside its entries, and return the record's id."""
        self._check_lane(lane)
        if record_type not in RECORD_TYPES:
            raise _invalid("a record of an unknown type")
        record = LaneRecord(
            seq=self._next_seq,
            record_id=self._fresh_id(),
            record_type=record_type,
            timestamp=now,
            lane=lane,
            members=_members(members),
        )
        self._write([record])
        return record.record_id

    def move_lane(self, lane: str, leaf_id: str | None) -> None:
        """Let a lane, new or old, go on from an entry; None is the root."""
        self._check_entry(leaf_id)
        self._write([LaneMove(seq=self._next_seq, lane=lane, leaf_id=leaf_id)])

    def set_name(self, name: str | None) -> None:
        """Name the session, or take its name away."""
        self._write([NameFact(seq=self._next_seq, name=name)])

    def set_label(self, entry_id: str, label: str | None) -> None:
        """Label an entry, or take its label away."""
        self._check_entry(entry_id)
        self._write([LabelFact(seq=self._next_seq, target_id=entry_id, label=label)])

    @property
    def _next_seq(self) -> int:
        return self._session.tree.seq + 1

    def _append_entries(
        self, entry_type: str, members: Sequence[JsonObject], now: UnixMs, lane: str
    ) -> list[str]:
        self._check_lane(lane)
        parent_id = self._session.tree.lanes[lane]
        entries: list[Entry] = []
        for seq, rest in enumerate(members, start=self._next_seq):
            entry = Entry(
                seq=seq,
                entry_id=self._fresh_id(),
                entry_type=entry_type,
                parent_id=parent_id,
                timestamp=now,
                lane=lane,
                members=rest,
            )
            entries.append(entry)
            parent_id = entry.entry_id
        self._write(entries)
        return [entry.entry_id for entry in entries]

    def _write(self, mutations: Sequence[Mutation]) -> None:
        """Make mutations durable, then let the handle show what a reader would read."""
        if not mutations:
            return
        lines = encode_mutations(mutations)
        written = [_read_back(line) for line in lines.split(LF)[:-1]]
        self._session.mark = self._lease.append(lines)
        for mutation in written:
            self._session.tree.apply(mutation)

    def _fresh_id(self) -> str:
        return self._entropy.token_bytes(_ID_BYTES).hex()

    def _check_lane(self, lane: str) -> None:
        if lane not in self._session.tree.lanes:
            raise _invalid("a lane that is not there")

    def _check_entry(self, entry_id: str | None) -> None:
        if entry_id is not None and self._session.tree.entry(entry_id) is None:
            raise _invalid("an entry that is not there")


def plain_json(value: object, depth: int = 0) -> JsonValue:
    """Return a value as plain JSON of its own, without the members that are UNSET.

    Raises PrpError ``message_invalid`` for anything else than JSON,
    ``message_too_large`` if it is nested too deeply.
    """
    if depth > JSON_DEPTH_MAX:
        raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, "nested too deeply")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if _is_mapping(value):
        found: dict[str, JsonValue] = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise _invalid("a member whose name is no text")
            if item is not UNSET:
                found[name] = plain_json(item, depth + 1)
        return found
    if _is_array(value):
        return [plain_json(item, depth + 1) for item in value]
    raise _invalid(f"{type(value).__name__} is not JSON")


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_array(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _members(members: JsonObject) -> dict[str, JsonValue]:
    plain = plain_json(members)
    assert isinstance(plain, dict), "made from a mapping"
    return plain


def _read_back(line: bytes) -> Mutation:
    parsed = parse_json(line)
    assert parsed is not None, "what was spelled is JSON"
    try:
        return read_mutation(parsed.json)
    except PrpError as error:
        raise _invalid(error.message) from None


def _invalid(reason: str) -> PrpError:
    return PrpError(ErrorCode.MESSAGE_INVALID, reason)
