"""Tests of runs that a recorder finds and does not begin: settled or cancelled after a process."""

from pathlib import Path

import msgspec
import pytest

from protocol.ids import Generation
from runnerd.core.verdict import CANCELLED, Verdict
from tests.runnerd.harness.test_recorder import (
    BEGUN,
    DONE,
    STOPPED,
    exited,
    failed,
    left_by_a_dead_process,
    order,
    recorder,
    status,
    told,
)


def test_settling_pauses_what_a_dead_process_left_and_does_so_once(tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path)

    assert recorder(tmp_path).settle(Generation(1)) is None
    assert recorder(tmp_path).settle(Generation(1)) is None

    assert told(tmp_path) == [*BEGUN, "PAUSE", "pause"]
    assert status(tmp_path) == ("paused", "process_interrupted")


def test_settling_of_a_run_without_a_log_makes_none(tmp_path: Path) -> None:
    assert recorder(tmp_path / "runs").settle(Generation(1)) is None
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verdict", [DONE, failed("harness_process_failed")])
def test_end_that_was_recorded_and_never_told_is_told_by_the_next_process(
    verdict: Verdict, tmp_path: Path
) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    end = exited(code=0 if verdict is DONE else 1)
    recorded = one.end(end, verdict, (), output_chars=0)

    found = recorder(tmp_path).settle(Generation(1))

    assert found == msgspec.structs.replace(end, recorded=recorded)
    assert recorder(tmp_path).settle(Generation(2)) is None


@pytest.mark.parametrize(
    ("verdict", "kept", "run_state"),
    [
        (DONE, "COMPLETE", "succeeded"),
        (failed("harness_process_failed"), "FAIL", "failed"),
        (failed("run_cancelled", "cancelled", "cancelled"), "FAIL", "cancelled"),
        (failed("run_cancelled", "cancelled", "cancelled"), "REQUEST_ABORT", "cancelled"),
    ],
)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_end_whose_last_records_a_kill_took_away_is_recorded_by_the_next_process(
    verdict: Verdict, kept: str, run_state: str, is_cancelled: bool, tmp_path: Path
) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    one.end(exited(code=0 if verdict is DONE else 1), verdict, (), output_chars=0)
    whole = told(tmp_path)
    log = tmp_path / "run-1.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: whole.index(kept) + 1]))

    if is_cancelled:
        recorded = recorder(tmp_path).cancel()
    else:
        found = recorder(tmp_path).settle(Generation(1))
        assert found is not None
        recorded = found.recorded

    assert recorded is not None
    assert recorded.verdict.outcome is not None
    assert recorded.verdict.outcome.run_state == run_state
    assert recorded.snapshot is not None
    assert told(tmp_path) == whole
    assert status(tmp_path)[0] == "finished"


def test_waiting_run_that_is_cancelled_is_aborted_once_and_has_its_snapshot(
    tmp_path: Path,
) -> None:
    one = recorder(tmp_path)
    one.begin(order())
    one.end(exited(code=None), STOPPED, (), output_chars=0)

    first = recorder(tmp_path).cancel()
    again = recorder(tmp_path).cancel()

    assert first == again
    assert first is not None
    assert first.verdict == Verdict(outcome=CANCELLED)
    assert first.snapshot is not None
    assert told(tmp_path) == [*BEGUN, "PAUSE", "pause", "REQUEST_ABORT", "FAIL", "finish"]
    assert status(tmp_path) == ("finished", "aborted")


def test_cancel_changes_no_run_that_has_ended_and_makes_no_log(tmp_path: Path) -> None:
    one = recorder(tmp_path / "one")
    one.begin(order())
    one.end(exited(), DONE, (), output_chars=0)
    before = (tmp_path / "one" / "run-1.jsonl").read_bytes()

    assert recorder(tmp_path / "one").cancel() is not None
    assert recorder(tmp_path / "none").cancel() is None

    assert (tmp_path / "one" / "run-1.jsonl").read_bytes() == before
    assert not (tmp_path / "none").exists()
