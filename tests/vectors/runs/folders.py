"""A run folder as the cases of the store describe one, on the real disk.

It decides how a case's files are laid out and what is said of them afterwards. It refuses
to judge the store.
"""

import base64
import errno
import os
from pathlib import Path
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from runnerd.runs.run_log import LogFormat
from runnerd.runs.run_store import RunStore
from tests.vectors.runs.verdicts import Json

DEAD_PID: Final = "2147483647"


class FaultyFilesystem(PosixFilesystem):
    """A disk whose next call of one name fails."""

    def __init__(self) -> None:
        self.failing: str | None = None

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self._strike("write")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._strike("sync")
        super().sync(descriptor)

    def _strike(self, call: str) -> None:
        if self.failing == call:
            self.failing = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class Folder:
    """The folder of one case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(mode=0o700)
        self.fs = FaultyFilesystem()

    def store(self, lock_timeout_ms: int = 10_000) -> RunStore:
        return RunStore(
            self.fs,
            SystemEntropy(),
            PosixLocks(),
            str(self.path),
            new_format=LogFormat.PLAIN,
            lock_timeout_ms=lock_timeout_ms,
        )

    def lay_out(self, files: dict[str, Json]) -> None:
        for name, content in files.items():
            (self.path / name).write_bytes(content_bytes(content))

    def said_of(self, name: str, before: dict[str, Json]) -> Json:
        """Return absent, unchanged, or what the file was mended to."""
        path = self.path / name
        if not path.exists():
            return "absent"
        data = path.read_bytes()
        if name in before and data == content_bytes(before[name]):
            return "unchanged"
        return {"repaired": content_json(data)}

    def content(self, name: str) -> Json:
        path = self.path / name
        return content_json(path.read_bytes()) if path.exists() else "absent"

    def names(self) -> list[str]:
        """Return the names that a listing shows; our permanent locks begin with a dot."""
        return sorted(name for name in os.listdir(self.path) if not name.startswith("."))


def content_bytes(content: Json) -> bytes:
    if "base64" in content:
        return base64.b64decode(content["base64"])
    text: str = content["text"]
    return text.replace("{{DEAD_PID}}", DEAD_PID).replace("{{LIVE_PID}}", str(os.getpid())).encode()


def content_json(data: bytes) -> Json:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
