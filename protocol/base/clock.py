"""Instants as distinct types, and the one value that carries all clocks into a step.

It decides what an instant means. It refuses to read a clock.
"""

from typing import NewType

import msgspec

UnixMs = NewType("UnixMs", int)
"""Wall clock, milliseconds since 1970; shared between machines, may jump either way."""
MonoMs = NewType("MonoMs", int)
"""Local clock that counts suspension (CLOCK_BOOTTIME), milliseconds; never goes back."""


class Now(msgspec.Struct, frozen=True):
    """The two readings of one moment, taken together by the shell."""

    unix_ms: UnixMs
    mono_ms: MonoMs
