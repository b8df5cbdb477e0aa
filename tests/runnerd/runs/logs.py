"""Records and folders for tests of the run log."""

from pathlib import Path
from typing import Any

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.canonical_json import JsonValue
from runnerd.runs.records import RecordKind, RunRecord
from runnerd.runs.run_log import LogFormat
from runnerd.runs.run_store import RunStore

RUN = "run-a"
NOW = "2026-01-01T00:00:00.000Z"


def record(sequence: int, payload: JsonValue = None, **members: Any) -> RunRecord:
    """Return a record of `RUN`; ``members`` replace others."""
    kind = RecordKind.START if sequence == 1 else RecordKind.EVENT
    values: dict[str, Any] = {
        "run_id": RUN,
        "sequence": sequence,
        "timestamp": NOW,
        "kind": kind,
        "payload": {"n": sequence} if payload is None else payload,
    }
    return RunRecord(**{**values, **members})


def store_in(
    folder: Path,
    *,
    fs: PosixFilesystem | None = None,
    new_format: LogFormat = LogFormat.CHAINED,
    lock_timeout_ms: int = 0,
) -> RunStore:
    """Return a store on the real disk."""
    return RunStore(
        fs or PosixFilesystem(),
        SystemEntropy(),
        PosixLocks(),
        str(folder),
        new_format=new_format,
        lock_timeout_ms=lock_timeout_ms,
    )
