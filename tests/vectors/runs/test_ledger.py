"""Group `ledger`: one journal on a real folder, with a write that fails."""

from pathlib import Path
from typing import Any

from msgspec import UNSET

from runnerd.runs.journal import RunJournal
from runnerd.runs.records import Durability, RecordKind, RunRecord
from runnerd.runs.run_store import OpenRun
from runnerd.runs.run_writer import Acknowledgement, Boundary
from tests.vectors.runs.folders import FaultyFilesystem, Folder
from tests.vectors.runs.verdicts import Json, attempted, passes

TIMESTAMP = "2026-01-01T00:00:00.000Z"


class StruckRun:
    """An open run whose disk fails at one record."""

    def __init__(self, run: OpenRun, fs: FaultyFilesystem, fail_at: int | None) -> None:
        self._run = run
        self._fs = fs
        self._fail_at = fail_at
        self.run_id = run.run_id
        self.boundary = Boundary.PROCESS_CRASH

    @property
    def facts(self) -> Any:
        return self._run.facts

    def append(self, record: RunRecord, durability: Durability) -> Acknowledgement:
        self._fs.failing = "write" if record.sequence == self._fail_at else None
        return self._run.append(record, durability)


def test_journal_does_what_the_case_says(ledger_row: dict[str, Any], tmp_path: Path) -> None:
    given = ledger_row["input"]
    folder = Folder(tmp_path / "runs")
    store = folder.store()
    run = store.open_run(given["runId"])
    journal = RunJournal(StruckRun(run, folder.fs, given.get("failAtSequence")))

    results = [performed(journal, step) for step in given["steps"]]

    run.close()
    records = store.read(given["runId"]).records
    store.close()
    passes(
        ledger_row,
        {
            "results": results,
            "flush": attempted(lambda: flushed(journal)),
            "persistedKinds": [record.kind.value for record in records],
            "status": status(journal),
            "rejectedAfterAbort": journal.status.rejected_after_abort,
        },
    )


def performed(journal: RunJournal, step: dict[str, Json]) -> Json:
    if "markAborted" in step:
        journal.mark_aborted(step["markAborted"])
        return "marked"
    if step.get("viaAdmission"):
        return {"admitted": journal.admit(step["payload"], timestamp=TIMESTAMP) is not None}
    return attempted(lambda: appended(journal, step))


def appended(journal: RunJournal, step: dict[str, Json]) -> dict[str, Json]:
    asked = Durability(step["durability"]) if "durability" in step else None
    done = journal.append(
        RecordKind(step["kind"]),
        step.get("payload", UNSET),
        timestamp=TIMESTAMP,
        durability=asked,
    )
    return {"sequence": done.record.sequence, "kind": done.record.kind.value}


def flushed(journal: RunJournal) -> dict[str, Json]:
    journal.flush()
    return {}


def status(journal: RunJournal) -> dict[str, Json]:
    now = journal.status
    if now.is_poisoned:
        return {"state": "poisoned", "failedSequence": now.failed_sequence}
    return {"state": "healthy", "terminal": now.is_terminal}
