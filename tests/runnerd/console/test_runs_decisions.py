"""Tests of `runnerd runs resume --dry-run` and `reconcile`: what waits, and who decides it."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode, ExitStatus, exit_status
from runnerd.console.runs_command import run_runs
from tests.runnerd.console.kept_runs import KEY, kept, left, looks, said, told
from tests.runnerd.runs.logs import store_in
from tests.runnerd.runs.run_script import PROMPT, RUN, in_step


def test_dry_run_refuses_what_a_resumption_would_refuse_and_names_the_record(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, found = told(capfd, "resume", "--dry-run", RUN, "--runs", str(doubtful))

    assert status == exit_status(ErrorCode.UNKNOWN_EFFECT) == ExitStatus.RUN_UNKNOWN
    assert found["wouldResume"] is False
    assert found["refusal"]["code"] == "unknown_effect"
    assert found["refusal"]["sequence"] == 5


@pytest.mark.parametrize(
    ("statuses", "verdict"), [(("not_started",), "reconsider"), (("started", "committed"), "skip")]
)
def test_dry_run_says_what_becomes_of_each_effect(
    statuses: tuple[str, ...], verdict: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = left(*statuses)
    if verdict == "skip":
        script.output("s1")
        script.call(in_step("c2", "s2"), "pay")
        script.receipt(in_step("c2", "s2"), "not_started", "pay")
    folder = kept(tmp_path / "runs", script.records)

    status, found = told(capfd, "resume", "--dry-run", RUN, "--runs", str(folder))

    assert (status, found["wouldResume"]) == (0, True)
    assert found["operationEvents"] == ["PAUSE(process_interrupted)", "RESUME"]
    accounts = [*found["steps"], *found["effects"]]
    assert accounts[0]["verdict"] == verdict


def test_dry_run_compares_configuration_and_prompt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = kept(tmp_path / "runs", left("not_started").records)
    config = tmp_path / "config.json"
    config.write_text('{"name":"demo"}')
    ask = ("resume", "--dry-run", RUN, "--runs", str(folder))

    same, _ = told(capfd, *ask, "--config", str(config), "--prompt", PROMPT)
    config.write_text('{"name":"another"}')
    other, found = told(capfd, *ask, "--config", str(config))
    prompt, asked = told(capfd, *ask, "--prompt", "something else")

    assert same == 0
    assert (other, found["refusal"]["code"]) == (64, "resume_config_mismatch")
    assert (prompt, asked["refusal"]["code"]) == (64, "resume_input_mismatch")


def test_reconcile_records_who_decided_on_which_evidence_and_unblocks_the_run(
    doubtful: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evidence = tmp_path / "ledger.txt"
    evidence.write_text("order 7 is paid")
    reconcile = ("reconcile", RUN, "c1", "--runs", str(doubtful), "--outcome", "committed")

    status, found = told(
        capfd, *reconcile, "--evidence", str(evidence), "--by", "R. Example", "--statement", "ok"
    )
    after, view = told(capfd, "resume", "--dry-run", RUN, "--runs", str(doubtful))
    again, refused = told(capfd, *reconcile, "--evidence", str(evidence))

    assert status == 0
    payload = found["payload"]
    assert payload["decided_by" if "decided_by" in payload else "decidedBy"] == {
        "kind": "person",
        "name": "R. Example",
    }
    assert (payload["effectId"], payload["outcome"]) == (KEY, "committed")
    assert (after, view["decided"]) == (0, [KEY])
    assert (again, refused["refused"]["code"]) == (65, "effect_receipt_conflict")


@pytest.mark.parametrize(
    ("outcome", "content", "code"),
    [("maybe", "x", "usage_invalid"), ("not-done", "", "usage_invalid")],
)
def test_reconcile_without_a_clear_decision_and_evidence_changes_nothing(
    outcome: str,
    content: str,
    code: str,
    doubtful: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    evidence = tmp_path / "evidence"
    evidence.write_text(content)
    before = looks(doubtful)

    status, found = told(
        capfd,
        *("reconcile", RUN, "c1", "--runs", str(doubtful)),
        *("--outcome", outcome, "--evidence", str(evidence)),
    )

    assert (status, found["refused"]["code"]) == (64, code)
    assert looks(doubtful) == before


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("reconcile", RUN, "c1", "--outcome", "committed", "--evidence"), "--evidence"),
        (("resume", "--dry-run", RUN, "--config"), "--config"),
    ],
)
def test_file_that_cannot_be_read_is_named_by_its_flag(
    flags: tuple[str, ...], flag: str, doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, found = told(capfd, *flags, str(doubtful / "absent"), "--runs", str(doubtful))

    words = f"the file of {flag} cannot be read: No such file or directory"
    assert (status, found["refused"]["words"]) == (64, words)


@pytest.mark.parametrize(
    "flags",
    [
        ("--by", ""),
        ("--by", " "),
        ("--by", "x" * 5_000),
        ("--authority", "\u3000"),
        ("--by", "a", "--authority", "b"),
        ("--statement", ""),
        ("--statement", "x" * 5_000),
    ],
)
def test_decision_that_no_reader_would_take_is_not_written(
    flags: tuple[str, ...], doubtful: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    evidence = tmp_path / "evidence"
    evidence.write_text("seen")
    before = looks(doubtful)

    status, _ = said(
        capfd,
        *("reconcile", RUN, "c1", "--runs", str(doubtful)),
        *("--outcome", "committed", "--evidence", str(evidence), *flags),
    )

    assert status == ExitStatus.USAGE
    assert looks(doubtful) == before


def test_reconcile_waits_for_no_living_writer_and_names_it(
    doubtful: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = tmp_path / "evidence"
    evidence.write_text("seen")
    monkeypatch.setattr("runnerd.console.runs_command.LOCK_WAIT_MS", 0)
    store = store_in(doubtful)
    run = store.open_run(RUN)

    status = run_runs(
        [
            *("reconcile", RUN, "c1", "--runs", str(doubtful)),
            *("--outcome", "not-done", "--evidence", str(evidence)),
        ]
    )
    run.close()
    store.close()

    assert status == exit_status(ErrorCode.RUN_STATE_LOCKED) == ExitStatus.CANNOT_CREATE
