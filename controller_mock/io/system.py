"""The real clock and the real source of entropy.

It decides which clocks the controller reads. It refuses to know what a reading is for.
"""

import os
import time

from protocol.base.clock import MonoMs, Now, UnixMs


class SystemClock:
    """Wall clock and CLOCK_BOOTTIME, which also counts a suspended machine (R10)."""

    def now(self) -> Now:
        """Return the present moment."""
        return Now(
            UnixMs(time.time_ns() // 1_000_000),
            MonoMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000),
        )


class SystemEntropy:
    """The kernel's random bytes."""

    def token_bytes(self, count: int) -> bytes:
        """Return ``count`` bytes that nobody can predict."""
        return os.urandom(count)
