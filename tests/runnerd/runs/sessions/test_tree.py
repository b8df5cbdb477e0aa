"""Which mutation may follow, and which conversation a lane shows."""

from typing import Any

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.sessions.records import mutation_members, read_mutation
from runnerd.runs.sessions.tree import SessionTree
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import ENTRY_MS, entry


def tree_of(*lines: dict[str, Any]) -> SessionTree:
    tree = SessionTree()
    for line in lines:
        tree.apply(read_mutation(line))
    return tree


def lane(seq: int, name: str, leaf: str | None) -> dict[str, Any]:
    return {"kind": "lane", "seq": seq, "lane": name, "leafId": leaf}


def fact(seq: int, what: str, **members: Any) -> dict[str, Any]:
    return {"kind": "fact", "seq": seq, "fact": what, **members}


def record(seq: int, record_id: str, **members: Any) -> dict[str, Any]:
    return {
        "kind": "record",
        "seq": seq,
        "id": record_id,
        "lane": "main",
        "type": "usage",
        "timestamp": ENTRY_MS,
        **members,
    }


def compaction(seq: int, entry_id: str, parent: str | None, **members: Any) -> dict[str, Any]:
    line = entry(seq, entry_id, parent, type="compaction", summary="sum", **members)
    del line["message"]
    return line


def shown(tree: SessionTree, name: str = "main") -> list[Any]:
    return [found.get("id", found["role"]) for found in tree.messages(name)]


def test_conversation_is_the_branch_from_the_root_to_the_leaf_of_main() -> None:
    tree = tree_of(
        entry(1, "a", None), entry(2, "b", "a"), lane(3, "main", "a"), entry(4, "c", "a")
    )

    assert shown(tree) == ["m-a", "m-c"]
    assert (tree.seq, tree.seq_mark(), tree.entry_count) == (4, 4, 3)


def test_lane_moved_to_the_root_begins_a_conversation_anew() -> None:
    tree = tree_of(entry(1, "a", None), lane(2, "main", None), entry(3, "b", None))

    assert shown(tree) == ["m-b"]


def test_lanes_go_on_beside_each_other() -> None:
    tree = tree_of(
        entry(1, "a", None),
        lane(2, "side", "a"),
        entry(3, "b", "a", lane="side"),
        entry(4, "c", "a"),
    )

    assert (shown(tree), shown(tree, "side")) == (["m-a", "m-c"], ["m-a", "m-b"])
    assert shown(tree, "unknown") == []


def test_entry_without_a_lane_moves_none() -> None:
    branch = entry(2, "b", "a")
    del branch["lane"]
    tree = tree_of(entry(1, "a", None), branch, entry(3, "c", "a"))

    assert shown(tree) == ["m-a", "m-c"]


def test_last_compaction_replaces_all_before_it_and_keeps_its_tail() -> None:
    tree = tree_of(
        entry(1, "a", None),
        compaction(2, "k", "a"),
        entry(3, "b", "k"),
        compaction(4, "l", "b", retainedTail=[{"id": "t", "role": "user"}], tokensBefore=9),
        entry(5, "c", "l"),
    )

    assert shown(tree) == ["compactionSummary", "t", "m-c"]
    assert tree.messages()[0] == {
        "role": "compactionSummary",
        "summary": "sum",
        "tokensBefore": 9,
        "timestamp": ENTRY_MS,
    }
    assert [found.entry_id for found in tree.branch()] == ["a", "k", "b", "l", "c"]


def test_branch_summary_is_part_of_the_conversation_and_other_entries_are_not() -> None:
    summary = entry(2, "s", "a", type="branch_summary", summary="went wrong", fromId="x")
    custom = entry(3, "u", "s", type="custom", customType="note")
    tree = tree_of(entry(1, "a", None), summary, custom)

    assert shown(tree) == ["m-a", "branchSummary"]


def test_sequence_mark_counts_the_conversation_and_not_facts() -> None:
    tree = tree_of(entry(1, "a", None), fact(2, "name", name="n"))

    assert (tree.seq, tree.seq_mark()) == (2, 1)
    assert SessionTree().seq_mark() == 0


def test_facts_hold_until_they_are_taken_away() -> None:
    lines = [
        entry(1, "a", None),
        fact(2, "name", name="one"),
        fact(3, "label", targetId="a", label="good"),
    ]

    held = tree_of(*lines)
    gone = tree_of(*lines, fact(4, "name"), fact(5, "label", targetId="a"))

    assert (held.name, held.labels) == ("one", {"a": "good"})
    assert (gone.name, gone.labels) == (None, {})


@pytest.mark.parametrize(
    "line",
    [
        entry(1, "b", "a"),
        entry(3, "b", "a"),
        entry(2, "a", "a"),
        entry(2, "r", None),
        entry(2, "b", None),
        entry(2, "b", "ghost"),
        entry(2, "b", "a", lane="unknown"),
        lane(2, "main", "ghost"),
        fact(2, "label", targetId="ghost", label="x"),
        record(2, "a"),
        record(2, "q", lane="unknown"),
        {key: value for key, value in entry(2, "b", "ghost").items() if key != "lane"},
    ],
)
def test_mutation_that_cannot_follow_is_refused_and_changes_nothing(line: dict[str, Any]) -> None:
    tree = tree_of(entry(1, "a", None))

    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        tree.apply(read_mutation(line))

    assert (tree.seq, tree.entry_count, tree.lanes) == (1, 1, {"main": "a"})
    tree.apply(read_mutation(entry(2, "b", "a")))


@pytest.mark.parametrize(
    "line",
    [
        entry(1, "a", None),
        entry(1, "a", None, extra={"kept": [1, None]}),
        lane(1, "main", None),
        fact(1, "name"),
        fact(1, "name", name=""),
        fact(1, "label", targetId="a", label="x"),
        record(1, "r", usage={"input": 1}),
    ],
)
def test_mutation_is_written_as_it_was_read(line: dict[str, Any]) -> None:
    assert mutation_members(read_mutation(line)) == line


@pytest.mark.parametrize(
    "line",
    [
        [],
        "text",
        None,
        {},
        {"kind": "entry"},
        entry(0, "a", None),
        entry(2**53, "a", None),
        entry(1, "a", None) | {"seq": True},
        entry(1, "a", None) | {"seq": 1.5},
        entry(1, "a", None) | {"seq": "1"},
        entry(1, "a", None, type="custom_message"),
        entry(1, "a", None, type=7),
        entry(1, "a", None) | {"id": 7},
        entry(1, "a", None) | {"parentId": 7},
        entry(1, "a", None, lane=None),
        entry(1, "a", None, timestamp=-1),
        entry(1, "a", None, timestamp="now"),
        entry(1, "a", None, message=None),
        entry(1, "a", None, type="custom"),
        entry(1, "a", None, type="compaction", summary=None),
        entry(1, "a", None, type="compaction", summary="s", retainedTail=["t"]),
        entry(1, "a", None, type="branch_summary"),
        {key: value for key, value in entry(1, "a", None).items() if key != "parentId"},
        lane(1, "main", None) | {"lane": None},
        {"kind": "lane", "seq": 1, "lane": "main"},
        fact(1, "colour"),
        fact(1, "name", name=None),
        fact(1, "label", label="x"),
        record(1, "r", type="other"),
        record(1, "r", lane=None),
        {"kind": "other", "seq": 1},
    ],
)
def test_line_that_is_no_mutation_is_refused(line: Any) -> None:
    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        read_mutation(line)
