"""The system calls of real saves, seen and struck from outside by strace (faults 6.1, S01, S06)."""

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.base.atomic_file import AtomicFile
from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from tests.process.tracer import need_strace

pytestmark = [pytest.mark.crash, pytest.mark.process]

ROOT = Path(__file__).resolve().parents[2]
CALLS = "openat,write,fsync,close,rename,renameat,renameat2,unlink,unlinkat,mkdir"
SAVES = """
import sys
from protocol.base.atomic_file import AtomicFile, WriteFailed
from protocol.base.posix_fs import PosixFilesystem, SystemEntropy

file = AtomicFile(PosixFilesystem(), SystemEntropy(), directory=sys.argv[1], name="state.json",
                  schema="test.state.v1", size_max=4096)
file.open_directory()
file.remove_leftovers()
file.recover()
for number in range(3):
    try:
        file.replace(b'{"save":%d}' % number)
    except WriteFailed as failure:
        print(failure.code.value, flush=True)
        sys.exit(1)
    print(number, flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def _tracing() -> None:
    need_strace()


class Traced:
    """One process that saves under strace: what it said, and what it asked the kernel for."""

    def __init__(self, directory: Path, *injections: str) -> None:
        trace = directory.with_suffix(".trace")
        options = ["-qq", "-y", "-o", str(trace), "-e", f"trace={CALLS}"]
        for fault in injections:
            options += ["-e", f"inject={fault}"]
        ended = subprocess.run(
            [need_strace(), *options, "--", sys.executable, "-c", SAVES, str(directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        self.said = ended.stdout.split()
        lines = trace.read_text(errors="replace").splitlines()
        # What Python asks for before the directory is made is not under test.
        first = next((n for n, line in enumerate(lines) if f'"{directory}"' in line), len(lines))
        self.lines = [line for line in lines[first:] if "<pipe:" not in line]
        self._names = [line.partition("(")[0] for line in lines]
        self._first = first

    def index(self, call: str) -> range:
        """Return which calls of this name, counted by strace from 1, belong to the saves."""
        before = self._names[: self._first].count(call)
        return range(before + 1, self._names.count(call) + 1)


def found(directory: Path) -> bytes | None:
    file = AtomicFile(
        PosixFilesystem(),
        SystemEntropy(),
        directory=str(directory),
        name="state.json",
        schema="test.state.v1",
        size_max=4096,
    )
    file.open_directory()
    file.remove_leftovers()
    content = file.recover()
    file.close()
    return content


def test_each_save_asks_for_six_calls_in_the_order_that_makes_it_durable(tmp_path: Path) -> None:
    traced = Traced(tmp_path / "state")

    assert traced.said == ["0", "1", "2"]
    calls = [line.partition("(")[0].replace("renameat2", "renameat") for line in traced.lines]
    save = ["openat", "write", "fsync", "close", "renameat", "fsync"]
    text = " ".join(calls)
    assert text.count(" ".join(save)) == 3
    created = [line for line in traced.lines if ".tmp" in line and line.startswith("openat")]
    assert len(created) == 3
    assert all("O_EXCL" in line and "O_NOFOLLOW" in line and "0600" in line for line in created)


def test_killed_process_leaves_what_it_said_or_the_save_under_way(tmp_path: Path) -> None:
    clean = Traced(tmp_path / "clean")
    struck = 0

    for call in ("openat", "write", "fsync", "renameat", "renameat2", "rename"):
        for number in clean.index(call):
            directory = tmp_path / f"{call}-{number}"
            said = Traced(directory, f"{call}:signal=SIGKILL:when={number}").said
            if said == clean.said:
                continue
            struck += 1
            allowed = {b'{"save":%d}' % n for n in (len(said) - 1, len(said)) if n >= 0}
            content = found(directory) if directory.exists() else None
            assert content in allowed or (content is None and not said), (call, number)

    assert struck >= 12


def test_failed_sync_is_not_tried_again_on_the_same_descriptor(tmp_path: Path) -> None:
    clean = Traced(tmp_path / "clean")
    syncs = [line for line in clean.lines if line.startswith("fsync")]
    first_of_saves = next(n for n, line in enumerate(syncs) if ".tmp" in line)
    number = clean.index("fsync")[first_of_saves]

    traced = Traced(tmp_path / "struck", f"fsync:error=EIO:when={number}")

    assert traced.said == ["storage_write_failed"]
    after = traced.lines[next(n for n, line in enumerate(traced.lines) if "EIO" in line) + 1 :]
    assert [line.partition("(")[0] for line in after if ".tmp" in line] == ["close", "unlinkat"]
    assert not any(line.startswith("fsync") for line in after)
    assert found(tmp_path / "struck") is None


def test_failed_directory_sync_is_final(tmp_path: Path) -> None:
    clean = Traced(tmp_path / "clean")
    number = clean.index("fsync")[-1]

    traced = Traced(tmp_path / "struck", f"fsync:error=EIO:when={number}")

    assert traced.said == ["0", "1", "storage_sync_failed"]
    assert found(tmp_path / "struck") == b'{"save":2}'
