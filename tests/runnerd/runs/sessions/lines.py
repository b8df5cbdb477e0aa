"""Lines of legacy and versioned sessions, as tests write them."""

import json
from pathlib import Path
from typing import Any

from protocol.base.clock import UnixMs
from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.session import Session, Sessions

ID = "s1"
PUBLIC = f"{ID}.jsonl"
CWD = "/workspace/demo"
NOW = UnixMs(1_770_000_000_000)
CREATED_AT = 1_767_225_600_000
LEGACY_TIME = "2026-01-01T00:00:01.000Z"
ENTRY_MS = CREATED_AT + 1000
VERSION_NAME = "--workspace-demo--/2026-01-01T00-00-00-000Z_s1.jsonl"

Line = dict[str, Any]


def legacy_header(**members: Any) -> Line:
    return {
        "type": "session",
        "version": 3,
        "id": ID,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": CWD,
        **members,
    }


def legacy(entry_type: str, entry_id: str, parent: str | None, **members: Any) -> Line:
    return {
        "type": entry_type,
        "id": entry_id,
        "parentId": parent,
        "timestamp": LEGACY_TIME,
        **members,
    }


def legacy_message(entry_id: str, parent: str | None) -> Line:
    return legacy("message", entry_id, parent, message=message(entry_id))


def header(**members: Any) -> Line:
    return {
        "kind": "header",
        "version": 4,
        "id": ID,
        "createdAt": CREATED_AT,
        "cwd": CWD,
        **members,
    }


def entry(seq: int, entry_id: str, parent: str | None, **members: Any) -> Line:
    return {
        "kind": "entry",
        "lane": "main",
        "type": "message",
        "id": entry_id,
        "seq": seq,
        "parentId": parent,
        "timestamp": ENTRY_MS,
        "message": message(entry_id),
        **members,
    }


def message(text: str) -> Line:
    return {"id": f"m-{text}", "role": "user", "content": [{"type": "text", "text": text}]}


def data(*lines: Line) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def sessions_in(folder: Path, fs: PosixFilesystem | None = None) -> Sessions:
    """Return the sessions of a folder on the real disk, as another process would."""
    entropy = SystemEntropy()
    backend = FileSessions(
        fs or PosixFilesystem(), entropy, PosixLocks(), str(folder), open_timeout_ms=0
    )
    return Sessions(backend, entropy)


def opened(folder: Path, session_id: str = ID) -> Session:
    return sessions_in(folder).open(session_id, CWD, NOW)


def ids(session: Session) -> list[Any]:
    """Return the ids of a conversation's messages."""
    return [found.get("id", found["role"]) for found in session.messages()]


def laid_out(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file that is no lock, by its name: bytes and inode."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_ino)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
