"""Framing keeps different lists of parts apart."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from protocol.digest import framed, sha256_label

parts_lists = st.lists(st.binary(max_size=12), max_size=4)


def test_framed_writes_domain_zero_and_each_part_behind_its_length() -> None:
    assert framed("d", b"ab", b"") == b"d\0" + bytes(7) + b"\x02ab" + bytes(8)


@given(parts_lists, parts_lists)
def test_framed_differs_when_the_parts_differ(left: list[bytes], right: list[bytes]) -> None:
    assert (framed("d", *left) == framed("d", *right)) == (left == right)


def test_label_is_the_hex_digest_behind_the_name_of_the_hash() -> None:
    assert sha256_label(b"x") == "sha256:" + hashlib.sha256(b"x").hexdigest()
