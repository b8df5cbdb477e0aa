"""The demo's command line, and what it leaves behind when it cannot go to its end."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.demo import checker
from tests.demo.__main__ import EXIT_FAILED, EXIT_HOLDS, EXIT_INTERRUPTED, EXIT_USAGE
from tests.demo.folder import FILES_MIN, make_folder
from tests.demo.scenario import DemoFailed, Scenario, Site, facts

pytestmark = pytest.mark.process

TIME_LIMIT_S: Final = 120


def demo(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_demo_prints_one_object_and_keeps_its_state_where_it_was_told(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"

    process = demo("--files", str(FILES_MIN), "--json", "--data", str(data))
    output, _ = process.communicate(timeout=TIME_LIMIT_S)

    report = json.loads(output)
    figures = {figure["name"]: figure["value"] for figure in report["figures"]}
    assert (process.returncode, report["holds"], report["faults"]) == (EXIT_HOLDS, True, [])
    assert report["state"] == str(data)
    assert figures["files reported exactly once"] == FILES_MIN
    assert (figures["events lost"], figures["events duplicated"]) == (0, 0)


@pytest.mark.parametrize("arguments", [["--files", str(FILES_MIN - 1)], ["--files", "x"]])
def test_demo_refuses_a_number_of_files_that_is_none(arguments: list[str]) -> None:
    process = demo(*arguments)
    output, words = process.communicate(timeout=TIME_LIMIT_S)

    assert (process.returncode, output) == (2, "")
    assert "argument --files: must be a whole number from " in words
    assert "Traceback" not in words


def test_demo_refuses_a_place_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    process = demo("--data", str(tmp_path))
    output, words = process.communicate(timeout=TIME_LIMIT_S)

    assert (process.returncode, output) == (EXIT_USAGE, "")
    assert str(tmp_path) in words
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_demo_says_so_when_its_time_is_over(tmp_path: Path) -> None:
    process = demo("--timeout", "0", "--json", "--data", str(tmp_path / "data"))
    output, words = process.communicate(timeout=TIME_LIMIT_S)

    report = json.loads(output)
    assert (process.returncode, report["holds"]) == (EXIT_FAILED, False)
    assert report["faults"] == ["not done after 0 seconds"]
    assert "Traceback" not in words


def test_demo_ends_what_it_started_when_it_is_terminated(tmp_path: Path) -> None:
    process = demo("--files", "2000", "--json", "--data", str(tmp_path / "data"))
    assert process.stderr is not None
    told = ""
    while "cutting the socket" not in told:
        told = process.stderr.readline()
        assert told
    process.send_signal(signal.SIGTERM)
    output, words = process.communicate(timeout=TIME_LIMIT_S)

    assert (process.returncode, json.loads(output)["faults"]) == (EXIT_INTERRUPTED, ["interrupted"])
    assert "Traceback" not in words
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize("moment", ["cutting the socket", "SIGKILL", "runner 2 started"])
def test_scenario_leaves_no_process_when_it_fails(moment: str, tmp_path: Path) -> None:
    site = Site(tmp_path / "demo", 2 * FILES_MIN)
    make_folder(site.folder, site.files)

    def tell(words: str) -> None:
        if moment in words:
            raise DemoFailed("as if by chance")

    scenario = Scenario(site, tell)
    with pytest.raises(DemoFailed, match="as if by chance"):
        asyncio.run(asyncio.wait_for(scenario.perform(), TIME_LIMIT_S))

    assert scenario.witness.runner_pids
    assert list(checker.processes_left(facts(site, scenario.witness))) == []


def processes_below(path: Path) -> list[str]:
    """Return the command line of each process that names a path in it."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(path) in line:
                found.append(line)
    return found
