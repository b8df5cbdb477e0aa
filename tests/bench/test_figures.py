"""How figures are judged, shown and written."""

import msgspec
import pytest

from tests.bench.figures import Failed, Figure, Goal, Measured, NotMeasured, as_json, table

FIGURE = Figure(
    name="some-figure", what="ours over theirs", unit="events/s", goal=Goal(">=", 20, stretch=60)
)
MEASURED = Measured(ours=(400.0, 1200.0, 900.0), base=(20.0, 10.0, 30.0), notes=("a note",))


@pytest.mark.parametrize(
    ("goal", "within", "beyond"),
    [(Goal(">=", 20), 20.0, 19.99), (Goal("<=", 2), 2.0, 2.01), (Goal("==", 1), 1.0, 1.01)],
)
def test_goal_holds_up_to_its_bound(goal: Goal, within: float, beyond: float) -> None:
    assert goal.holds(within)
    assert not goal.holds(beyond)


def test_ratio_is_the_median_of_the_pairs_not_the_ratio_of_the_medians() -> None:
    assert MEASURED.ratios == (20.0, 120.0, 30.0)
    assert MEASURED.ratio == 30.0


@pytest.mark.parametrize("sides", [((), ()), ((1.0,), (1.0, 2.0))])
def test_samples_are_refused_when_they_make_no_pairs(
    sides: tuple[tuple[float, ...], tuple[float, ...]],
) -> None:
    with pytest.raises(ValueError, match="as many samples"):
        Measured(ours=sides[0], base=sides[1])


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal(">=", 20, stretch=30), "yes, stretch too"),
        (Goal(">=", 20, stretch=60), "yes"),
        (Goal(">=", 40), "NO"),
        (None, "-"),
    ],
)
def test_table_says_whether_a_goal_holds(goal: Goal | None, verdict: str) -> None:
    line = table([(msgspec.structs.replace(FIGURE, goal=goal), MEASURED)]).splitlines()[1]

    assert line.split()[:4] == ["some-figure", "30.0", "20.0", "120.0"]
    assert line.endswith(f"  {verdict}")


def test_table_gives_the_reason_when_there_is_no_ratio() -> None:
    shown = table([(FIGURE, NotMeasured("no node")), (FIGURE, Failed("it broke"))])

    assert "not measured" in shown
    assert "no node" in shown
    assert "FAILED" in shown
    assert "it broke" in shown


def test_json_holds_every_figure_with_its_samples() -> None:
    written = msgspec.json.decode(as_json([(FIGURE, MEASURED), (FIGURE, NotMeasured("no node"))]))

    assert written[0] == {
        "name": "some-figure",
        "what": "ours over theirs",
        "unit": "events/s",
        "goal": ">= 20 (60)",
        "ratio": 30.0,
        "spread": {"min": 20.0, "max": 120.0},
        "holds": True,
        "reachesStretch": False,
        "samples": {"ours": [400.0, 1200.0, 900.0], "base": [20.0, 10.0, 30.0]},
        "notes": ["a note"],
        "status": "measured",
    }
    assert (written[1]["status"], written[1]["holds"]) == ("not measured", None)
    assert written[1]["reason"] == "no node"
