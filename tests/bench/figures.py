"""What a figure is, when it holds, and how all of them are shown.

It decides nothing about how one is measured.
"""

import statistics
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

DIGITS: Final = 4


class Goal(msgspec.Struct, frozen=True):
    """A bound on a ratio; ``stretch`` is what the design wants beyond what is asked."""

    relation: Literal[">=", "<=", "=="]
    value: float
    stretch: float | None = None

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio is within the bound."""
        return self._is_within(ratio, self.value)

    def reaches_stretch(self, ratio: float) -> bool:
        """Tell whether a ratio is within the bound that the design wants."""
        return self.stretch is not None and self._is_within(ratio, self.stretch)

    def _is_within(self, ratio: float, bound: float) -> bool:
        match self.relation:
            case ">=":
                return ratio >= bound
            case "<=":
                return ratio <= bound
            case "==":
                return ratio == bound

    def __str__(self) -> str:
        wanted = "" if self.stretch is None else f" ({self.stretch:g})"
        return f"{self.relation} {self.value:g}{wanted}"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    what: str
    """What is divided by what."""
    unit: str
    """Of the samples on both sides; the ratio has none."""
    goal: Goal | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of both sides, taken in turns; each pair makes one ratio."""

    ours: tuple[float, ...]
    base: tuple[float, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ours or len(self.ours) != len(self.base):
            raise ValueError("a figure needs as many samples of one side as of the other")

    @property
    def ratios(self) -> tuple[float, ...]:
        """Our sample over the other one, pair by pair."""
        return tuple(ours / base for ours, base in zip(self.ours, self.base, strict=True))

    @property
    def ratio(self) -> float:
        """The middle one of the ratios."""
        return statistics.median(self.ratios)


class NotMeasured(msgspec.Struct, frozen=True):
    """This machine lacks what the figure needs; that is no failure."""

    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The measurement broke; the run as a whole has failed."""

    reason: str


Outcome = Measured | NotMeasured | Failed
Report = Sequence[tuple[Figure, Outcome]]

_HEADINGS: Final = ("figure", "median", "min", "max", "goal", "holds")


def table(report: Report) -> str:
    """Return the figures as aligned lines, and below them what is divided by what."""
    rows = [_HEADINGS, *(_row(figure, outcome) for figure, outcome in report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, 4, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *_explanations(report)])


def as_json(report: Report) -> bytes:
    """Return a JSON array with one object for each figure."""
    return msgspec.json.format(msgspec.json.encode([_object(*line) for line in report]))


def _row(figure: Figure, outcome: Outcome) -> tuple[str, ...]:
    goal = "" if figure.goal is None else str(figure.goal)
    match outcome:
        case Measured(ratios=ratios, ratio=ratio):
            shown = (_spelled(ratio), _spelled(min(ratios)), _spelled(max(ratios)))
            return (figure.name, *shown, goal, _verdict(figure.goal, ratio))
        case NotMeasured():
            return (figure.name, "-", "-", "-", goal, "not measured")
        case Failed():
            return (figure.name, "-", "-", "-", goal, "FAILED")


def _verdict(goal: Goal | None, ratio: float) -> str:
    if goal is None:
        return "-"
    if not goal.holds(ratio):
        return "NO"
    return "yes, stretch too" if goal.reaches_stretch(ratio) else "yes"


def _explanations(report: Report) -> list[str]:
    lines: list[str] = []
    for figure, outcome in report:
        lines.append(f"{figure.name}: {figure.what}")
        match outcome:
            case Measured(ours=ours, base=base, notes=notes):
                middle = f"{statistics.median(ours):.6g} over {statistics.median(base):.6g}"
                lines.append(f"    {middle} {figure.unit}, medians of {len(ours)}")
                lines += [f"    {note}" for note in notes]
            case NotMeasured(reason=reason) | Failed(reason=reason):
                lines.append(f"    {reason}")
    return lines


def _object(figure: Figure, outcome: Outcome) -> dict[str, object]:
    known: dict[str, object] = {
        "name": figure.name,
        "what": figure.what,
        "unit": figure.unit,
        "goal": None if figure.goal is None else str(figure.goal),
    }
    if not isinstance(outcome, Measured):
        status = "failed" if isinstance(outcome, Failed) else "not measured"
        nothing = {"ratio": None, "spread": None, "holds": None, "samples": None}
        return {**known, **nothing, "status": status, "reason": outcome.reason}
    ratios = outcome.ratios
    return {
        **known,
        "ratio": round(outcome.ratio, DIGITS),
        "spread": {"min": round(min(ratios), DIGITS), "max": round(max(ratios), DIGITS)},
        "holds": None if figure.goal is None else figure.goal.holds(outcome.ratio),
        "reachesStretch": None if figure.goal is None else _stretch(figure.goal, outcome.ratio),
        "samples": {"ours": outcome.ours, "base": outcome.base},
        "notes": outcome.notes,
        "status": "measured",
    }


def _stretch(goal: Goal, ratio: float) -> bool | None:
    return None if goal.stretch is None else goal.reaches_stretch(ratio)


def _spelled(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"
