"""What a history ends with: nothing wrong, or one invariant that did not hold.

It decides how a broken invariant is spelled. It refuses to know any invariant.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tests.simulator.draws import Draws
from tests.simulator.profile import Profile


class Violation(Exception):
    """An invariant did not hold; ``number`` is its name in faults.md section 2, e.g. ``I2``."""

    def __init__(self, number: str, words: str) -> None:
        super().__init__(f"{number} {words}")
        self.number = number
        self.words = words


@dataclass
class Outcome:
    """One history: how it went, and everything that is needed to run it again."""

    stack: str
    draws: Draws
    profile: Profile
    disabled: Collection[str] = ()
    needed: Collection[str] = ()
    violation: Violation | None = None
    step: int = 0
    """The step of the storm at which it ended."""
    steps: int = 0
    virtual_ms: int = 0
    trace: list[object] = field(default_factory=list[object])
    seen: set[str] = field(default_factory=set[str])
    """Names of the "sometimes" facts that happened."""

    def judge(self, history: Callable[[], None]) -> None:
        """Run a history to its end, or until something is not right with it."""
        try:
            history()
        except Violation as violation:
            self.violation = violation
        except Exception as error:  # noqa: BLE001 - a traceback is never an outcome (I18)
            self.violation = traceback_violation(error)

    @property
    def families(self) -> list[str]:
        """The families of trouble that existed."""
        return [name for name, level in self.profile.families.items() if level]


def traceback_violation(error: Exception) -> Violation:
    """Return what a fault of the product means: a traceback is never an outcome (I18)."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "?"
    if trace is not None:
        code = trace.tb_frame.f_code
        where = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    violation = Violation("I18", f"{type(error).__name__} at {where}: {error}")
    violation.__cause__ = error
    return violation
