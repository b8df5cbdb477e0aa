"""Tests of `runnerd runs` at its bounds: long runs and names, odd texts, absent places."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from protocol.limits import RUN_LOG_ID_LENGTH_MAX
from runnerd.io.state_file import STATE_FILE_NAME
from runnerd.runs.records import Durability
from tests.runnerd.console.kept_runs import finished, kept, said, told
from tests.runnerd.runs.logs import store_in
from tests.runnerd.runs.long_run import write_long_log
from tests.runnerd.runs.run_script import RUN, Script

LONGEST = "r" * RUN_LOG_ID_LENGTH_MAX


@pytest.mark.parametrize("command", ["list", "verify"])
@pytest.mark.parametrize("flag", ["--runs", "--state-dir"])
def test_place_that_is_not_there_is_no_place_without_runs(
    command: str, flag: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    for place in (tmp_path / "absent", tmp_path / "file"):
        status, found = told(capfd, command, flag, str(place))
        assert (status, found["refused"]["code"]) == (64, "usage_invalid")

    status, found = told(capfd, command, "--state-dir", str(tmp_path))
    assert (status, found["refused"]["code"]) == (64, "usage_invalid")

    # A runner that has not run anything yet has no folder of runs.
    (tmp_path / STATE_FILE_NAME).touch()
    assert told(capfd, command, "--state-dir", str(tmp_path)) == (0, {"runs": []})


def test_run_with_more_facts_than_one_message_may_have_is_taken_along(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs, bundle = tmp_path / "runs", tmp_path / "run.tar"
    runs.mkdir(mode=0o700)
    write_long_log(runs, 10_000)

    status, made = told(capfd, "export", RUN, "--output", str(bundle), "--runs", str(runs))
    again, found = told(capfd, "verify", "--bundle", str(bundle))

    assert (status, again) == (0, 0)
    assert made["records"] == found["runs"][0]["records"] == 10_015


def test_run_with_the_longest_name_is_kept_shown_and_taken_along(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs, bundle = tmp_path / "runs", tmp_path / "run.tar"
    run = store_in(runs).open_run(LONGEST)
    for record in Script().records[:1]:
        run.append(msgspec.structs.replace(record, run_id=LONGEST), Durability.CRITICAL)
    run.close()

    shown = said(capfd, "show", LONGEST, "--runs", str(runs))
    status, _ = told(capfd, "export", LONGEST, "--output", str(bundle), "--runs", str(runs))
    again, found = told(capfd, "verify", "--bundle", str(bundle))
    longer = told(capfd, "show", f"{LONGEST}r", "--runs", str(runs))

    assert (shown[0], status, again) == (0, 0, 0)
    assert found["runs"][0]["runId"] == LONGEST
    assert longer[1]["refused"]["code"] == "invalid_run_id"


def test_run_whose_end_makes_no_envelope_is_taken_along_without_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = finished()
    records = list(script.records)
    # Half a character has no text in any envelope.
    other = Script()
    other.event("text", text="\ud800")
    records[3] = other.records[3]
    runs, bundle = kept(tmp_path / "runs", records), tmp_path / "run.tar"

    status, made = told(capfd, "export", RUN, "--output", str(bundle), "--runs", str(runs))
    again, _ = told(capfd, "verify", "--bundle", str(bundle))

    assert (status, again) == (0, 0)
    assert "snapshot.json" not in made["files"]


def test_bundle_that_does_not_fit_on_the_disk_is_not_left_half(tmp_path: Path) -> None:
    runs, bundle = kept(tmp_path / "runs", finished().records), tmp_path / "run.tar"
    export = f"{sys.executable} -m runnerd runs export {RUN} --output {bundle} --runs {runs}"

    # One block of 512 bytes is all that a file may have.
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -f 1; exec {export}"], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 74
    assert ended.stderr.startswith("runnerd: run_state_failed: the bundle: ")
    assert not bundle.exists()


def test_list_tells_a_log_that_cannot_be_read_from_a_damaged_and_from_an_empty_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.jsonl").write_bytes(b"{}\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "owned.jsonl").touch()
    (tmp_path / "owned.jsonl.lock").write_text("{}")

    status, text = said(capfd, "list", "--runs", str(tmp_path))

    assert status == 0
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [
        ["broken", "damaged"],
        ["empty", "empty"],
        ["folder", "unreadable"],
        ["owned", "locked"],
    ]


@pytest.mark.parametrize("words", ["--help", "-h", "list --help", "reconcile -h"])
def test_help_is_shown_without_a_folder(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = said(capfd, *words.split())

    assert (status, text.split()[:3]) == (0, ["usage:", "runnerd", "runs"])
