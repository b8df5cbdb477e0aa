"""One simulated machine: its clocks, its entropy, its disk and the lock on its state directory.

It decides what a process on it reads from clock and entropy. It refuses to know what the
process does.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.errors import ErrorCode, PrpError
from tests.simulator.disk import Disk, Mode

EPOCH_MS: Final = 1_800_000_000_000
"""Wall clock of the world at its beginning."""
BOOT_MS: Final = 1_000_000
_PPM: Final = 1_000_000


class Machine:
    """Time moves only through `pass_time`, `suspend` and `step_wall`."""

    def __init__(self, disk_mode: Mode, seed: int, drift_ppm: int = 0) -> None:
        self.disk = Disk(disk_mode)
        self._seed = seed
        self._drift_ppm = drift_ppm
        self._drawn = 0
        self._elapsed_ms = 0
        self._wall_offset_ms = 0
        self._suspended_ms = 0
        self._owner: object = None
        self._now: Now | None = None
        """What the clocks say, until one of them moves."""

    # --- clock ----------------------------------------------------------------------------

    def now(self) -> Now:
        """Return wall clock and suspend-aware clock, as the product reads them together."""
        if self._now is None:
            boot = self.boot_ms
            unix = EPOCH_MS + boot - BOOT_MS + self._wall_offset_ms
            self._now = Now(UnixMs(unix), MonoMs(boot))
        return self._now

    @property
    def boot_ms(self) -> int:
        """CLOCK_BOOTTIME."""
        elapsed = self._elapsed_ms
        return BOOT_MS + elapsed + elapsed * self._drift_ppm // _PPM

    @property
    def mono_ms(self) -> int:
        """CLOCK_MONOTONIC, which stands still while the machine is suspended."""
        return self.boot_ms - self._suspended_ms

    def pass_time(self, milliseconds: int) -> None:
        """Let all clocks go on."""
        self._elapsed_ms += milliseconds
        self._now = None

    def suspend(self, milliseconds: int) -> None:
        """Let wall and boot time go on while nothing runs."""
        before = self.boot_ms
        self._elapsed_ms += milliseconds
        self._suspended_ms += self.boot_ms - before
        self._now = None

    def step_wall(self, milliseconds: int) -> None:
        """Set the wall clock forwards or back; no kernel takes an instant before 1970."""
        self._wall_offset_ms += max(milliseconds, -self.now().unix_ms)
        self._now = None

    def set_wall_right(self) -> None:
        """Let the wall clock agree with the world's again."""
        self._wall_offset_ms = self._elapsed_ms - (self.boot_ms - BOOT_MS)
        self._now = None

    # --- entropy ----------------------------------------------------------------------------

    def token_bytes(self, count: int) -> bytes:
        """Return bytes that follow from the seed and never repeat."""
        self._drawn += 1
        text = b"%d/%d" % (self._seed, self._drawn)
        return hashlib.blake2b(text, digest_size=count).digest()

    # --- the lock ---------------------------------------------------------------------------

    def lock_of(self, owner: object) -> "Callable[[str], Lock]":
        """Return how the process ``owner`` takes the lock on the state directory."""

        def take(path: str) -> Lock:
            if self._owner is not None:
                raise PrpError(ErrorCode.STATE_LOCKED, path)
            self._owner = owner
            return Lock(self, owner)

        return take

    def process_ended(self, owner: object) -> None:
        """Drop the lock with its holder, as the kernel does."""
        if self._owner is owner:
            self._owner = None


class Lock:
    """A held lock."""

    def __init__(self, machine: Machine, owner: object) -> None:
        self._machine = machine
        self._owner = owner

    def release(self) -> None:
        """Give the directory up."""
        self._machine.process_ended(self._owner)
