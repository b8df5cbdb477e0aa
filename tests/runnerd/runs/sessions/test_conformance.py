"""What every backend does: one suite, run over files and over memory (durable-runs 7)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from protocol.base.clock import UnixMs
from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.errors import ErrorCode
from runnerd.runs.sessions.backend import SessionBackend
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.memory_backend import MemorySessions
from runnerd.runs.sessions.session import Compaction, Session, Sessions
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import CWD, ID, NOW, ids, message

Open = Callable[[], Session]


@pytest.fixture(params=["file", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> SessionBackend:
    if request.param == "memory":
        return MemorySessions()
    return FileSessions(PosixFilesystem(), SystemEntropy(), PosixLocks(), str(tmp_path / "folder"))


@pytest.fixture
def sessions(backend: SessionBackend) -> Sessions:
    return Sessions(backend, SystemEntropy())


@pytest.fixture
def reopen(sessions: Sessions) -> Open:
    return lambda: sessions.open(ID, CWD, NOW)


def test_messages_come_back_in_order_over_reopenings(reopen: Open) -> None:
    first = reopen()
    assert (first.is_new, first.messages(), first.seq) == (True, [], 0)

    assert first.append([message("a"), message("b")], NOW) == 2
    second = reopen()
    assert (second.is_new, second.messages()) == (False, [message("a"), message("b")])

    assert second.append([message("c")], NOW) == 3
    third = reopen()
    assert (third.is_new, third.messages(), third.seq) == (
        False,
        [message("a"), message("b"), message("c")],
        3,
    )


def test_empty_session_reopens_empty_and_not_new(reopen: Open) -> None:
    assert reopen().is_new

    again = reopen()

    assert (again.is_new, again.messages()) == (False, [])


def test_session_that_is_not_there_is_made_only_when_asked_for(sessions: Sessions) -> None:
    assert not sessions.exists(ID)

    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        sessions.open(ID, None, NOW)

    assert not sessions.exists(ID)
    sessions.open(ID, CWD, NOW)
    assert sessions.exists(ID)
    assert not sessions.open(ID, None, NOW).is_new


@pytest.mark.parametrize("session_id", ["", "..", "a/b", "../a", "a\n", "a.b", "ü", "a" * 161])
def test_id_that_is_no_plain_name_is_refused(backend: SessionBackend, session_id: str) -> None:
    sessions = Sessions(backend, SystemEntropy())

    with refused(ErrorCode.INVALID_SESSION_ID):
        sessions.exists(session_id)
    with refused(ErrorCode.INVALID_SESSION_ID):
        sessions.open(session_id, CWD, NOW)


def test_longest_id_is_a_name_that_every_file_can_have(sessions: Sessions) -> None:
    session = sessions.open("a" * 160, CWD, NOW)

    session.append([message("a")], NOW)

    assert ids(sessions.open("a" * 160, CWD, NOW)) == ["m-a"]


def test_second_writer_is_refused_while_the_first_writes(reopen: Open) -> None:
    first, second = reopen(), reopen()

    with first.writer(), refused(ErrorCode.SESSION_WRITE_LOCKED):
        second.writer()

    second.append([message("a")], NOW)


def test_handle_that_has_not_seen_another_s_writing_may_not_write(reopen: Open) -> None:
    first, stale = reopen(), reopen()
    first.append([message("a")], NOW)

    with refused(ErrorCode.SESSION_SNAPSHOT_STALE):
        stale.append([message("b")], NOW)

    assert ids(stale) == []
    assert ids(reopen()) == ["m-a"]
    first.append([message("b")], NOW)
    assert ids(reopen()) == ["m-a", "m-b"]


def test_lease_that_was_given_back_writes_nothing(reopen: Open) -> None:
    session = reopen()
    writer = session.writer()
    writer.close()
    writer.close()

    with refused(ErrorCode.SESSION_WRITE_LEASE_INVALID):
        writer.append([message("a")], NOW)

    assert ids(reopen()) == []
    session.append([message("b")], NOW)


def test_lease_is_given_back_when_its_block_fails(reopen: Open) -> None:
    session = reopen()

    with pytest.raises(KeyError), session.writer():
        raise KeyError

    session.append([message("a")], NOW)


def test_compaction_replaces_the_view_and_keeps_the_history(reopen: Open) -> None:
    session = reopen()
    session.append([message("a"), message("b")], NOW)
    made: list[Compaction] = []

    def summarise() -> Compaction:
        made.append(
            Compaction(
                summary="short",
                tokens_before=90,
                retained_tail=[message("b")],
                details={"range": ["a", "b"]},
            )
        )
        return made[-1]

    with session.writer() as writer:
        assert not writer.compact_when_over(100, 100, summarise, NOW)
        assert made == []
        assert writer.compact_when_over(101, 100, summarise, NOW)
        writer.append([message("c")], NOW)

    again = reopen()
    assert ids(again) == ["compactionSummary", "m-b", "m-c"]
    assert [found.entry_type for found in again.branch()] == [
        "message",
        "message",
        "compaction",
        "message",
    ]
    assert again.branch()[2].members["details"] == {"range": ["a", "b"]}
    assert again.messages() == session.messages()
    assert again.seq == 4


def test_lanes_names_labels_and_records_come_back(reopen: Open) -> None:
    session = reopen()
    with session.writer() as writer:
        first, second = writer.append([message("a"), message("b")], NOW)
        writer.move_lane("side", first)
        writer.append([message("c")], NOW, lane="side")
        writer.move_lane("main", first)
        writer.append([message("d")], NOW)
        writer.set_name("a name")
        writer.set_label(second, "off the way")
        writer.append_entry("model_change", {"provider": "p", "modelId": "m"}, NOW)
        writer.append_record("usage", {"usage": {"input": 1}}, NOW)
        writer.set_label(second, None)

    again = reopen()

    assert ids(again) == ["m-a", "m-d"]
    assert [found["id"] for found in again.messages("side")] == ["m-a", "m-c"]
    assert (again.tree.name, again.tree.labels, again.tree.lanes) == (
        "a name",
        {},
        session.tree.lanes,
    )
    assert again.tree.seq == session.tree.seq == 11


def test_members_that_are_absent_are_left_out(reopen: Open) -> None:
    absent: dict[str, Any] = {"id": "m", "a": UNSET, "b": [{"c": UNSET, "d": None}]}

    reopen().append([absent], NOW)

    assert reopen().messages() == [{"id": "m", "b": [{"d": None}]}]


def deep() -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(100):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"a": float("nan")}, ErrorCode.MESSAGE_INVALID),
        ({"a": float("inf")}, ErrorCode.MESSAGE_INVALID),
        ({"a": b"bytes"}, ErrorCode.MESSAGE_INVALID),
        ({"a": {1, 2}}, ErrorCode.MESSAGE_INVALID),
        ({"a": object()}, ErrorCode.MESSAGE_INVALID),
        ({1: "a"}, ErrorCode.MESSAGE_INVALID),
        (["a"], ErrorCode.MESSAGE_INVALID),
        ("text", ErrorCode.MESSAGE_INVALID),
        (deep(), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_message_that_is_not_plain_json_is_refused_and_nothing_is_added(
    reopen: Open, bad: Any, code: ErrorCode
) -> None:
    session = reopen()

    with refused(code):
        session.append([message("a"), bad], NOW)

    assert ids(session) == ids(reopen()) == []
    session.append([message("b")], NOW)


def test_wish_that_no_reader_would_accept_is_refused_and_nothing_is_added(reopen: Open) -> None:
    session = reopen()
    with session.writer() as writer:
        for wish in (
            lambda: writer.append([message("a")], NOW, lane="unknown"),
            lambda: writer.append([message("a")], UnixMs(-1)),
            lambda: writer.append_entry("custom", {}, NOW),
            lambda: writer.append_entry("other", {}, NOW),
            lambda: writer.append_record("other", {}, NOW),
            lambda: writer.append_record("usage", {}, NOW, lane="unknown"),
            lambda: writer.move_lane("main", "ghost"),
            lambda: writer.set_label("ghost", "x"),
        ):
            with refused(ErrorCode.MESSAGE_INVALID):
                wish()
        writer.append([], NOW)

    assert session.tree.seq == reopen().tree.seq == 0


def test_unusual_text_comes_back_as_it_was(reopen: Open) -> None:
    odd: dict[str, Any] = {"id": "\ud800", "line\u2028": "\x00\x85\n", "big": 2**70, "small": -1e-9}

    reopen().append([odd], NOW)

    assert reopen().messages() == [odd]
