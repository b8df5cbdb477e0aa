"""The controller's core: one input to one run, in; the next state and gated actions, out.

It decides which handler an input belongs to and when time next matters. It refuses to know
what the handlers decide.
"""

from controller_mock.core.inputs import Input
from controller_mock.core.state import Run, Step
from protocol.base.clock import MonoMs, Now


def step(run: Run, stimulus: Input, now: Now) -> Step:
    """Apply one input; no exception for anything a peer or caller can do."""
    raise NotImplementedError


def next_deadline(run: Run) -> MonoMs | None:
    """Return when `TimePassed` must be fed at the latest, or None."""
    raise NotImplementedError
