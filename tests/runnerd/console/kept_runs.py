"""Run logs on a disk, and what `runnerd runs` says of them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from runnerd.console.runs_command import run_runs
from runnerd.runs.envelope import tell_story
from runnerd.runs.outcome import outcome_of
from runnerd.runs.records import Durability, OperationEvent, RecordKind, RunRecord
from tests.runnerd.runs.logs import store_in
from tests.runnerd.runs.run_script import AT, RUN, Script, in_step

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
