"""What the mutations of a session mean: a tree of entries, and lanes that end in it.

It decides which mutation may follow, and what a lane shows as its conversation. It refuses
to know where mutations come from.

    root ─▶ a ─▶ b ─▶ c          lane main moved to b, then d appended: main shows a b d
                  └─▶ d ◀─ main  a compaction on the way replaces all before it
"""

from protocol.canonical_json import JsonValue
from runnerd.runs.sessions.records import (
    MAIN_LANE,
    Entry,
    LabelFact,
    LaneMove,
    LaneRecord,
    Mutation,
    NameFact,
    damaged,
)


class SessionTree:
    """The state that a session's mutations add up to, applied one after the other."""

    def __init__(self) -> None:
        self.seq = 0
        """Of the last mutation."""
        self.name: str | None = None
        self.labels: dict[str, str] = {}
        self.lanes: dict[str, str | None] = {MAIN_LANE: None}
        """The leaf of each lane, None at the root."""
        self._entries: dict[str, Entry] = {}
        self._used: set[str] = set()

    @property
    def entry_count(self) -> int:
        """Entries on all branches."""
        return len(self._entries)

    def apply(self, mutation: Mutation) -> None:
        """Let a mutation follow the others.

        Raises PrpError ``session_restore_failed``, and nothing is changed: a sequence that
        is not the next one, an id that was used, a parent, lane or target that is not
        there, an entry that does not continue its lane.

        Source: durable-runs 7.
        """
        if mutation.seq != self.seq + 1:
            raise damaged(f"seq {mutation.seq} where {self.seq + 1} must stand")
        match mutation:
            case Entry():
                self._add(mutation)
            case LaneMove():
                self._check_target(mutation.leaf_id)
                self.lanes[mutation.lane] = mutation.leaf_id
            case NameFact():
                self.name = mutation.name
            case LabelFact():
                self._check_target(mutation.target_id)
                self.labels.pop(mutation.target_id, None)
                if mutation.label is not None:
                    self.labels[mutation.target_id] = mutation.label
            case LaneRecord():
                self._check_lane(mutation.lane)
                self._use(mutation.record_id)
        self.seq = mutation.seq

    def entry(self, entry_id: str) -> Entry | None:
        """Return an entry by its id."""
        return self._entries.get(entry_id)

    def branch(self, lane: str = MAIN_LANE) -> list[Entry]:
        """Return the entries from the root to the leaf of a lane."""
        found: list[Entry] = []
        entry_id = self.lanes.get(lane)
        while entry_id is not None:
            found.append(self._entries[entry_id])
            entry_id = found[-1].parent_id
        return found[::-1]

    def seq_mark(self, lane: str = MAIN_LANE) -> int:
        """Return the highest sequence on a lane, 0 if it is empty."""
        return max((entry.seq for entry in self.branch(lane)), default=0)

    def messages(self, lane: str = MAIN_LANE) -> list[dict[str, JsonValue]]:
        """Return the conversation of a lane, the last compaction in place of all before it."""
        found: list[dict[str, JsonValue]] = []
        for entry in self.branch(lane):
            match entry.entry_type:
                case "message":
                    found.append(_object(entry.members["message"]))
                case "compaction":
                    found = [_summary(entry, "compactionSummary", "tokensBefore")]
                    tail = entry.members.get("retainedTail", [])
                    assert isinstance(tail, list), "checked with the entry"
                    found += map(_object, tail)
                case "branch_summary":
                    found.append(_summary(entry, "branchSummary", "fromId"))
                case _:
                    pass  # The other kinds of entries are not part of what was said.
        return found

    def _add(self, entry: Entry) -> None:
        if entry.lane is not None:
            self._check_lane(entry.lane)
            if entry.parent_id != self.lanes[entry.lane]:
                raise damaged("an entry that does not continue its lane")
        self._check_target(entry.parent_id)
        self._use(entry.entry_id)
        self._entries[entry.entry_id] = entry
        if entry.lane is not None:
            self.lanes[entry.lane] = entry.entry_id

    def _use(self, used_id: str) -> None:
        if used_id in self._used:
            raise damaged("an id that was used before")
        self._used.add(used_id)

    def _check_lane(self, lane: str) -> None:
        if lane not in self.lanes:
            raise damaged("a lane that is not there")

    def _check_target(self, entry_id: str | None) -> None:
        if entry_id is not None and entry_id not in self._entries:
            raise damaged("an entry that is not there")


def _summary(entry: Entry, role: str, member: str) -> dict[str, JsonValue]:
    message: dict[str, JsonValue] = {"role": role, "summary": entry.members["summary"]}
    if member in entry.members:
        message[member] = entry.members[member]
    return {**message, "timestamp": entry.timestamp}


def _object(value: JsonValue) -> dict[str, JsonValue]:
    assert isinstance(value, dict), "checked with the entry"
    return value
