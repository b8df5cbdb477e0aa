"""The command line of the measurements."""

from pathlib import Path

import msgspec
import pytest

from tests.bench import __main__ as bench
from tests.bench.figures import Figure, Goal, Measured, NotMeasured, Outcome
from tests.bench.site import Measurement, Site

GOOD = Figure(name="good", what="good over base", unit="ms", goal=Goal("<=", 2))
BAD = Figure(name="bad", what="bad over base", unit="ms", goal=Goal("<=", 2))
BROKEN = Figure(name="broken", what="nothing", unit="ms")
ABSENT = Figure(name="absent", what="nothing", unit="ms")

MEASUREMENTS = bench.MEASUREMENTS
"""The real ones; the tests put planted ones in their place."""


async def measure(site: Site) -> dict[str, Outcome]:
    assert site.directory.is_dir()
    return {
        GOOD.name: Measured(ours=(1.0,), base=(1.0,)),
        BAD.name: Measured(ours=(3.0,), base=(1.0,)),
        ABSENT.name: NotMeasured("not on this machine"),
    }


async def break_down(site: Site) -> dict[str, Outcome]:
    raise OSError(f"{site.size.rounds} rounds too many")


@pytest.fixture(autouse=True)
def _measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = (Measurement((GOOD, BAD, ABSENT), measure), Measurement((BROKEN,), break_down))
    monkeypatch.setattr(bench, "MEASUREMENTS", planted)


def test_bench_exits_0_and_says_so_when_a_goal_is_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = bench.main(["--only", "good", "--only", "bad", "--only", "absent"])

    shown = capsys.readouterr().out
    assert status == bench.EXIT_MEASURED
    assert shown.endswith("missed: bad\n")
    assert "not on this machine" in shown


def test_bench_exits_1_and_shows_the_other_figures_when_a_measurement_breaks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = bench.main(["--quick", "--json", str(tmp_path / "figures.json")])

    assert status == bench.EXIT_FAILED
    assert "FAILED" in capsys.readouterr().out
    written = msgspec.json.decode((tmp_path / "figures.json").read_bytes())
    assert [(each["name"], each["status"]) for each in written] == [
        ("good", "measured"),
        ("bad", "measured"),
        ("absent", "not measured"),
        ("broken", "failed"),
    ]


def test_bench_refuses_a_name_that_no_figure_has() -> None:
    assert bench.main(["--only", "unheard"]) == bench.EXIT_USAGE


def test_bench_lists_the_figures_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--list"]) == bench.EXIT_MEASURED

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "good",
        "bad",
        "absent",
        "broken",
    ]


def test_figures_of_the_bench_have_names_of_their_own() -> None:
    names = [figure.name for each in MEASUREMENTS for figure in each.figures]

    assert len(set(names)) == len(names)
