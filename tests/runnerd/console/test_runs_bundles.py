"""Tests of `runnerd runs verify` and `export`: what a chain proves here and elsewhere."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ExitStatus
from tests.runnerd.console.kept_runs import finished, kept, looks, said, told
from tests.runnerd.runs.run_script import RUN


def loaded(archive: tarfile.TarFile, name: str) -> Any:
    member = archive.extractfile(name)
    assert member is not None
    return json.load(member)


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
        snapshot, redactions = loaded(archive, "snapshot.json"), loaded(archive, "redactions.json")
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

    status, found = told(capfd, "export", RUN, "--runs", str(doubtful), "--output", str(target))

    assert (status, target.read_text()) == (ExitStatus.USAGE, "mine")
    assert "--output" in found["refused"]["words"]


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
