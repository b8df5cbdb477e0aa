"""What both halves of the daemon's life do with the driver: before and after the welcome.

It decides how the end of a write reaches the core. It refuses to know when a write is made
and by which thread.
"""

from typing import Never, Protocol, TypeAlias

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.base.clock import Now
from protocol.base.driver import Driver
from runnerd.core.actions import Action
from runnerd.core.inputs import Input, WriteFailed
from runnerd.core.state import Durable, Runner

RunnerDriver: TypeAlias = Driver[Runner, Input, Action, Never]


class StateStore(Protocol):
    """The port of the runner's durable state."""

    def replace(self, durable: Durable) -> None:
        """Make ``durable`` the state that a restart finds, or raise ReplaceFailed."""
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
