"""The stacks by name, and how a history of each is run again.

It decides nothing: a stack is a function from draws to an outcome.
"""

from collections.abc import Collection
from typing import Final, Protocol

from tests.simulator.draws import Recording
from tests.simulator.full.history import run_full
from tests.simulator.runs.history import run_runs
from tests.simulator.short.history import run_short
from tests.simulator.tape import Tape
from tests.simulator.verdict import Outcome

STEPS_ANY: Final = 10**6


class Stack(Protocol):
    """One kind of history."""

    def __call__(
        self,
        seed: int,
        recording: Recording | None = None,
        disabled: Collection[str] = (),
        steps_max: int = STEPS_ANY,
        needed: Collection[str] = (),
    ) -> Outcome:
        """Run one history; nothing is raised but faults of the simulator."""
        ...


STACKS: Final[dict[str, Stack]] = {"short": run_short, "full": run_full, "runs": run_runs}


def replay(tape: Tape) -> Outcome:
    """Run the history of a tape again."""
    return STACKS[tape.stack](tape.seed, tape.draws, tape.disabled, tape.steps_max, tape.needed)
