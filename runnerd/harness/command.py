"""The `command` provider: any program, whose lines of standard output are its progress.

It decides that a line is a line, within a bound. It refuses to know what one means.
"""

from collections.abc import Mapping
from typing import Final

from protocol.limits import HARNESS_LINE_BYTES_MAX
from runnerd.core.actions import ProviderKind, ReadHarness, StartHarness
from runnerd.core.inputs import HarnessOutput
from runnerd.harness.descendants import Descendants
from runnerd.harness.driver import Feed
from runnerd.harness.process import spawn
from runnerd.harness.supervised import Supervised

KIND: Final[ProviderKind] = "command"


def start(
    order: StartHarness, environment: Mapping[str, str], descendants: Descendants, feed: Feed
) -> "CommandDriver":
    """Start a program, held at its gate. Raises PrpError ``harness_start_failed``."""
    process = spawn(order.argv, order.cwd, environment)
    return CommandDriver(order.generation, process, descendants, feed, HARNESS_LINE_BYTES_MAX)


class CommandDriver(Supervised):
    """Hands lines over; see `Driver`."""

    def tell(self, number: int, line: bytes) -> None:
        """Tell nothing: this program has nothing to read."""

    def _answer(self, asked: ReadHarness) -> None:
        lines = self._splitter.take(asked.lines_max, asked.bytes_max)
        self._feed(HarnessOutput(self._generation, lines))
