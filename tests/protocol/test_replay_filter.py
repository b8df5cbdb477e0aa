"""The replay filter never forgets an id, and has exactly one size."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import replay_filter
from protocol.errors import ErrorCode, PrpError
from protocol.limits import REPLAY_FILTER_BYTES


@given(st.lists(st.text(min_size=1, max_size=40), max_size=50))
def test_filter_contains_every_id_that_was_added(ids: list[str]) -> None:
    content = replay_filter.EMPTY
    for each in ids:
        content = replay_filter.with_id(content, each)

    assert all(replay_filter.may_contain(content, each) for each in ids)
    assert len(content) == REPLAY_FILTER_BYTES
    assert replay_filter.from_hex(replay_filter.to_hex(content)) == content


def test_empty_filter_contains_nothing() -> None:
    assert not any(replay_filter.may_contain(replay_filter.EMPTY, f"id_{n}") for n in range(1000))


def test_one_id_sets_the_bits_that_the_layout_names() -> None:
    digest = hashlib.sha256(
        b"paperclip-runner-command-replay-filter-v1\0\0\0\0\0\0\0\0\x09command_1"
    ).digest()
    positions = {value % 32768 for value in struct.unpack(">7I", digest[:28])}

    content = replay_filter.with_id(replay_filter.EMPTY, "command_1")

    assert {
        8 * index + bit for index, byte in enumerate(content) for bit in range(8) if byte >> bit & 1
    } == positions


def test_false_hits_stay_near_the_stated_rate() -> None:
    content = replay_filter.EMPTY
    for number in range(2_000):
        content = replay_filter.with_id(content, f"seen_{number}")

    hits = sum(replay_filter.may_contain(content, f"new_{number}") for number in range(10_000))

    assert hits < 30


@pytest.mark.parametrize("text", ["", "0" * 8191, "0" * 8193, "g" * 8192, "A" * 8192])
def test_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(PrpError) as caught:
        replay_filter.from_hex(text)

    assert caught.value.code is ErrorCode.STATE_CORRUPT
