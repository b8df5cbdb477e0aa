"""The port of a harness driver: what the executor may ask of one kind of provider.

It decides which few orders every provider understands. It refuses to know any provider:
each is one file beside this one (D14).
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from protocol.process_birth import ProcessBirth
from runnerd.core.actions import StartHarness, StopIntent
from runnerd.core.inputs import Input
from runnerd.harness.descendants import Descendants

Feed = Callable[[Input], None]
"""Takes an input of the core; called in the event loop, also from within an order."""


class Driver(Protocol):
    """One generation of a harness, from its gate to the end of its tree and its output.

    Every order may be repeated; a repetition changes nothing. Answers are fed to the core.
    """

    @property
    def birth(self) -> ProcessBirth:
        """The identity of the process that leads the harness's session."""
        ...

    @property
    def is_over(self) -> bool:
        """HarnessExited was fed: there is nothing left to order."""
        ...

    def release(self) -> None:
        """Let the program run."""
        ...

    def read(self, lines_max: int, bytes_max: int) -> None:
        """Feed one HarnessOutput or HarnessMessages when something was said."""
        ...

    def tell(self, number: int, line: bytes) -> None:
        """Write a line; feed HarnessTold when the program's pipe has taken it."""
        ...

    def stop(self, intent: StopIntent, grace_ms: int) -> None:
        """End the whole tree; a shorter grace than before shortens the present one."""
        ...

    async def tree_ended(self) -> int:
        """Wait until the tree has ended. Returns how many processes could not be ended."""
        ...

    def let_go(self) -> None:
        """Give up every descriptor and whatever was not read; only after the tree ended."""
        ...


class DriverStart(Protocol):
    """Starts one provider's program, held at its gate."""

    def __call__(
        self,
        order: StartHarness,
        environment: Mapping[str, str],
        descendants: Descendants,
        feed: Feed,
    ) -> Driver:
        """Return the driver. Raises PrpError ``harness_start_failed``; then nothing is left."""
        ...
