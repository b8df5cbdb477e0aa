"""An event into an outbox that is nearly full, over one bare replacement of such a file.

It decides how full "nearly" is. It refuses to help the core: what lies in its outbox came the
way every line comes.
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from protocol.base.proven_content import enclose
from runnerd.core.actions import Action
from runnerd.core.state import STATE_SCHEMA
from runnerd.core.state_codec import encode
from runnerd.io.state_file import StateFile
from tests.bench.bare_file import BareFile
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.site import Measurement, Site
from tests.runnerd.core.world import SETTINGS, World

LINE: Final = "one line of output, of about the length that lines have"
LINES_PER_BATCH: Final = 128
LEFT_BYTES: Final = 128 * 1024
"""Of the room for output; the reserve of the facts is beyond it."""
PAIRS_PER_ROUND: Final = 3

FULL_OUTBOX: Final = Figure(
    name="full-outbox-event",
    what="a line until it is durable in an outbox of 16 MiB that is nearly full, over one bare"
    " replacement of a file of the same bytes",
    unit="ms",
    goal=Goal("<=", 3),
)


class FullWorld(World):
    """The runner's core over its real state file, once its outbox has been filled."""

    def __init__(self, directory: Path) -> None:
        self.is_on_disk = False
        self._file = StateFile(PosixFilesystem(), SystemEntropy(), str(directory), SETTINGS)
        self._file.open()
        super().__init__()

    def settle(self) -> list[Action]:
        """Write to the real file when the driver asks for it, then let everything out."""
        start = len(self.left)
        while True:
            if (write := self.driver.next_write()) is not None:
                if self.is_on_disk:
                    self._file.replace(write.state.durable)
                self.driver.wrote()
            if (action := self.driver.next_action()) is None:
                return self.left[start:]
            self.left.append(action)

    def fill(self) -> None:
        """Store lines that nobody acknowledges until there is hardly room for more."""
        self.connect()
        self.prepare()
        self.start_turn()
        room = SETTINGS.max_outbox_bytes - SETTINGS.p0_reserve_bytes - LEFT_BYTES
        while self.runner.live.outbox_bytes < room:
            self.lines(*[LINE] * LINES_PER_BATCH)
            self.left.clear()
        self.is_on_disk = True

    def close(self) -> None:
        """Give the directory up."""
        self._file.close()


async def full_outbox(site: Site) -> Mapping[str, Outcome]:
    """Store one line and replace a bare file in turns, each with the bytes of the other."""
    ours: list[float] = []
    base: list[float] = []
    with (
        contextlib.closing(FullWorld(site.fresh_folder())) as world,
        contextlib.closing(BareFile(str(site.fresh_folder()))) as file,
    ):
        world.fill()
        world.lines(LINE)
        data = b""
        for _ in range(PAIRS_PER_ROUND * site.size.rounds):
            ours.append(_milliseconds_of_a_line(world))
            data = enclose(STATE_SCHEMA, encode(world.durable))
            start = time.perf_counter()
            file.replace(data)
            base.append((time.perf_counter() - start) * 1_000)
        events, used = len(world.durable.outbox), world.runner.live.outbox_bytes
    note = f"{events} events, {used} bytes of the outbox, {len(data)} bytes of the file"
    return {FULL_OUTBOX.name: Measured(ours=tuple(ours), base=tuple(base), notes=(note,))}


def _milliseconds_of_a_line(world: FullWorld) -> float:
    before = len(world.durable.outbox)
    start = time.perf_counter()
    world.lines(LINE)
    took = time.perf_counter() - start
    assert len(world.durable.outbox) == before + 1, "the line had room"
    return took * 1_000


MEASUREMENTS: Final = (Measurement((FULL_OUTBOX,), full_outbox),)
