"""Every living process below this one is found, however it tries to slip through a look."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from runnerd.harness.descendants import Descendants
from runnerd.harness.tree import end_now
from tests.runnerd.harness.support import python, wait_until

pytestmark = pytest.mark.process

# Each process makes its successor and ends: at no moment is nobody alive.
HOPS = """
import os
os.write(1, b"ready")
while True:
    if os.fork():
        os._exit(0)
"""


@contextlib.contextmanager
def started(folder: Path, *argv: str) -> Generator[tuple[Descendants, "subprocess.Popen[bytes]"]]:
    descendants = Descendants()
    descendants.adopt_orphans(adopt=True)
    with subprocess.Popen(
        argv, cwd=folder, start_new_session=True, stdout=subprocess.PIPE
    ) as popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.read(5) == b"ready"
            yield descendants, popen
        finally:
            assert end_now(descendants, 0) == 0
            descendants.adopt_orphans(adopt=False)


def test_nobody_is_found_when_there_is_nobody() -> None:
    assert list(Descendants().members()) == []


def test_look_finds_a_process_that_replaces_itself_every_time(tmp_path: Path) -> None:
    with started(tmp_path, *python(HOPS)) as (descendants, _):
        for _ in range(2000):
            with contextlib.suppress(BlockingIOError):  # it gave up, so it proved nothing
                assert list(descendants.members()) != []


def test_look_finds_children_of_children_while_their_parents_live(tmp_path: Path) -> None:
    source = "sh -c 'setsid sh -c \"echo ready; exec sleep 1000\" & wait' & wait"
    with started(tmp_path, "sh", "-c", source) as (descendants, popen):
        found = {process.birth.pid: process for process in descendants.members()}

        assert len(found) == 3
        top = found.pop(popen.pid)
        assert top.parent_pid == os.getpid()
        (below,) = [process for process in found.values() if process.parent_pid == popen.pid]
        (last,) = [process for process in found.values() if process is not below]
        assert last.parent_pid == below.birth.pid
        assert last.birth.session_id == last.birth.pid


def test_status_is_kept_of_a_watched_child_only(tmp_path: Path) -> None:
    with started(tmp_path, "sh", "-c", "printf ready; exec sleep 1000") as (descendants, popen):
        descendants.watch(popen.pid)
        assert descendants.status(popen.pid) is None

        popen.send_signal(signal.SIGTERM)
        wait_until(lambda: list(descendants.members()) == [])

        status = descendants.status(popen.pid)
        assert status is not None
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        descendants.forget(popen.pid)
        assert descendants.status(popen.pid) is None
