"""The tail of standard error keeps the last lines, within its bounds, without secrets."""

import pytest

from protocol.limits import (
    DIAGNOSTIC_BYTES_MAX,
    HARNESS_LINE_BYTES_MAX,
    STDERR_TAIL_BYTES_MAX,
    STDERR_TAIL_LINES_MAX,
)
from runnerd.core.inputs import HarnessLogs
from runnerd.harness.stderr_tail import OVERSIZED, StderrTail

KEY_BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
KEY_END = b"-----END OPENSSH PRIVATE KEY-----\n"


def logs(*pieces: bytes) -> HarnessLogs:
    tail = StderrTail()
    for piece in pieces:
        tail.push(piece)
    return tail.logs()


def test_tail_of_nothing_is_empty() -> None:
    assert logs() == HarnessLogs()


def test_tail_holds_every_line_of_little_output_with_the_unfinished_last() -> None:
    assert logs(b"one\r\nt", b"wo\n\nend") == HarnessLogs(
        lines=("one", "two", "", "end"), retained_bytes=9, dropped_lines=0
    )


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 65_536])
def test_tail_holds_the_last_lines_and_counts_the_others_however_they_come(
    piece_bytes: int,
) -> None:
    stream = b"".join(b"line %d\n" % number for number in range(5000))

    found = logs(*(stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)))

    expected = tuple(f"line {number}" for number in range(5000 - STDERR_TAIL_LINES_MAX, 5000))
    assert found.lines == expected
    assert found.dropped_lines == 5000 - STDERR_TAIL_LINES_MAX
    assert found.retained_bytes == sum(map(len, expected))


def test_tail_keeps_within_its_bytes_when_lines_are_long() -> None:
    found = logs(*(b"%d " % number + b"x" * 3000 + b"\n" for number in range(20)))

    assert found.retained_bytes == sum(len(line) for line in found.lines)
    assert STDERR_TAIL_BYTES_MAX - 3010 < found.retained_bytes <= STDERR_TAIL_BYTES_MAX
    assert found.lines[-1].startswith("19 ")
    assert found.dropped_lines == 20 - len(found.lines)


def test_long_line_is_cut_and_an_oversized_one_is_replaced_by_a_marker() -> None:
    found = logs(b"a" * 10_000 + b"\n" + b"b" * (HARNESS_LINE_BYTES_MAX + 1) + b"\nend\n")

    assert len(found.lines) == 3
    assert len(found.lines[0].encode()) <= DIAGNOSTIC_BYTES_MAX
    assert found.lines[1:] == (OVERSIZED.decode(), "end")
    assert found.dropped_lines == 0


def test_flood_without_a_line_end_is_one_marker() -> None:
    assert logs(*[b"x" * 65_536] * 64).lines == (OVERSIZED.decode(),)


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert logs(b"a\xffb\0\n").lines == ("a�b\0",)


def test_secret_in_the_tail_is_redacted_before_it_is_cut() -> None:
    secret = b"ghp_" + b"A1b2" * 9
    padding = b"x" * (DIAGNOSTIC_BYTES_MAX - 20)

    found = logs(b"the key is " + secret + b"\n", padding + b" " + secret + b"\n")

    assert "A1b2" not in "".join(found.lines)
    assert len(found.lines) == 2


def test_private_key_is_left_out_when_it_comes_in_one_piece() -> None:
    found = logs(b"before\n" + KEY_BEGIN + b"c2VjcmV0\n" * 4 + KEY_END + b"after\n")

    assert "c2VjcmV0" not in "".join(found.lines)
    assert (found.lines[0], found.lines[-1]) == ("before", "after")


@pytest.mark.parametrize("cut", [0, 20, 40, 60])
def test_private_key_is_left_out_when_its_first_line_has_left_the_tail(cut: int) -> None:
    body = b"c2VjcmV0\n" * (STDERR_TAIL_LINES_MAX * 3)
    stream = b"before\n" + KEY_BEGIN + body

    found = logs(stream[:cut], stream[cut:], body)

    assert "c2VjcmV0" not in "".join(found.lines)
    assert found.dropped_lines + len(found.lines) == STDERR_TAIL_LINES_MAX * 6 + 2


def test_private_key_is_left_out_when_it_follows_another_one() -> None:
    body = b"c2VjcmV0\n" * (STDERR_TAIL_LINES_MAX * 3)

    found = logs(KEY_BEGIN, body + KEY_END + KEY_BEGIN + body)

    assert "c2VjcmV0" not in "".join(found.lines)


def test_line_of_our_own_stands_by_itself() -> None:
    tail = StderrTail()
    tail.push(b"unfinished")
    tail.push_line("ours\nin one")

    assert tail.logs().lines == ("unfinished", "ours in one")
