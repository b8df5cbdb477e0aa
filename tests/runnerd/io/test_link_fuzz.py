"""Tests that no bytes whatever make a link raise, at any moment and cut anywhere."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.envelope import Ping, Revoke
from protocol.ids import RevocationEpoch
from runnerd.io.link import Phase
from tests.runnerd.io.links import Pair
from tests.runnerd.peer import Tamper

PHASES = (Phase.CARRIER, Phase.CHALLENGE, Phase.WELCOME, Phase.OPEN)


def pair_in(phase: Phase) -> tuple[Pair, bytes]:
    """Return a pair whose link waits in a phase, and the honest bytes that it waits for."""
    pair = Pair(tamper=Tamper())
    while True:
        pair.peer.feed(b"".join(pair.link.outgoing()))
        if pair.peer.binding is not None and phase is Phase.OPEN:
            pair.peer.say(Ping())
            pair.peer.say(Revoke(RevocationEpoch(2)))
        honest = pair.peer.outgoing()
        if pair.link.phase is phase or not honest:
            return pair, honest
        pair.feed_raw(honest)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the pieces of ``data`` between places, which count from its end round."""
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[i:j] for i, j in zip([0, *at], [*at, len(data)], strict=True)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(PHASES), st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=4))
def test_arbitrary_bytes_end_a_link_or_leave_it_waiting(
    phase: Phase, data: bytes, places: list[int]
) -> None:
    pair, _ = pair_in(phase)
    told = len(pair.facts)

    pair.feed_raw(data, lambda whole: cut(whole, places))
    pair.link.outgoing()

    assert len(pair.facts) == told, "nothing that was not authenticated is told"
    assert pair.link.failure is None or pair.link.outgoing() == []


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(PHASES),
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 255)), min_size=1, max_size=3),
    st.lists(st.integers(0, 4_000), max_size=4),
)
def test_changed_bytes_end_a_link_or_change_nothing_that_is_told(
    phase: Phase, changes: list[tuple[int, int]], places: list[int]
) -> None:
    honest_pair, honest = pair_in(phase)
    honest_pair.feed_raw(honest)
    pair, data = pair_in(phase)
    changed = bytearray(data)
    for place, flip in changes:
        if changed:
            changed[place % len(changed)] ^= flip

    pair.feed_raw(bytes(changed), lambda whole: cut(whole, places))
    pair.link.outgoing()

    expected = [type(fact) for fact in honest_pair.facts]
    assert [type(fact) for fact in pair.facts] == expected[: len(pair.facts)]
