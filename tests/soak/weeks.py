"""Three weeks of one run: renewals, quiet, lost replies, broken connections, keys that age (T04).

It decides what happens when. It refuses to judge the machine it runs on: how long this takes is a
figure of `./dev bench`, how much memory it takes is told and judged by a test.
"""

import gc
import os
import random
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.core import inputs as facts
from controller_mock.core.state import RunConfig
from controller_mock.core.step import next_deadline as controller_deadline
from protocol.base.clock import MonoMs, Now, UnixMs
from runnerd.core.inputs import HarnessOutput, TimePassed
from runnerd.core.state import Settings
from runnerd.core.step import next_deadline as runner_deadline
from runnerd.io.link import Link
from tests.runnerd.core.world import PREPARE, SETTINGS
from tests.soak.ends import Broken, Controller, Entropy, RunnerEnd, Wire

DAY_MS: Final = 24 * 3_600_000
WEEK_MS: Final = 7 * DAY_MS
WEEKS: Final = 3
LEASE_MS: Final = 300_000
LINE_EVERY_MS: Final = 6 * 3_600_000
"""The turn is quiet in between."""
CUT_EVERY_MS: Final = 2 * 3_600_000
LOST_REPLIES_PERCENT: Final = 2
WALL: Final = 1_800_000_000_000
DRIFT_PPM: Final = 200
"""The runner's own clock is so much faster; its wall clock is kept right, within a second."""
WALL_ERROR_MS: Final = 900


class Told(msgspec.Struct, kw_only=True, rename="camel"):
    """What the weeks were like."""

    virtual_days: float = 0
    seconds: float = 0
    renewals: int = 0
    connections: int = 0
    lost_replies: int = 0
    keys_outlived: int = 0
    """Connections that the runner replaced because their keys were old (R21)."""
    programs_started: int = 0
    events: int = 0
    oldest_key_hours: float = 0
    frames_per_key_max: int = 0
    kib_after_each_week: list[int] = msgspec.field(default_factory=list[int])


class Weeks:
    """Two cores, one wire, one clock."""

    def __init__(self, seed: int, settings: Settings = SETTINGS) -> None:
        self._random = random.Random(seed)
        self._ms = 0
        self._error_ms = 0
        entropy = Entropy()
        config = RunConfig(
            identity=settings.identity,
            runner_version=settings.runner_version,
            runner_digest=settings.runner_digest,
            lease_ttl_ms=LEASE_MS,
        )
        self.told = Told()
        self._wire: Wire | None = None
        self._born_ms = 0
        self._commands = 1
        self.controller = Controller(config, entropy)
        self.controller.issue(self._there())
        self.runner = RunnerEnd(settings, entropy, self._here())
        self.runner.dials = self._dialled
        if self.runner.link is not None:
            self._dialled(self.runner.link)

    # --- clocks -----------------------------------------------------------------------------

    def _here(self) -> Now:
        mono = self._ms + self._ms * DRIFT_PPM // 1_000_000
        return Now(UnixMs(WALL + self._ms + self._error_ms), MonoMs(mono))

    def _there(self) -> Now:
        return Now(UnixMs(WALL + self._ms), MonoMs(self._ms))

    def _due_ms(self) -> int:
        """Return when something is due by itself."""
        due = self._ms + LINE_EVERY_MS
        if (deadline := runner_deadline(self.runner.runner)) is not None:
            # The first moment at which the faster clock has come to it.
            wait = deadline - self._here().mono_ms
            due = min(due, self._ms + max(0, wait * 1_000_000 // (1_000_000 + DRIFT_PPM)) + 1)
        if (moment := controller_deadline(self.controller.run)) is not None:
            due = min(due, max(self._ms, moment))
        return due

    # --- the wire ---------------------------------------------------------------------------

    def _dialled(self, link: Link) -> None:
        self.told.connections += 1
        self._wire = Wire(self.told.connections, link)
        self._born_ms = self._ms

    def _pump(self) -> None:
        """Move bytes until both ends have nothing more to say, or the wire is cut."""
        while (wire := self._wire) is not None:
            if up := b"".join(wire.link.outgoing()):
                self.controller.take(wire, up, self._there())
            if wire.is_cut:
                self.told.lost_replies += 1
                self._cut()
                return
            down = b"".join(wire.carrier.outgoing())
            if down:
                self.runner.take(down, self._here())
            if not up and not down:
                return

    def _cut(self) -> None:
        """Let the connection be gone; the program and the lease are not."""
        if self._wire is not None:
            self._count_out(self._wire)
            self.runner.lose(self._here())

    def _count_out(self, wire: Wire) -> None:
        """Tell the controller that a connection is gone, and keep what it was like."""
        self._wire = None
        if wire.channel is not None:
            frames = max(wire.channel.frames_sealed, wire.channel.frames_opened)
            self.told.frames_per_key_max = max(self.told.frames_per_key_max, frames)
        age = (self._ms - self._born_ms) / 3_600_000
        self.told.oldest_key_hours = max(self.told.oldest_key_hours, age)
        self.controller.feed(facts.ConnectionLost(wire.handle), self._there())

    # --- the story --------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect, and start the one turn."""
        self._pump()
        for type_, payload in (
            ("run.prepare", msgspec.json.encode(PREPARE)),
            ("session.open", b"{}"),
            ("turn.start", b"{}"),
        ):
            self._commands += 1
            left = self.controller.queue(self._commands, type_, payload, self._there())
            self.controller.perform(self._wire, left, self._there())
            self._pump()
        if self.runner.runner.durable.turn is None:
            raise Broken("the turn did not start")

    def live(self, until_ms: int, *, is_calm: bool = False) -> None:
        """Let time pass, with all that it brings; while it is calm nothing breaks."""
        line_ms = self._ms + LINE_EVERY_MS
        cut_ms = until_ms + 1 if is_calm else self._ms + CUT_EVERY_MS
        while self._ms < until_ms:
            self._ms = min(self._due_ms(), line_ms, cut_ms, until_ms)
            self._error_ms = self._random.randint(-WALL_ERROR_MS, WALL_ERROR_MS)
            if self._wire is not None:
                lost = self._random.randrange(100) < LOST_REPLIES_PERCENT
                self._wire.loses_next_reply = lost and not is_calm
            if self._ms >= line_ms:
                line_ms += LINE_EVERY_MS
                self._say_a_line()
            if self._ms >= cut_ms:
                cut_ms += self._random.randrange(CUT_EVERY_MS // 2, 2 * CUT_EVERY_MS)
                self._cut()
            self.controller.perform(
                self._wire, self.controller.feed(facts.TimePassed(), self._there()), self._there()
            )
            self.runner.feed(TimePassed(), self._here())
            self._notice_a_replaced_connection()
            self._pump()

    def _say_a_line(self) -> None:
        generation = self.runner.runner.durable.generation
        self.runner.feed(HarnessOutput(generation, ("still here",)), self._here())

    def _notice_a_replaced_connection(self) -> None:
        """A runner that closed the connection itself, for fresh keys, has told nobody yet."""
        wire = self._wire
        if wire is not None and wire.link.failure is not None and self.runner.link is wire.link:
            self.runner.link = None
            self.told.keys_outlived += 1
            self._count_out(wire)

    def tell(self) -> Told:
        """Return what they were like so far."""
        told = self.told
        told.virtual_days = self._ms / DAY_MS
        told.renewals = self.runner.renewals
        told.programs_started = self.runner.started
        told.events = self.controller.committed
        if told.events != self.runner.runner.durable.next_source_seq - 1:
            raise Broken("an event is not committed")
        if self.runner.runner.durable.turn is None or self.runner.runner.live.lease is None:
            raise Broken("turn or lease is gone")
        return told


def resident_kib() -> int:
    """Return what this process holds in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_024


def live_three_weeks(seed: int = 1) -> Told:
    """Live them all; Broken if a promise does not hold."""
    began = time.perf_counter()
    weeks = Weeks(seed)
    weeks.begin()
    for week in range(1, WEEKS + 1):
        # The second is calm: only age takes a connection's keys away.
        weeks.live(week * WEEK_MS, is_calm=week == 2)
        weeks.told.kib_after_each_week.append(resident_kib())
    told = weeks.tell()
    told.seconds = time.perf_counter() - began
    return told


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(live_three_weeks()).decode() + "\n")
