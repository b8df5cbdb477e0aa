"""Every pair of what the public and the versioned name hold, and what opening then does."""

import hashlib
from typing import Any, TypeAlias

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.layout import (
    Absent,
    Legacy,
    Place,
    Plan,
    PublicFound,
    Versioned,
    VersionFound,
    decide,
    is_version_folder,
    place_of,
    session_of_public,
    session_of_version,
)
from runnerd.runs.sessions.legacy import read_legacy
from runnerd.runs.sessions.log import scan
from runnerd.runs.sessions.records import Header
from tests.runnerd.runs.sessions.lines import (
    CREATED_AT,
    CWD,
    ID,
    data,
    entry,
    header,
    legacy_header,
    legacy_message,
)

PLACE = Place("--workspace-demo--", f"2026-01-01T00-00-00-000Z_{ID}.jsonl")
SOURCE = data(legacy_header(), legacy_message("a", None))
INVALID = PrpError(ErrorCode.SESSION_MIGRATION_INVALID, "no session")
DAMAGED = PrpError(ErrorCode.SESSION_RESTORE_FAILED, "damaged")


def marked(*, is_complete: bool, source: bytes = SOURCE) -> dict[str, Any]:
    marker = {
        "schemaVersion": 1,
        "sourceFormat": 3,
        "sourceSha256": hashlib.sha256(source).hexdigest(),
        "complete": is_complete,
        "backupFile": f"{ID}.jsonl.v3.backup",
    }
    return header(metadata={"coremindMigration": marker})


PLAIN = data(header(), entry(1, "a", None))
LONGER = data(header(), entry(1, "a", None), entry(2, "b", "a"))
OTHER = data(header(), entry(1, "z", None))
BEGUN = data(marked(is_complete=False))
BEGUN_FROM_ANOTHER = data(marked(is_complete=False, source=b"another"))
MADE = data(marked(is_complete=True), entry(1, "a", None), entry(2, "b", "a"))
MADE_IN_PART = data(marked(is_complete=True))
MADE_FROM_ANOTHER = data(marked(is_complete=True, source=b"another"), entry(1, "a", None))
TORN = PLAIN + b'{"kind":'


def versioned(content: bytes | PrpError, inode: int) -> Versioned:
    log = content if isinstance(content, PrpError) else scan(content, ID)
    return Versioned((1, inode), log)


LEGACY = Legacy(read_legacy(SOURCE, ID))
NEITHER = Legacy(INVALID)
CONFLICT, RESTORE = ErrorCode.SESSION_LAYOUT_CONFLICT, ErrorCode.SESSION_RESTORE_FAILED

Row: TypeAlias = tuple[
    str, PublicFound, bytes | PrpError | None, int, str | ErrorCode, bytes | None
]
"""A name, what the public and the versioned name hold, the latter's inode, what comes of it,
and whose content is opened."""

TABLE: list[Row] = [
    ("nothing", Absent(), None, 0, "create", None),
    ("version alone", Absent(), PLAIN, 2, "open", PLAIN),
    ("complete version alone", Absent(), MADE, 2, "open", MADE),
    ("torn version alone", Absent(), TORN, 2, "open", PLAIN),
    ("begun version alone", Absent(), BEGUN, 2, CONFLICT, None),
    ("damaged version alone", Absent(), DAMAGED, 2, RESTORE, None),
    ("legacy alone", LEGACY, None, 0, "migrate", None),
    ("legacy, begun from it", LEGACY, BEGUN, 2, "migrate", BEGUN),
    ("legacy, begun from another", LEGACY, BEGUN_FROM_ANOTHER, 2, CONFLICT, None),
    ("legacy, made from it", LEGACY, MADE, 2, "open", MADE),
    ("legacy, made from it in part", LEGACY, MADE_IN_PART, 2, CONFLICT, None),
    ("legacy, made from another", LEGACY, MADE_FROM_ANOTHER, 2, CONFLICT, None),
    ("legacy, never made from any", LEGACY, PLAIN, 2, CONFLICT, None),
    ("legacy, damaged version", LEGACY, DAMAGED, 2, CONFLICT, None),
    ("neither alone", NEITHER, None, 0, ErrorCode.SESSION_MIGRATION_INVALID, None),
    ("neither, whole version", NEITHER, PLAIN, 2, CONFLICT, None),
    ("neither, begun version", NEITHER, BEGUN, 2, CONFLICT, None),
    ("neither, damaged version", NEITHER, DAMAGED, 2, CONFLICT, None),
    ("public alone", versioned(PLAIN, 1), None, 0, "open", PLAIN),
    ("begun public alone", versioned(BEGUN, 1), None, 0, CONFLICT, None),
    ("damaged public alone", versioned(DAMAGED, 1), None, 0, RESTORE, None),
    ("one file", versioned(PLAIN, 1), PLAIN, 1, "settled", PLAIN),
    ("one file, made", versioned(MADE, 1), MADE, 1, "settled", MADE),
    ("one torn file", versioned(TORN, 1), TORN, 1, "open", PLAIN),
    ("one file without a line end", versioned(PLAIN[:-1], 1), PLAIN[:-1], 1, "open", PLAIN),
    ("one begun file", versioned(BEGUN, 1), BEGUN, 1, CONFLICT, None),
    ("one damaged file", versioned(DAMAGED, 1), DAMAGED, 1, RESTORE, None),
    ("two equal files", versioned(PLAIN, 1), PLAIN, 2, "open", PLAIN),
    ("public goes on", versioned(LONGER, 1), PLAIN, 2, "open", LONGER),
    ("version goes on", versioned(PLAIN, 1), LONGER, 2, "open", LONGER),
    ("torn public, mended version", versioned(TORN, 1), PLAIN, 2, "open", PLAIN),
    ("two histories", versioned(OTHER, 1), LONGER, 2, CONFLICT, None),
    ("public made, version begun", versioned(MADE, 1), BEGUN, 2, CONFLICT, None),
    ("two begun files", versioned(BEGUN, 1), BEGUN, 2, CONFLICT, None),
    ("public whole, version damaged", versioned(PLAIN, 1), DAMAGED, 2, CONFLICT, None),
    ("public damaged, version whole", versioned(DAMAGED, 1), PLAIN, 2, CONFLICT, None),
    ("two damaged files", versioned(DAMAGED, 1), DAMAGED, 2, CONFLICT, None),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_opening_does_what_the_table_says(row: Row) -> None:
    _, public, version, inode, expected, content = row
    found = () if version is None else (VersionFound(PLACE, versioned(version, inode)),)

    plan = decided(public, found)

    if isinstance(plan, ErrorCode):
        assert plan is expected
    else:
        assert ("settled" if plan.is_settled else plan.step.value) == expected
        assert (None if plan.log is None else plan.log.content) == content
        assert plan.place == (PLACE if found else None)
        assert (plan.legacy is not None) == (expected == "migrate")


def decided(public: PublicFound, versions: tuple[VersionFound, ...]) -> Plan | ErrorCode:
    try:
        return decide(public, versions)
    except PrpError as error:
        return error.code


@pytest.mark.parametrize("public", [Absent(), LEGACY, NEITHER, versioned(PLAIN, 9)])
def test_several_versions_are_a_conflict(public: PublicFound) -> None:
    two = tuple(
        VersionFound(Place(PLACE.folder, name), versioned(PLAIN, inode))
        for inode, name in enumerate(("one", "two"))
    )

    assert decided(public, two) is CONFLICT


def test_several_versions_are_none_when_one_is_the_public_file() -> None:
    other = VersionFound(Place("--x--", PLACE.name), versioned(DAMAGED, 2))

    plan = decide(versioned(PLAIN, 1), (other, VersionFound(PLACE, versioned(PLAIN, 1))))

    assert (plan.is_settled, plan.place) == (True, PLACE)


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/workspace/demo", "--workspace-demo--"),
        ("workspace/demo", "--workspace-demo--"),
        ("C:\\work\\demo", "--C--work-demo--"),
        ("\\\\host\\demo", "---host-demo--"),
        ("//two", "---two--"),
        ("", "----"),
        ("/", "----"),
    ],
)
def test_versioned_folder_is_named_after_the_working_directory(cwd: str, folder: str) -> None:
    place = place_of(Header(session_id=ID, created_at=CREATED_AT, cwd=cwd))

    assert place == Place(folder, "2026-01-01T00-00-00-000Z_s1.jsonl")
    assert is_version_folder(folder)


def test_time_beyond_the_calendar_is_still_a_name() -> None:
    place = place_of(Header(session_id=ID, created_at=2**53 - 1, cwd=CWD))

    assert session_of_version(place.name) == ID


@pytest.mark.parametrize(
    ("name", "session_id"),
    [
        ("t_s1.jsonl", "s1"),
        ("t_a_b.jsonl", "a_b"),
        ("t_.jsonl", None),
        ("t.jsonl", None),
        ("t_s1.json", None),
        ("t_s1.jsonl.tmp", None),
        ("t_a.b.jsonl", None),
    ],
)
def test_versioned_name_tells_whose_it_is(name: str, session_id: str | None) -> None:
    assert session_of_version(name) == session_id


def test_public_name_tells_whose_it_is() -> None:
    assert session_of_public("a_b-1.jsonl") == "a_b-1"
    for other in ("s1", ".jsonl", "s1.jsonl.v3.backup", ".s1.jsonl", "a b.jsonl"):
        assert session_of_public(other) is None
