"""Instants as the wire spells them.

It decides the one text form of a millisecond instant. It refuses to read a clock.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from protocol.base.clock import UnixMs

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_UNIX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
TIMESTAMP_PATTERN: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3})?Z"
"""Shape that events require; digits are not range-checked. Source: prp-wire 7.2."""
_INSTANT: Final = re.compile(TIMESTAMP_PATTERN, re.ASCII)


def rfc3339_ms(unix_ms: UnixMs) -> str:
    """Return an instant as `2026-01-02T03:04:05.678Z`.

    Args:
        unix_ms: from 0 to the end of the year 9999; anything else is a ValueError.

    Source: RFC 3339, prp-wire 3.2 and 5.1.
    """
    if not 0 <= unix_ms <= _MAX_UNIX_MS:
        raise ValueError("the instant lies outside 1970..9999")
    seconds, milliseconds = divmod(unix_ms, 1_000)
    moment = _EPOCH + timedelta(0, seconds, 1_000 * milliseconds)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def unix_ms_of(text: object) -> UnixMs | None:
    """Return the instant that ``text`` spells, or None if it spells none."""
    if not isinstance(text, str) or _INSTANT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    unix_ms = (moment - _EPOCH) // _MILLISECOND
    return UnixMs(unix_ms) if unix_ms >= 0 else None
