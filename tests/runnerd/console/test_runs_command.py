"""Tests of `runnerd runs`: what it says of runs, how it refuses, and what it leaves untouched."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from protocol.canonical_json import JsonValue
from protocol.errors import ExitStatus
from runnerd.console.runs_command import run_runs
from runnerd.console.words import FORMS
from tests.runnerd.console.kept_runs import KEY, finished, kept, left, looks, said, told
from tests.runnerd.runs.run_script import RUN


def test_list_names_each_run_and_the_code_of_a_damaged_one(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (doubtful / "broken.jsonl").write_bytes(b"{}\n")

    status, found = told(capfd, "list", "--runs", str(doubtful))
    _, text = said(capfd, "list", "--runs", str(doubtful))

    assert status == 0
    broken, doubted = found["runs"]
    assert (broken["runId"], broken["code"]) == ("broken", "run_state_corrupt")
    assert (doubted["status"], doubted["operation"]) == ("interrupted", "running")
    assert (doubted["resumable"], doubted["requiresHuman"]) == (False, True)
    assert "needs a person" in text


def test_show_names_the_effect_in_doubt_and_the_record_that_says_so(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, found = told(capfd, "show", RUN, "--runs", str(doubtful))
    _, text = said(capfd, "show", RUN, "--runs", str(doubtful))

    assert status == 0
    [effect] = found["effects"]
    assert (effect["effectId"], effect["verdict"], effect["sequence"]) == (KEY, "pause", 5)
    assert found["projection"]["unsafeCall"]["code"] == "unknown_effect"
    assert "in doubt   pay: unknown_effect, record 5" in text.splitlines()


def test_values_are_shown_as_json_has_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = finished()
    config: JsonValue = {"argv": ["sh"], "half": "\ud800", "safe": True}
    start = script.records[0]
    begun = structs.replace(start, payload={"provider": config})
    folder = kept(tmp_path / "runs", (begun, *script.records[1:]))

    _, run = said(capfd, "show", RUN, "--runs", str(folder))
    _, records = said(capfd, "timeline", RUN, "--runs", str(folder))

    assert 'provider  {"argv":["sh"],"half":"\\ud800","safe":true}\n' in run
    assert "exitProven=true" in records


def test_timeline_has_one_line_for_each_record(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, text = said(capfd, "timeline", RUN, "--runs", str(doubtful))

    assert status == 0
    assert [line.split(maxsplit=3)[2:] for line in text.splitlines()] == [
        ["start"],
        ["operation", "ACCEPT -> accepted"],
        ["operation", "START -> running"],
        ["event", "tool_call pay s1 c1"],
        ["event", "effect_receipt pay started c1 s1".replace("c1 s1", "s1 c1")],
    ]


@pytest.mark.parametrize("command", [name for name in FORMS if name not in ("reconcile", "export")])
def test_question_leaves_the_folder_as_it_is(
    command: str, doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = looks(doubtful)
    names = [] if command in ("list", "verify") else [RUN]
    flags = ["--dry-run"] if command == "resume" else []

    said(capfd, command, *names, *flags, "--runs", str(doubtful))

    assert looks(doubtful) == before


@pytest.mark.parametrize("command", ["show", "timeline", "verify", "export"])
@pytest.mark.parametrize(
    ("run_id", "code"), [("absent", "unknown_run"), ("../etc", "invalid_run_id")]
)
def test_run_that_is_not_there_has_a_code(
    command: str, run_id: str, code: str, doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--output", str(doubtful.parent / "out")] if command == "export" else []

    _, found = told(capfd, command, run_id, *flags, "--runs", str(doubtful))

    assert found["refused"]["code"] == code


@pytest.mark.parametrize(
    "words",
    [
        "",
        "dance",
        "list",
        "list --runs",
        "list --runs=",
        "list --runs a --runs b",
        "list --runs a --state-dir b",
        "list extra --runs a",
        "show --runs a",
        "show x --runs a --output b",
        "resume x --runs a",
        "reconcile x y --runs a",
        "reconcile x --outcome committed --evidence f --runs a",
        "verify x --bundle f",
        "verify --bundle f --runs a",
        "export x --runs a",
    ],
)
def test_line_that_cannot_be_meant_is_a_usage_error(
    words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_runs(words.split()) == ExitStatus.USAGE
    line = capfd.readouterr().err
    assert line.startswith("runnerd: usage_invalid: ")
    assert line.endswith("; see runnerd runs --help\n")


def test_state_directory_names_the_folder_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path / "state" / "runs", left().records)

    _, found = told(capfd, "list", "--state-dir", str(tmp_path / "state"))

    assert [row["runId"] for row in found["runs"]] == [RUN]


@pytest.mark.parametrize("module", ["runnerd.daemon", "runnerd.shell"])
def test_daemon_s_start_loads_nothing_of_it(module: str) -> None:
    program = f"import {module}, sys; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert module in loaded
    assert [name for name in loaded if name.startswith(("runnerd.console", "runnerd.runs"))] == []
