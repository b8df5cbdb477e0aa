"""Decides how a fetched folder becomes visible in the cache: finished and verified, or not at all.

Knows nothing of what is fetched.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

STAMP = "verified"
"""The file whose content, the key of the fetch, proves that a folder is complete."""


class FetchFailed(Exception):
    """A peer cannot be had on this machine; the message is the reason shown with the skip."""


def cache_folder() -> Path:
    """Return the folder that keeps fetched peers from one call to the next."""
    return Path(os.environ.get("RUNNERD_INTEROP_CACHE") or REPOSITORY / ".cache" / "interop")


def published(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the cache's folder `name`, built first if it is missing or has another key.

    Args:
        key: what the content depends on; a folder built for another key is made anew.
        build: fills the empty folder that it is given, and verifies what it put there.

    Raises:
        FetchFailed: from ``build``; nothing is published then.
    """
    folder = cache_folder() / name
    if _is_published(folder, key):
        return folder
    with cache_lock("fetch.lock"):
        if not _is_published(folder, key):
            _publish(folder, key, build)
    return folder


@contextmanager
def cache_lock(name: str) -> Generator[None]:
    """Hold a lock of the cache against other processes; the kernel drops it with its holder."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / name).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_published(folder: Path, key: str) -> bool:
    try:
        return (folder / STAMP).read_text() == key
    except OSError:
        return False


def _publish(folder: Path, key: str, build: Callable[[Path], None]) -> None:
    for leftover in folder.parent.glob(".building-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=folder.parent))
    try:
        build(building)
        (building / STAMP).write_text(key)
        if folder.exists():
            shutil.rmtree(folder)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_script(path: Path, text: str) -> None:
    """Put an executable script in place; a process that is starting it sees a whole one."""
    if path.is_file() and path.read_text() == text:
        return
    with cache_lock("script.lock"):
        fresh = path.with_name(f"{path.name}.new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(path)


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    timeout_s: float = 300,
) -> str:
    """Return what a tool printed.

    Raises:
        FetchFailed: it is missing, failed, or took longer than ``timeout_s``.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise FetchFailed(f"{what}: {command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(f"{what}: no answer within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise FetchFailed(f"{what}: {' / '.join(lines[:3]) or f'exit {done.returncode}'}")
    return done.stdout
