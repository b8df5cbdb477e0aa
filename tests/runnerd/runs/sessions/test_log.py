"""Bytes of a versioned session: whole, torn, damaged."""

from typing import Any

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.sessions.log import looks_versioned, mark_of, scan
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.sessions.lines import ID, data, entry, header

LINES = (header(), entry(1, "a", None), entry(2, "b", "a", message={"id": "m", "text": "€"}))
WHOLE = data(*LINES).replace(b'"\\u20ac"', '"€"'.encode())


def test_whole_session_is_its_own_content() -> None:
    log = scan(WHOLE, ID)

    assert (log.content, log.needs_mending) == (WHOLE, False)
    assert [found["id"] for found in log.tree().messages()] == ["m-a", "m"]
    assert log.mark == mark_of(WHOLE)


def test_session_cut_at_every_byte_keeps_its_whole_lines_or_is_refused() -> None:
    borders = [place for place in range(1, len(WHOLE) + 1) if WHOLE[place - 1 : place] == b"\n"]
    for cut in range(len(WHOLE)):
        left = WHOLE[:cut]
        kept = max((border for border in borders if border <= cut), default=0)
        if cut + 1 in borders:
            # Only the line end is missing.
            assert scan(left, ID).content == WHOLE[: cut + 1]
        elif kept:
            log = scan(left, ID)
            assert (log.content, log.needs_mending) == (WHOLE[:kept], cut > kept)
        else:
            with refused(ErrorCode.SESSION_RESTORE_FAILED):
                scan(left, ID)


@pytest.mark.parametrize("tail", [b"\0" * 9, b" ", b"{", b'{"kind":"entry"', b"\xe2\x82"])
def test_unterminated_tail_that_is_no_json_is_torn(tail: bytes) -> None:
    log = scan(WHOLE + tail, ID)

    assert (log.content, log.needs_mending) == (WHOLE, True)


@pytest.mark.parametrize(
    "tail",
    [
        b"{\n",
        b"\n",
        b"\0\0\n",
        b"x\n",
        b"7",
        b"null\n",
        b'{"kind":"fact","seq":9,"fact":"name"}',
        b'{"kind":"fact","seq":3,"fact":"name","name":"\xff"}',
        b'{"kind":"fact","seq":3,"fact":"name","name":"x","y":1e400}\n',
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 100_000 + b"]" * 100_000 + b"\n",
    ],
)
def test_any_other_tail_is_damage(tail: bytes) -> None:
    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        scan(WHOLE + tail, ID)


def test_line_in_the_middle_is_never_skipped() -> None:
    first, second, third = WHOLE.splitlines(keepends=True)

    for broken in (first + third, first + third + second, first + b"\n" + second + third):
        with refused(ErrorCode.SESSION_RESTORE_FAILED):
            scan(broken, ID)


def test_unusual_json_is_read_as_it_is() -> None:
    odd = b'{"kind":"fact","seq":3,"fact":"name","name":"\\ud800","big":12345678901234567890123}\n'

    assert scan(WHOLE + odd, ID).tree().name == "\ud800"


@pytest.mark.parametrize(
    "first",
    [
        {},
        [],
        header(version=5),
        header(version=True),
        header(version="4"),
        header(kind="session"),
        header(id="other"),
        header(id=None),
        header(createdAt=-1),
        header(createdAt="now"),
        header(cwd=None),
        header(parentSessionId=7),
        header(legacyParentSessionPath=7),
        header(parentSessionId="a", legacyParentSessionPath="b"),
        header(metadata=[]),
        header(metadata=None),
    ],
)
def test_header_that_is_none_is_refused(first: Any) -> None:
    with refused(ErrorCode.SESSION_RESTORE_FAILED):
        scan(data(first), ID)


def test_marker_of_a_migration_is_believed_only_whole() -> None:
    marker = {
        "schemaVersion": 1,
        "sourceFormat": 3,
        "sourceSha256": "0" * 64,
        "complete": False,
        "backupFile": "b",
    }

    found = scan(data(header(metadata={"coremindMigration": marker, "k": 1})), ID).header.migration

    assert found is not None
    assert (found.source_sha256, found.is_complete, found.backup_file) == ("0" * 64, False, "b")
    for member, value in (("complete", 1), ("schemaVersion", True), ("sourceSha256", None)):
        odd = header(metadata={"coremindMigration": {**marker, member: value}})
        assert scan(data(odd), ID).header.migration is None
    assert scan(data(header(metadata={"coremindMigration": "x"})), ID).header.migration is None


def test_first_line_tells_whether_a_file_is_meant_as_versioned() -> None:
    assert looks_versioned(data(header(version=9)))
    assert looks_versioned(data(header())[:-1])
    for other in (b"", b"{", b"[]\n", b'{"type":"session"}\n', b"[" * 100_000):
        assert not looks_versioned(other)
