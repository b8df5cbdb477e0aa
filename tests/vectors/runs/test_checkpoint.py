"""Group `checkpoint`: a fresh workspace, a tool that changes files, and what is put back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from protocol.limits import CHECKPOINT_BYTES_MAX
from runnerd.runs.capability import Declaration, resolve_capability
from runnerd.runs.checkpoint import DEFAULT_PATH_FIELDS, Checkpoints
from runnerd.runs.checkpoint_records import CheckpointRecord, Correlation, FileState
from runnerd.runs.records import struct_members
from runnerd.runs.tool_classes import CapabilitySource, ToolCapability
from tests.vectors.runs.verdicts import Json, attempted, passes


def test_checkpoints_do_what_the_case_says(checkpoint_row: dict[str, Any], tmp_path: Path) -> None:
    case = Case(tmp_path, checkpoint_row["input"])

    results = [attempted(case.step(step)) for step in checkpoint_row["input"]["steps"]]

    passes(with_place(checkpoint_row, tmp_path), {"results": results})


class Case:
    """A workspace and the checkpoints of one run."""

    def __init__(self, path: Path, given: dict[str, Json]) -> None:
        self.path = path
        self.given = given
        self.checkpoints = self.opened()
        self.records: tuple[CheckpointRecord, ...] = ()

    def opened(self) -> Checkpoints:
        return Checkpoints(
            PosixFilesystem(),
            SystemEntropy(),
            root=str(self.path / ".state" / "checkpoints"),
            workspace=str(self.path),
            run_id=self.given["runId"],
            file_bytes_max=self.given.get("maxFileBytes", CHECKPOINT_BYTES_MAX),
        )

    def step(self, step: dict[str, Json]) -> Callable[[], dict[str, Json]]:
        return lambda: getattr(self, step["op"])(step) or {}

    def write(self, step: dict[str, Json]) -> None:
        (self.path / step["path"]).write_text(step["text"])

    def delete(self, step: dict[str, Json]) -> None:
        (self.path / step["path"]).unlink()

    def symlink(self, step: dict[str, Json]) -> None:
        (self.path / step["path"]).symlink_to(step["target"])

    def capture(self, step: dict[str, Json]) -> dict[str, Json]:
        self.records = self.checkpoints.capture(
            capability_of(step),
            step["args"],
            timestamp="2026-01-01T00:00:00.000Z",
            path_fields=step.get("pathFields", DEFAULT_PATH_FIELDS),
            correlation=msgspec.convert(step.get("correlation", {}), Correlation),
        )
        return {"records": [struct_members(record) for record in self.records]}

    def markApplied(self, step: dict[str, Json]) -> None:
        self.records = tuple(self.checkpoints.mark_applied(record) for record in self.records)

    def diff(self, step: dict[str, Json]) -> dict[str, Json]:
        return {"diff": struct_members(self.checkpoints.diff(self.records[0]))}

    def restore(self, step: dict[str, Json]) -> None:
        expected = step.get("expectedCurrent")
        self.checkpoints.restore(
            self.records[0], None if expected is None else msgspec.convert(expected, FileState)
        )

    def reopenAndRestore(self, step: dict[str, Json]) -> None:
        [record] = self.records
        self.checkpoints.close()
        self.checkpoints = self.opened()
        before_the_tool = {
            name: value
            for name, value in struct_members(record).items()
            if not name.startswith("after")
        }
        self.checkpoints.restore(msgspec.convert(before_the_tool, CheckpointRecord))

    def tamperSnapshot(self, step: dict[str, Json]) -> None:
        file = Path(self.records[0].snapshot_file)
        snapshot = json.loads(file.read_text())
        snapshot["content"] |= step["set"]
        file.write_text(json.dumps(snapshot, separators=(",", ":")) + "\n")

    def check(self, step: dict[str, Json]) -> dict[str, Json]:
        file = self.path / step["path"]
        return {"content": file.read_text() if file.exists() else None}


def capability_of(step: dict[str, Json]) -> ToolCapability:
    given = step.get("capability")
    if given is None:
        return resolve_capability(step["tool"]).capability
    declaration = Declaration(
        classes=given["declaration"], source=CapabilitySource(given["source"])
    )
    return resolve_capability(given["tool"], declaration).capability


def with_place(case: dict[str, Json], path: Path) -> dict[str, Json]:
    """Put the workspace into what is expected; what varies by nature is not compared."""
    text = json.dumps(case).replace("{{CWD}}", str(path))
    found: dict[str, Json] = json.loads(text)
    for result in found["expect"]["results"]:
        for record in result.get("records", ()):
            for name in [name for name, value in record.items() if "{{" in str(value)]:
                del record[name]
        if "diff" in result:
            del result["diff"]["checkpointId"]
    return found
