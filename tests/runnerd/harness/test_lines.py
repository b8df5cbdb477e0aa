"""Lines are cut at LF and nowhere else, within the bound, each exactly once."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from runnerd.harness.lines import LineSplitter


def splitter(*pieces: bytes, line_bytes_max: int = 8) -> LineSplitter:
    made = LineSplitter(line_bytes_max)
    for piece in pieces:
        made.push(piece)
    return made


def test_lines_come_out_in_order_without_their_ends() -> None:
    lines = splitter(b"one\ntwo\r\n\nlast")

    assert lines.take(9, 99) == ("one", "two", "")
    assert lines.take(9, 99) == ()


def test_lines_do_not_depend_on_where_the_stream_is_cut() -> None:
    whole = b"one\r\n\xc3\xa4\r\n\r\r\nend\n"

    lines = splitter(*(bytes([byte]) for byte in whole))

    assert lines.take(9, 99) == ("one", "ä", "\r", "end")


@given(
    text=st.lists(st.binary(max_size=6), max_size=20),
    cuts=st.lists(st.integers(0, 160), max_size=8),
    lines_max=st.integers(1, 4),
    bytes_max=st.integers(0, 12),
)
def test_every_line_is_taken_exactly_once_however_it_is_cut_and_asked_for(
    text: list[bytes], cuts: list[int], lines_max: int, bytes_max: int
) -> None:
    stream = b"".join(line + b"\n" for line in text)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    lines = splitter(*(stream[a:b] for a, b in itertools.pairwise(edges)))

    taken: list[str] = []
    while more := lines.take(lines_max, bytes_max):
        assert len(more) <= lines_max
        taken += more

    expected = stream.split(b"\n")[:-1]
    assert taken == [line.removesuffix(b"\r").decode("utf-8", "replace") for line in expected]


def test_take_stops_before_the_line_that_would_pass_the_bytes_asked_for() -> None:
    lines = splitter(b"aa\nbb\ncc\n")

    assert lines.take(9, 5) == ("aa", "bb")
    assert lines.take(9, 5) == ("cc",)


def test_take_gives_a_line_alone_when_it_is_longer_than_asked_for() -> None:
    lines = splitter(b"aaaaaa\nb\n")

    assert lines.take(9, 1) == ("aaaaaa",)


def test_bytes_that_are_not_utf_8_are_replaced_and_nul_is_kept() -> None:
    assert splitter(b"a\xff\0b\n").take(9, 99) == ("a�\0b",)


def test_line_of_exactly_the_bound_is_taken_with_either_line_end() -> None:
    lines = splitter(b"12345678\n", b"12345678", b"\r", b"\n")

    assert lines.take(9, 99) == ("12345678", "12345678")
    assert not lines.is_overlong


def test_line_beyond_the_bound_is_dropped_with_all_that_follows() -> None:
    lines = splitter(b"first\n123456789\nafter\n", b"later\n")

    assert lines.take(9, 99) == ("first",)
    assert lines.is_overlong


def test_line_beyond_the_bound_is_seen_before_it_ends() -> None:
    assert splitter(b"12345678", b"9").is_overlong
    assert splitter(b"12345678\r", b"9").is_overlong
    assert not splitter(b"12345678\r").is_overlong


def test_unfinished_line_is_a_line_when_the_stream_ended_on_purpose() -> None:
    lines = splitter(b"one\ntw")

    lines.finish_last()

    assert lines.take(9, 99) == ("one", "tw")
    assert lines.take_torn() == ""


def test_unfinished_line_is_torn_when_the_stream_was_cut_off() -> None:
    lines = splitter(b"one\ntw")

    assert lines.take_torn() == "tw"
    lines.finish_last()
    assert lines.take(9, 99) == ("one",)
