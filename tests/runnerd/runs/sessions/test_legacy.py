"""Legacy files: what is refused before anything is written, and what the rest becomes."""

from typing import Any

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.sessions.legacy import convert, instant_ms, read_legacy
from runnerd.runs.sessions.log import encode_session, scan
from runnerd.runs.sessions.records import Header, mutation_members
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import (
    CREATED_AT,
    CWD,
    ENTRY_MS,
    ID,
    data,
    legacy,
    legacy_header,
    legacy_message,
    message,
)


def converted(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    mutations = convert(read_legacy(data(legacy_header(), *lines), ID))
    # What is made must be what a reader accepts.
    scan(encode_session(Header(session_id=ID, created_at=CREATED_AT, cwd=CWD), mutations), ID)
    return [mutation_members(mutation) for mutation in mutations]


def test_each_line_becomes_one_mutation() -> None:
    a, b, c = legacy_message("a", None), legacy_message("b", "a"), legacy_message("c", "a")

    assert converted(a, b, legacy("leaf", "l", "b", targetId="a"), c) == [
        {
            "kind": "entry",
            "lane": "main",
            "type": "message",
            "id": "a",
            "seq": 1,
            "parentId": None,
            "timestamp": ENTRY_MS,
            "message": message("a"),
        },
        {
            "kind": "entry",
            "lane": "main",
            "type": "message",
            "id": "b",
            "seq": 2,
            "parentId": "a",
            "timestamp": ENTRY_MS,
            "message": message("b"),
        },
        {"kind": "lane", "seq": 3, "lane": "main", "leafId": "a"},
        {
            "kind": "entry",
            "lane": "main",
            "type": "message",
            "id": "c",
            "seq": 4,
            "parentId": "a",
            "timestamp": ENTRY_MS,
            "message": message("c"),
        },
    ]


def test_what_hung_on_a_line_that_is_no_entry_hangs_on_what_that_stood_for() -> None:
    lines = converted(
        legacy_message("a", None),
        legacy("label", "l1", "a", targetId="a", label="  good \n"),
        legacy("session_info", "n1", "l1", name=" two\r\n lines "),
        legacy_message("b", "n1"),
        legacy("leaf", "f1", "b", targetId="l1"),
        legacy_message("c", "f1"),
        legacy("label", "l2", "c", targetId="n1", label=" "),
        legacy("leaf", "f2", "c", targetId=None),
        legacy_message("d", None),
    )

    assert lines[1] == {
        "kind": "fact",
        "seq": 2,
        "fact": "label",
        "targetId": "a",
        "label": "good",
    }
    assert lines[2] == {"kind": "fact", "seq": 3, "fact": "name", "name": "two  lines"}
    assert [lines[place]["parentId"] for place in (3, 5, 8)] == ["a", "a", None]
    assert lines[4] == {"kind": "lane", "seq": 5, "lane": "main", "leafId": "a"}
    assert lines[6] == {"kind": "fact", "seq": 7, "fact": "label", "targetId": "a"}
    assert lines[7] == {"kind": "lane", "seq": 8, "lane": "main", "leafId": None}


def test_members_that_nobody_knows_are_kept_and_none_takes_a_place_of_ours() -> None:
    [line] = converted(
        legacy("custom", "a", None, customType="t", x=[1], kind="evil", lane="evil", seq=9)
    )

    assert line == {
        "kind": "entry",
        "lane": "main",
        "type": "custom",
        "id": "a",
        "seq": 1,
        "parentId": None,
        "timestamp": ENTRY_MS,
        "customType": "t",
        "x": [1],
    }


def test_header_keeps_what_it_says() -> None:
    read = read_legacy(data(legacy_header(parentSession="/p", metadata={"k": 1})), ID)

    assert (read.cwd, read.created_at) == (CWD, CREATED_AT)
    assert (read.parent_session, read.metadata) == ("/p", {"k": 1})
    assert read_legacy(data(legacy_header(timestamp="once")), ID).created_at is None


def test_blank_lines_and_a_missing_last_line_end_are_harmless() -> None:
    plain = data(legacy_header(), legacy_message("a", None))
    first, second = plain.splitlines(keepends=True)

    odd = b"\n \t\r\n" + first + b"\r\n\n" + second[:-1]

    assert convert(read_legacy(odd, ID)) == convert(read_legacy(plain, ID))


HANGS_NOT_TOGETHER = {
    "an id twice": [legacy_message("a", None), legacy_message("a", "a")],
    "an id twice, once as a label": [
        legacy_message("a", None),
        legacy("label", "a", "a", targetId="a", label="x"),
    ],
    "no such parent": [legacy_message("a", "ghost")],
    "a parent that comes later": [legacy_message("a", "b"), legacy_message("b", None)],
    "its own parent": [legacy_message("a", "a")],
    "no such label target": [
        legacy_message("a", None),
        legacy("label", "l", "a", targetId="ghost", label="x"),
    ],
    "a label on the root": [
        legacy("session_info", "n", None, name="x"),
        legacy("label", "l", None, targetId="n", label="x"),
    ],
    "no such leaf": [legacy_message("a", None), legacy("leaf", "l", "a", targetId="ghost")],
    "a branch without a leaf": [
        legacy_message("a", None),
        legacy_message("b", "a"),
        legacy_message("c", "a"),
    ],
    "a second root without a leaf": [legacy_message("a", None), legacy_message("b", None)],
    "no message": [legacy("message", "a", None)],
    "a retained tail that is none": [
        legacy("compaction", "k", None, summary="s", retainedTail="t"),
    ],
    "no type": [{**legacy_message("a", None), "type": 7}],
    "no id": [{**legacy_message("a", None), "id": None}],
    "no time": [{**legacy_message("a", None), "timestamp": 7}],
    "no parent": [{key: v for key, v in legacy_message("a", None).items() if key != "parentId"}],
}


@pytest.mark.parametrize("lines", HANGS_NOT_TOGETHER.values(), ids=HANGS_NOT_TOGETHER)
def test_file_whose_lines_do_not_hang_together_is_refused_at_once(
    lines: list[dict[str, Any]],
) -> None:
    with refused(ErrorCode.SESSION_MIGRATION_INVALID):
        read_legacy(data(legacy_header(), *lines), ID)


NOT_CONVERTED = {
    "time": (legacy_message("a", None) | {"timestamp": "sometime"}, "invalid"),
    "negative time": (legacy_message("a", None) | {"timestamp": "1969-12-31T23:59:59Z"}, "invalid"),
    "type": (legacy("custom_message", "a", None, content="z"), "unsupported"),
    "leaf": (legacy("leaf", "a", None, targetId=7), "invalid"),
    "empty leaf": (legacy("leaf", "a", None, targetId=""), "invalid"),
    "label": (legacy("label", "a", None), "invalid"),
    "name": (legacy("session_info", "a", None), "invalid"),
    "summary": (legacy("branch_summary", "a", None, summary="s"), "invalid"),
}


@pytest.mark.parametrize(("line", "reason"), NOT_CONVERTED.values(), ids=NOT_CONVERTED)
def test_line_that_the_versioned_form_cannot_hold_is_refused_by_the_conversion(
    line: dict[str, Any], reason: str
) -> None:
    read = read_legacy(data(legacy_header(), line), ID)

    with refused(ErrorCode(f"session_migration_{reason}")):
        convert(read)


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"\n\n",
        b"{",
        b"[]\n",
        b"null\n",
        b"\xef\xbb\xbf" + data(legacy_header()),
        data(legacy_header()) + b'{"type":"mess',
        data(legacy_header()) + b"{oops\n" + data(legacy_message("a", None)),
        data(legacy_header()) + b'{"x":"\xff"}\n',
        data(legacy_header()) + b"[" * 100_000,
        data(legacy_header(), legacy_message("a", None)).replace(b'"m-a"', b"1e400"),
        data(legacy_message("a", None)),
        data(legacy_header(version=2)),
        data(legacy_header(version=True)),
        data(legacy_header(type="x")),
        data(legacy_header(id="other")),
        data(legacy_header(timestamp=7)),
        data(legacy_header(cwd=None)),
        data(legacy_header(parentSession=None)),
        data(legacy_header(metadata=[1])),
    ],
)
def test_file_that_is_no_legacy_session_is_refused(source: bytes) -> None:
    with refused(ErrorCode.SESSION_MIGRATION_INVALID):
        read_legacy(source, ID)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("2026-01-01T00:00:01.001Z", ENTRY_MS + 1),
        ("2026-01-01T02:00:01+02:00", ENTRY_MS),
        ("2026-01-01T00:00:01", ENTRY_MS),
        ("2026-01-01T00:00:01.0019999Z", ENTRY_MS + 1),
        ("1969-12-31T23:59:59.999Z", None),
        ("2026-02-30T00:00:00Z", None),
        ("", None),
    ],
)
def test_instant_is_milliseconds_or_nothing(text: str, expected: int | None) -> None:
    assert instant_ms(text) == expected
