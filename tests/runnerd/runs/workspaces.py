"""A workspace on the real disk and the checkpoints of one run in it."""

from pathlib import Path
from typing import Any

from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from runnerd.runs.capability import Declaration, resolve_capability
from runnerd.runs.checkpoint import Checkpoints
from runnerd.runs.checkpoint_records import CheckpointRecord
from runnerd.runs.tool_classes import ToolCapability

RUN = "run-a"
NOW = "2026-01-01T00:00:00.000Z"
WRITE = resolve_capability("write").capability


class Site:
    """Directories of a test: the workspace, the store beside it, and what lies outside."""

    def __init__(self, path: Path, fs: PosixFilesystem | None = None, **options: Any) -> None:
        self.workspace = path / "workspace"
        self.store = path / "store"
        self.outside = path / "outside"
        for directory in (self.workspace, self.outside):
            directory.mkdir()
        self.fs = fs or PosixFilesystem()
        self.options = options
        self.checkpoints = self.opened()

    def opened(self) -> Checkpoints:
        return Checkpoints(
            self.fs,
            SystemEntropy(),
            root=str(self.store),
            workspace=str(self.workspace),
            run_id=RUN,
            **self.options,
        )

    def file(
        self, name: str = "notes.txt", content: str | bytes = "old", mode: int = 0o644
    ) -> Path:
        path = self.workspace / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    def saved(self, name: str = "notes.txt") -> CheckpointRecord:
        [record] = self.checkpoints.capture(WRITE, {"path": name}, timestamp=NOW)
        return record

    def changed(self, record: CheckpointRecord, content: str = "new") -> CheckpointRecord:
        """Let the tool write the file, and store what it left."""
        assert isinstance(record.target_path, str)
        Path(record.target_path).write_text(content)
        return self.checkpoints.mark_applied(record)


def declared(**classes: str) -> ToolCapability:
    """Return the capability of a registered tool that writes, with other classes."""
    given: dict[str, Any] = {
        "effect": "workspace",
        "replay": "idempotent",
        "concurrency": "workspace_exclusive",
        "checkpoint": "required",
        "durability": "critical",
        **classes,
    }
    return resolve_capability("own", Declaration(classes=given)).capability
