"""What both halves of the daemon's life do with the driver: before and after the welcome.

It decides how the end of a write and the passing of time reach the core. It refuses to know
who writes and who sleeps.
"""

from typing import Never, Protocol, TypeAlias

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.base.clock import MonoMs, Now
from protocol.base.driver import Driver
from protocol.limits import SHELL_SLEEP_MS_MAX, STANDING_DEADLINE_MS
from runnerd.core.actions import Action
from runnerd.core.inputs import Input, StorageRoom, TimePassed, WriteFailed
from runnerd.core.state import Durable, Runner
from runnerd.core.step import next_deadline

RunnerDriver: TypeAlias = Driver[Runner, Input, Action, Never]


class StateStore(Protocol):
    """The port of the runner's durable state."""

    def replace(self, durable: Durable) -> None:
        """Make ``durable`` the state that a restart finds, or raise ReplaceFailed."""
        ...


class StateRoom(Protocol):
    """The port of the room on the disk of the state; its owner is the store's thread."""

    @property
    def is_tight(self) -> bool:
        """True while the disk has no room, as far as the last attempts tell."""
        ...

    def find_room(self) -> None:
        """Look whether there is room again."""
        ...


class FactLog(Protocol):
    """The port of the log: it is told what happened and what was ordered."""

    def heard(self, stimulus: Input) -> None:
        """Note an input."""
        ...

    def ordered(self, action: Action) -> None:
        """Note an order that leaves now."""
        ...

    def noted(self, fact: str, **values: object) -> None:
        """Note something that neither is."""
        ...


def end_write(driver: RunnerDriver, log: FactLog, failure: ReplaceFailed | None, now: Now) -> None:
    """Open the gates of the write in flight, or drop what was held and tell the core (R4)."""
    if failure is None:
        driver.wrote()
        return
    dropped = driver.write_failed()
    log.noted(
        "state_write_failed",
        revision=driver.staged.revision,
        code=failure.code.value,
        reason=failure.message,
        dropped=len(dropped),
    )
    driver.feed(WriteFailed(errno=failure.errno, is_final=failure.renamed), now)


def tell_room(driver: RunnerDriver, log: FactLog, room: StateRoom | None, now: Now) -> None:
    """Tell the core if the disk has filled or has room again since it heard of it last."""
    if room is None or room.is_tight == driver.staged.live.storage_tight:
        return
    is_tight = room.is_tight
    if is_tight:
        log.noted("storage_full")
    else:
        log.noted("storage_has_room")
    driver.feed(StorageRoom(is_tight), now)


class Alarm:
    """Tells the core that its next deadline has come; the deadline itself is never armed."""

    def __init__(self, driver: RunnerDriver) -> None:
        self._driver = driver
        self._told: MonoMs | None = None

    def sleep_ms(self, now: Now) -> int:
        """Return how long nothing can be due; never long, for timers do not count suspension."""
        deadline = next_deadline(self._driver.staged)
        if deadline is None:
            return SHELL_SLEEP_MS_MAX
        left_ms = deadline - now.mono_ms
        if deadline == self._told:
            # It was told and still stands, so something else than time is missing.
            left_ms = max(left_ms, STANDING_DEADLINE_MS)
        return max(0, min(left_ms, SHELL_SLEEP_MS_MAX))

    def tell(self, now: Now) -> None:
        """Feed the passing of time if the deadline has come."""
        deadline = next_deadline(self._driver.staged)
        if deadline is not None and now.mono_ms >= deadline:
            self._told = deadline
            self._driver.feed(TimePassed(), now)
