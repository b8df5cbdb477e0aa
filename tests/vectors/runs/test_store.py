"""Groups `store_read`, `store_append` and `store_lock`, on a real folder."""

from pathlib import Path
from typing import Any

import pytest

from protocol.canonical_json import JsonValue
from runnerd.runs.records import Durability, read_record
from runnerd.runs.run_store import RunStore
from runnerd.runs.run_writer import Acknowledgement
from tests.vectors.runs.folders import Folder
from tests.vectors.runs.verdicts import Json, attempted, passes

RUN_FILE = "run-a.jsonl"
FAULTS = {"beforeCommit": "write", "beforeBarrier": "sync"}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "runs")


def test_log_is_read_as_the_case_says(store_read_row: dict[str, Any], folder: Folder) -> None:
    given = store_read_row["input"]
    folder.lay_out(given["files"])
    store = folder.store()

    observed = attempted(lambda: read(store, given["runId"]))

    store.close()
    observed["file"] = folder.said_of(RUN_FILE, given["files"])
    observed["leftovers"] = [name for name in folder.names() if name != RUN_FILE]
    passes(store_read_row, observed)


def test_records_are_appended_as_the_case_says(
    store_append_row: dict[str, Any], folder: Folder
) -> None:
    given = store_append_row["input"]
    if "initialFile" in given:
        folder.lay_out({RUN_FILE: given["initialFile"]})
    stores = {"A": folder.store(), "B": folder.store()}

    results = [
        performed(folder, stores[step.get("writer", "A")], given["runId"], step)
        for step in given["steps"]
    ]

    for store in stores.values():
        store.close()
    passes(
        store_append_row,
        {
            "results": results,
            "file": folder.content(RUN_FILE),
            "leftovers": [name for name in folder.names() if name != RUN_FILE],
        },
    )


def test_lock_is_obeyed_as_the_case_says(store_lock_row: dict[str, Any], folder: Folder) -> None:
    given = store_lock_row["input"]
    folder.lay_out(given["files"])
    store = folder.store(lock_timeout_ms=given["lockTimeoutMs"])

    if given["op"] == "read":
        observed = attempted(lambda: read(store, given["runId"]))
    else:
        observed = attempted(lambda: append(store, given["append"], "ordinary"))

    store.close()
    observed["filesAfter"] = folder.names()
    passes(store_lock_row, observed)


def read(store: RunStore, run_id: str) -> dict[str, Json]:
    records = store.read(run_id).records
    return {
        "recordCount": len(records),
        "sequences": [record.sequence for record in records],
        "kinds": [record.kind.value for record in records],
    }


def append(store: RunStore, members: dict[str, JsonValue], durability: str) -> dict[str, Json]:
    record = read_record(members, str(members["runId"]))
    return acknowledged(store.append(record, Durability(durability)))


def acknowledged(acknowledgement: Acknowledgement) -> dict[str, Json]:
    return {
        "acknowledgement": {
            "requested": acknowledgement.requested.value,
            "achieved": acknowledgement.achieved.value,
            "boundary": acknowledgement.boundary.value,
        }
    }


def performed(folder: Folder, store: RunStore, run_id: str, step: dict[str, Json]) -> Json:
    if "append" in step:
        folder.fs.failing = FAULTS.get(step.get("fault", ""))
        durability = step.get("durability", "ordinary")
        result = attempted(lambda: append(store, step["append"], durability))
        assert folder.fs.failing is None, "the fault did not strike"
        return result
    if "read" in step:
        return attempted(lambda: read(store, run_id))
    if "barrier" in step:
        barrier = Durability(step["barrier"])
        return attempted(lambda: acknowledged(store.barrier(run_id, barrier)))
    path = folder.path / RUN_FILE
    if "replaceFile" in step:
        path.write_text(step["replaceFile"], encoding="utf-8")
        return "replaced"
    path.unlink()
    return "deleted"
