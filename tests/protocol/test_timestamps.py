"""Instants and their one text form."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.base.clock import UnixMs
from protocol.timestamps import TIMESTAMP_PATTERN, rfc3339_ms, unix_ms_of

LAST = 253_402_300_799_999


def test_instant_is_spelled_with_three_digits_and_z() -> None:
    assert rfc3339_ms(UnixMs(0)) == "1970-01-01T00:00:00.000Z"
    assert rfc3339_ms(UnixMs(1_767_323_045_678)) == "2026-01-02T03:04:05.678Z"
    assert rfc3339_ms(UnixMs(1_767_323_045_000)) == "2026-01-02T03:04:05.000Z"
    assert rfc3339_ms(UnixMs(LAST)) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("unix_ms", [-1, LAST + 1, 2**53])
def test_instant_outside_the_calendar_is_a_value_error(unix_ms: int) -> None:
    with pytest.raises(ValueError):
        rfc3339_ms(UnixMs(unix_ms))


@given(st.integers(0, LAST))
def test_instant_survives_its_text(unix_ms: int) -> None:
    text = rfc3339_ms(UnixMs(unix_ms))

    assert unix_ms_of(text) == unix_ms
    assert re.fullmatch(TIMESTAMP_PATTERN, text)


@pytest.mark.parametrize(
    "text",
    [
        None,
        5,
        "",
        "2026-01-02",
        "2026-13-02T03:04:05.678Z",
        "2026-01-02T03:04:05.678",
        "2026-01-02T03:04:05.678+00:00",
        "2026-01-02T03:04:05.678Z\n",
        "٢٠٢٦-01-02T03:04:05.678Z",
        "1969-12-31T23:59:59.999Z",
    ],
)
def test_text_that_spells_no_instant_is_none(text: object) -> None:
    assert unix_ms_of(text) is None
