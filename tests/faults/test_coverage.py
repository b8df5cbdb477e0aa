"""The table of faults is true: every name exists, every id has a line, and the command shows it."""

import json
import subprocess
import sys

import pytest

from tests.faults.__main__ import EXIT_USAGE, as_json, lines, main
from tests.faults.coverage import IDS, TESTS, Lane, Part, faults, problems, read_table

GOOD = """
== 4.2 Storage

S01 runner | the process dies
  script faults/test_coverage.py::table_of_this_checkout_is_true
  sim short: power loss
  review somebody has looked
  open runner: not on every disk
"""


def wrong_with(text: str) -> list[str]:
    """Return what is wrong with the one line of a table, whatever else is missing."""
    return [each for each in problems(read_table(text)) if not each.endswith("has no line")]


def test_table_of_this_checkout_is_true() -> None:
    assert list(problems(faults())) == []


def test_every_id_that_the_runner_has_to_bear_has_a_test_that_brings_it_about() -> None:
    for fault in faults():
        if Part.RUNNER in fault.parts:
            lanes = fault.lanes(Part.RUNNER)
            assert any(lane in lanes for lane in (Lane.REAL, Lane.SWEEP, Lane.SCRIPT)), fault.id


def test_table_is_read_line_by_line() -> None:
    [fault] = read_table(GOOD)

    assert (fault.id, fault.section, fault.words) == ("S01", "4.2 Storage", "the process dies")
    assert fault.lanes(Part.RUNNER) == (Lane.SIM, Lane.SCRIPT, Lane.REVIEW)
    assert fault.open == {Part.RUNNER: "not on every disk"}
    assert wrong_with(GOOD) == []


def test_id_without_a_line_is_noticed() -> None:
    assert "S02 has no line" in problems(read_table(GOOD))
    assert list(problems(())) == [f"{name} has no line" for name in IDS]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("S01 runner", "S99 runner", "S99 is no id of the catalogue"),
        ("_is_true", "_is_gone", "S01 names what is not there"),
        ("test_coverage.py", "test_nothing.py", "S01 names what is not there"),
        ("power loss", "no such fact", "S01 names what is not there"),
        ("sim short", "sim long", "S01 names what is not there"),
        ("S01 runner", "S01 runner controller", "neither a test nor a reason for the controller"),
        ("open runner", "open runs", "open for the runs, which it does not concern"),
        ("| the process dies", "| ", "does not say what happens"),
    ],
)
def test_line_that_is_not_true_is_noticed(old: str, new: str, complaint: str) -> None:
    assert old in GOOD

    found = wrong_with(GOOD.replace(old, new))

    assert any(complaint in each for each in found), found


def test_second_line_for_an_id_is_noticed() -> None:
    assert "S01 has two lines" in wrong_with(GOOD + GOOD)


@pytest.mark.parametrize(
    "line",
    ["  magic a.py::b", "S01 nobody | x", "  script", "  open nobody: x", "  script a.py::b"],
)
def test_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 3: "):
        read_table(f"# a table\n== 4.2 Storage\n{line}\n")


def test_command_shows_ids_lanes_tests_and_what_is_open() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--coverage"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert shown[:-1] == "\n".join(lines(faults())).splitlines()
    assert any(line.startswith("still open: ") for line in shown)
    assert "    real    tests/process/test_life.py::test_second_stop_ends_at_once" in shown


def test_command_tells_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--json"])

    told = json.loads(capsys.readouterr().out)
    assert (status, told["wrong"]) == (0, [])
    assert [fault["id"] for fault in told["faults"]] == list(IDS)
    assert told == json.loads(as_json(faults(), []))


def test_command_shows_the_ids_that_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--coverage", "H03"]) == 0

    shown = capsys.readouterr().out
    assert "H03  it ignores SIGTERM" in shown
    assert "S01" not in shown


def test_command_refuses_an_id_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["S99"]) == EXIT_USAGE
    assert main([]) == EXIT_USAGE
    assert "no fault is called S99" in capsys.readouterr().err
