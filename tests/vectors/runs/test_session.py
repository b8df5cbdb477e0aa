"""Group `session`: a folder of sessions, opened, written, damaged and opened again."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from protocol.base.clock import UnixMs
from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Session, Sessions
from tests.vectors.runs.folders import content_bytes
from tests.vectors.runs.verdicts import Json, attempted, passes

NOW: Final = UnixMs(1_770_000_000_000)


def test_sessions_do_what_the_case_says(session_row: dict[str, Any], tmp_path: Path) -> None:
    case = Case(tmp_path / "sessions", session_row["input"])

    results = [
        {**attempted(case.step(step)), **case.looks()} for step in session_row["input"]["steps"]
    ]

    observed = {"results": results, "versionedRecords": case.versioned_records()}
    passes(without_what_varies(session_row), observed)


class FaultyDisk(PosixFilesystem):
    """A disk that refuses one step of a migration."""

    def __init__(self, fault: str | None = None) -> None:
        self.fault = fault

    def rename(self, directory: int, source: str, target: str) -> None:
        is_commit = "_" in target and target in self.list_directory(directory, 100)
        if self.fault == "beforeTargetCommit" and is_commit:
            raise OSError(errno.EIO, "the target is not committed")
        super().rename(directory, source, target)

    def link_into(self, directory: int, source: str, target_directory: int, target: str) -> None:
        if self.fault == "beforeAliasPublish":
            raise OSError(errno.EIO, "the public name is not given")
        super().link_into(directory, source, target_directory, target)


class Case:
    """A folder of sessions, of which one is looked at."""

    def __init__(self, path: Path, given: dict[str, Json]) -> None:
        self.path = path
        self.given = given
        self.public = path / f"{given['sessionId']}.jsonl"
        path.mkdir(mode=0o700)
        for name, content in given["files"].items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(content_bytes(content))
        self.original = self.public.read_bytes() if self.public.exists() else None
        self.session: Session | None = None

    def sessions(self, fault: str | None = None) -> Sessions:
        entropy = SystemEntropy()
        return Sessions(
            FileSessions(
                FaultyDisk(fault), entropy, PosixLocks(), str(self.path), open_timeout_ms=0
            ),
            entropy,
        )

    def opened(self, fault: str | None = None) -> Session:
        return self.sessions(fault).open(self.given["sessionId"], self.given["cwd"], NOW)

    def step(self, step: dict[str, Json]) -> Callable[[], dict[str, Json]]:
        return lambda: getattr(self, step["op"])(step) or {}

    def exists(self, step: dict[str, Json]) -> dict[str, Json]:
        return {"exists": self.sessions().exists(self.given["sessionId"])}

    def open(self, step: dict[str, Json]) -> dict[str, Json]:
        self.session = session = self.opened()
        return {
            "isNew": session.is_new,
            "messages": session.messages(),
            "branch": [entry.entry_type for entry in session.branch()],
            "seq": session.seq,
        }

    def append(self, step: dict[str, Json]) -> dict[str, Json]:
        assert self.session is not None
        return {"seq": self.session.append(step["messages"], NOW)}

    def migrateWithFault(self, step: dict[str, Json]) -> None:
        self.opened(step["fault"])

    def appendFromStaleHandle(self, step: dict[str, Json]) -> None:
        first, stale = self.opened(), self.opened()
        first.append(step["messages"], NOW)
        stale.append(step["messages2"], NOW)

    def editPublic(self, step: dict[str, Json]) -> None:
        # As an editor does: the other name of the file keeps what it has.
        self.public.unlink(missing_ok=True)
        self.public.write_text(step["text"])

    def removePublic(self, step: dict[str, Json]) -> None:
        self.public.unlink()

    def appendRawToVersioned(self, step: dict[str, Json]) -> None:
        [version] = self.versions()
        with version.open("a") as file:
            file.write(step["text"])

    def versions(self) -> list[Path]:
        return sorted(self.path.glob("--*--/*.jsonl"))

    def looks(self) -> dict[str, Json]:
        backup = self.public.with_name(self.public.name + ".v3.backup")
        return {
            "public": self.state_of_public(),
            "backup": state_of(backup, self.original, "equal_to_original"),
            "versionedFiles": len(
                [file for file in self.versions() if file.name.endswith(f"_{self.public.name}")]
            ),
        }

    def state_of_public(self) -> str:
        if self.public.exists() and any(self.public.samefile(name) for name in self.versions()):
            return "alias_of_versioned_file"
        return state_of(self.public, self.original, "original_bytes")

    def versioned_records(self) -> list[Json]:
        files = [file for file in self.versions() if file.name.endswith(f"_{self.public.name}")]
        lines = files[0].read_text().split("\n") if files else []
        return [parsed(line) for line in lines if line]


def state_of(file: Path, original: bytes | None, word: str) -> str:
    if not file.exists():
        return "absent"
    return word if file.read_bytes() == original else "other"


def parsed(line: str) -> Json:
    try:
        return json.loads(line)
    except ValueError:
        return {"raw": line}


def without_what_varies(case: dict[str, Json]) -> dict[str, Json]:
    """Take away the members whose value no case can know."""
    found: dict[str, Json] = json.loads(json.dumps(case))
    for record in found["expect"].get("versionedRecords", ()):
        for name in [name for name, value in record.items() if "{{" in str(value)]:
            del record[name]
    return found
