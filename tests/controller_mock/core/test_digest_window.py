"""The window of digests."""

from controller_mock.core.digest_window import DigestWindow, appended, digest_at, window_of
from protocol.ids import SourceSeq
from protocol.limits import DIGEST_WINDOW_EVENTS
from tests.controller_mock.core.world import digest_of


def _filled(count: int) -> DigestWindow:
    window = DigestWindow()
    for number in range(1, count + 1):
        window = appended(window, digest_of(number))
    return window


def test_digest_window_returns_each_digest_when_it_spans_chunks() -> None:
    window = _filled(600)

    found = [digest_at(window, SourceSeq(seq)) for seq in range(1, 601)]

    assert found == [digest_of(seq) for seq in range(1, 601)]


def test_digest_window_knows_nothing_when_asked_beyond_its_ends() -> None:
    for count in (0, 1, 255, 256, 257, 512):
        window = _filled(count)

        assert digest_at(window, SourceSeq(0)) is None
        assert digest_at(window, SourceSeq(count + 1)) is None
        assert digest_at(window, SourceSeq(count + 300)) is None


def test_digest_window_keeps_the_newest_when_it_is_full() -> None:
    digests = b"".join(digest_of(seq) for seq in range(1, DIGEST_WINDOW_EVENTS + 1))
    window = window_of(SourceSeq(1), digests)
    assert digest_at(window, SourceSeq(1)) == digest_of(1)

    for seq in range(DIGEST_WINDOW_EVENTS + 1, DIGEST_WINDOW_EVENTS + 257):
        window = appended(window, digest_of(seq))

    oldest = SourceSeq(257)
    assert digest_at(window, SourceSeq(oldest - 1)) is None
    assert digest_at(window, oldest) == digest_of(oldest)
    newest = SourceSeq(DIGEST_WINDOW_EVENTS + 256)
    assert digest_at(window, newest) == digest_of(newest)
    assert len(window.chunks) * 256 == DIGEST_WINDOW_EVENTS


def test_digest_window_continues_when_it_was_loaded_from_the_middle() -> None:
    loaded = window_of(SourceSeq(101), b"".join(digest_of(seq) for seq in range(101, 800)))

    longer = appended(loaded, digest_of(800))

    assert digest_at(longer, SourceSeq(100)) is None
    assert [digest_at(longer, SourceSeq(seq)) for seq in (101, 356, 357, 799, 800)] == [
        digest_of(seq) for seq in (101, 356, 357, 799, 800)
    ]


def test_digest_window_is_cut_when_more_is_loaded_than_it_holds() -> None:
    count = DIGEST_WINDOW_EVENTS + 300
    window = window_of(SourceSeq(1), b"".join(digest_of(seq) for seq in range(1, count + 1)))

    assert digest_at(window, SourceSeq(256)) is None
    assert digest_at(window, SourceSeq(257)) == digest_of(257)
    assert digest_at(window, SourceSeq(count)) == digest_of(count)
