"""One runner's state directory under watch: faults that strike it, and what a start may find.

It decides which state a start is allowed to find, and whether a write that was called done
is whole. It refuses to know machine, driver and network.
"""

from collections.abc import Callable

from protocol.base.atomic_file import WriteFailed as ReplaceFailed
from protocol.errors import EXIT_STATUSES, PrpError
from runnerd.core.state import Durable
from runnerd.core.state_codec import encode
from tests.simulator import invariants
from tests.simulator.disk_faults import Call, Fault
from tests.simulator.image import Image, Observer
from tests.simulator.machine import Machine
from tests.simulator.oracle import Oracle
from tests.simulator.verdict import Violation

ENDS = frozenset(code.value for code in EXIT_STATUSES)


class StateJudge:
    """Outlives every process on the machine."""

    def __init__(self, machine: Machine, trace: list[object], seen: set[str]) -> None:
        self._machine = machine
        self._observer = Observer(machine.disk)
        self._trace = trace
        self._seen = seen
        self._surviving: list[Image | None] | None = None
        self._attempted: Durable | None = None
        self._was_struck = False
        self._has_failed_write = False
        self.is_undecided = False
        """A write has failed behind its rename: which state is on the disk, nobody knows."""
        self.armed: tuple[int, Fault] | None = None
        """A fault for the n-th disk call from now."""

    def surviving(self) -> list[Image | None]:
        """Return every state that a power loss now could leave."""
        if self._surviving is None:
            self._surviving = self._observer.surviving()
        return self._surviving

    def disk_moved(self) -> None:
        """Forget what was known of the disk."""
        self._surviving = None
        self._seen |= self._machine.disk.last_losses

    def put_back(self) -> None:
        """Expect nothing of what was being written: an older state took its place."""
        self._attempted = self._surviving = None

    def strike(self, call: Call) -> Fault | None:
        """Say what happens to a disk call."""
        if self.armed is None:
            return None
        countdown, fault = self.armed
        if countdown > 1:
            self.armed = (countdown - 1, fault)
            return None
        self.armed = None
        self._was_struck = True
        self._trace.append(("disk", call.name, fault))
        self._seen.add(f"fault at {call.name}")
        return fault

    # --- starts -------------------------------------------------------------------------------

    def opened(self, open_state: Callable[[], Durable | None]) -> Durable | None:
        """Open the state directory; raises what that raises, if it may."""
        self._surviving = None
        self._was_struck = self._has_failed_write = False
        try:
            return open_state()
        except PrpError as error:
            self._trace.append(("start refused", error.code.value))
            invariants.I18(error.code.value, ENDS)
            if not self._was_struck and not self._machine.disk.refuses_writes:
                raise Violation("I8", f"a start was refused: {error}") from error
            raise
        finally:
            self._note_disk()

    def found(self, durable: Durable | None, oracle: Oracle) -> Image | None:
        """Judge what a start has found, and return it."""
        image = self._observer.newest()
        allowed = [oracle.image]
        # A content that was being written is known by its bytes.
        if self._attempted is not None and durable is not None:
            allowed += [image] if encode(self._attempted) == encode(durable) else []
        invariants.I8(image, allowed)
        self._attempted = None
        # A start publishes anew what it has read.
        self.is_undecided = False
        if image is not None:
            oracle.found(image)
        return image

    # --- writes -------------------------------------------------------------------------------

    def replaced(
        self, replace: Callable[[Durable], None], durable: Durable, oracle: Oracle
    ) -> ReplaceFailed | None:
        """Replace the state, judge the outcome, and return the failure if it is one."""
        self._surviving = None
        self._attempted = durable
        try:
            replace(durable)
        except ReplaceFailed as failure:
            self._trace.append(("write failed", failure))
            self.is_undecided = failure.renamed
            if failure.renamed:
                self._seen.add("write undecided")
            else:
                self._attempted = None
                self._has_failed_write = True
            return failure
        finally:
            self._note_disk()
        self._attempted = None
        self.is_undecided = False
        if self._has_failed_write:
            self._has_failed_write = False
            self._seen.add("write succeeded after a failure")
        image = self._observer.newest()
        if image is None:
            raise Violation("I8", "a write that succeeded left no whole state")
        oracle.published(image)
        if oracle.uses_reserve:
            self._seen.add("reserve used")
        if image.unrecoverable_outcome is not None:
            self._seen.add("no room for a fact")
        return None

    def _note_disk(self) -> None:
        if self._machine.disk.violations:
            number, _, words = self._machine.disk.violations[0].partition(" ")
            raise Violation(number, words)
