"""Planted bugs: every edit fits the product, and a sample is killed."""

from pathlib import Path

import pytest

from tests.simulator.planted.bug import Bug, Edit, Stale
from tests.simulator.planted.hunt import BUGS, ELSEWHERE, ROOT, Verdict, hunt

SAMPLE = ("B01", "B03", "B06", "B13", "B22", "B27")
BUDGET_S = 180.0
"""Generous: what is judged is which invariant is named, not how fast."""


def texts_with(bug: Bug) -> dict[str, str]:
    """Return the files that a bug changes, with the bug in them."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        text = texts.get(edit.path) or (ROOT / edit.path).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{bug.number} is stale: {edit.old.strip()}"
        texts[edit.path] = text.replace(edit.old, edit.new)
    return texts


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.number)
def test_planted_bug_fits_the_product_and_is_still_a_program(bug: Bug) -> None:
    for path, text in texts_with(bug).items():
        compile(text, path, "exec")


def test_numbers_of_bugs_are_those_of_the_catalogue() -> None:
    numbers = {bug.number[:3] for bug in BUGS if bug.number.startswith("B")}
    numbers |= {other.number for other in ELSEWHERE}

    assert {f"B{number:02}" for number in range(1, 32)} <= numbers
    assert len({bug.number for bug in BUGS}) == len(BUGS)


def test_edit_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n", encoding="utf-8")

    with pytest.raises(Stale, match="2 times"):
        Edit("a.py", "x = 1\n", "x = 2\n").apply(tmp_path)
    with pytest.raises(Stale, match="gone"):
        Edit("b.py", "x", "y").apply(tmp_path)


def test_bug_that_dies_by_another_invariant_is_not_killed() -> None:
    bug = Bug("B00", "none", ("I1",), ())

    assert Verdict(bug, "I1 lost", 1.0).is_killed
    assert not Verdict(bug, "I10 too much", 1.0).is_killed
    assert not Verdict(bug, "", 1.0).is_killed


@pytest.mark.parametrize("number", SAMPLE)
def test_planted_bug_is_killed_by_an_invariant_that_it_breaks(number: str) -> None:
    [bug] = [bug for bug in BUGS if bug.number == number]

    verdict = hunt(bug, BUDGET_S, workers=1)

    assert verdict.is_killed, str(verdict)
