"""Tests of `runnerd runs`: what it says, how it refuses, and what it leaves untouched."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode, ExitStatus, exit_status
from runnerd.console.runs_command import run_runs
from runnerd.console.words import FORMS
from runnerd.runs.envelope import tell_story
from runnerd.runs.outcome import outcome_of
from runnerd.runs.records import Durability, OperationEvent, RecordKind, RunRecord
from tests.runnerd.runs.logs import store_in
from tests.runnerd.runs.run_script import AT, PROMPT, RUN, Script, in_step

KEY = f"{RUN}:s1:c1"


def left(*statuses: str) -> Script:
    script = Script()
    script.call(in_step("c1"), "pay")
    for status in statuses:
        script.receipt(in_step("c1"), status, "pay")
    return script


def finished() -> Script:
    script = Script()
    script.event("text", text="done", token="sk-abcdefghijklmnop1234")
    script.add(
        RecordKind.VERIFICATION,
        {
            "exitProven": True,
            "resultValid": True,
            "receiptsSettled": True,
            "noUnsafeCall": True,
        },
    )
    script.operate(OperationEvent.COMPLETE)
    operation = script.operation
    assert operation is not None
    script.add(
        RecordKind.FINISH,
        tell_story(script.records).terminal_payload(
            operation, outcome_of(None, was_denied=False), ended_at=AT, output_chars=4
        ),
    )
    return script


def kept(folder: Path, records: Iterable[RunRecord]) -> Path:
    store = store_in(folder)
    run = store.open_run(RUN)
    for record in records:
        run.append(record, Durability.ORDINARY)
    store.close()
    return folder


def told(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    status = run_runs([*words, "--json"])
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return status, found


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capfd.readouterr()
    status = run_runs(words)
    return status, capfd.readouterr().out


def looks(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.iterdir()
    }


@pytest.fixture
def doubtful(tmp_path: Path) -> Path:
    return kept(tmp_path / "runs", left("started").records)


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


def test_verify_names_the_first_line_that_breaks_the_chain(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = doubtful / f"{RUN}.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"pay", b"pax")
    whole, before = told(capfd, "verify", "--runs", str(doubtful))
    log.write_bytes(b"".join(lines))

    broken, found = told(capfd, "verify", RUN, "--runs", str(doubtful))

    assert (whole, before["runs"][0]["proof"], before["runs"][0]["records"]) == (0, "chained", 5)
    assert (broken, found["runs"][0]["code"]) == (65, "run_state_corrupt")
    assert found["runs"][0]["words"].startswith("line 4:")


def test_verify_reports_a_torn_tail_and_leaves_it(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = doubtful / f"{RUN}.jsonl"
    log.write_bytes(log.read_bytes()[:-9])
    before = looks(doubtful)

    status, found = told(capfd, "verify", "--runs", str(doubtful))

    assert (status, found["runs"][0]["proof"], found["runs"][0]["records"]) == (0, "torn", 4)
    assert looks(doubtful) == before


def test_export_makes_a_bundle_that_verifies_elsewhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = kept(tmp_path / "runs", finished().records)
    first, second = tmp_path / "one.tar", tmp_path / "two.tar"

    status, manifest = told(capfd, "export", RUN, "--runs", str(folder), "--output", str(first))
    told(capfd, "export", RUN, "--runs", str(folder), "--output", str(second))
    proven, found = told(capfd, "verify", "--bundle", str(first))

    assert (status, proven) == (0, 0)
    assert found["runs"][0]["chain"] == manifest["chain"]
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600
    with tarfile.open(first) as archive:
        names = archive.getnames()
        snapshot = json.load(archive.extractfile("snapshot.json"))  # type: ignore[arg-type]
        redactions = json.load(archive.extractfile("redactions.json"))  # type: ignore[arg-type]
    assert names == [
        *("manifest.json", f"{RUN}.jsonl", "snapshot.json", "receipts.json", "redactions.json")
    ]
    assert snapshot["outcome"] == {"status": "succeeded", "finishReason": "completed"}
    assert [(row["sequence"], row["pointer"]) for row in redactions] == [
        (4, "/payload/event/token")
    ]


def test_bundle_with_one_changed_byte_is_refused_wherever_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = kept(tmp_path / "runs", finished().records)
    path = tmp_path / "run.tar"
    told(capfd, "export", RUN, "--runs", str(folder), "--output", str(path))
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        places = [
            entry.offset_data + entry.size * part // 7
            for entry in archive.getmembers()
            for part in range(7)
        ]

    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        status, _ = said(capfd, "verify", "--bundle", str(path))
        assert status == ExitStatus.DATA, place


@pytest.mark.parametrize("content", [b"", b"no tar at all", b"\0" * 2048, b"PK\x03\x04"])
def test_file_that_is_no_bundle_is_refused_with_a_code(
    content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.tar"
    path.write_bytes(content)

    status, found = told(capfd, "verify", "--bundle", str(path))

    assert (status, found["refused"]["code"]) == (65, "run_state_corrupt")


def test_export_never_replaces_a_file(doubtful: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = doubtful.parent / "kept"
    target.write_text("mine")

    status, _ = told(capfd, "export", RUN, "--runs", str(doubtful), "--output", str(target))

    assert (status, target.read_text()) == (ExitStatus.IO, "mine")


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
    assert capfd.readouterr().err.startswith("runnerd: usage_invalid: ")


def test_state_directory_names_the_folder_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept(tmp_path / "state" / "runs", left().records)

    _, found = told(capfd, "list", "--state-dir", str(tmp_path / "state"))

    assert [row["runId"] for row in found["runs"]] == [RUN]


def test_log_without_a_record_proves_nothing_and_breaks_nothing(
    doubtful: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (doubtful / "empty.jsonl").write_bytes(b"")

    status, found = told(capfd, "verify", "--runs", str(doubtful))

    assert status == 0
    assert [(row["runId"], row["proof"]) for row in found["runs"]] == [
        ("empty", "empty"),
        (RUN, "chained"),
    ]


@pytest.mark.parametrize("module", ["runnerd.daemon", "runnerd.shell"])
def test_daemon_s_start_loads_nothing_of_it(module: str) -> None:
    program = f"import {module}, sys; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert module in loaded
    assert [name for name in loaded if name.startswith(("runnerd.console", "runnerd.runs"))] == []
