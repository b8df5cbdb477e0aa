"""Power is cut under a real file system right after a promise (faults S02, S11; recipe 6.2)."""

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.secrets import Secret
from tests.process.daemon import Daemon, daemon, flags
from tests.process.test_life import FRESH_TICKET, event_types, with_turn
from tests.process.tracer import traced
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import PeerServer, serving

pytestmark = [
    pytest.mark.process,
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted only by root"),
]

IMAGE_BYTES = 64 * 2**20
SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
PROGRAM = "for n in 1 2 3 4 5 6 7 8; do echo $n; done; read x || sleep 1000"


class Disk:
    """An ext4 image of its own; its power can be cut."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "disk"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        if shutil.which("mkfs.ext4") is None or not self._run("mkfs.ext4", "-q", "-F", self.image):
            pytest.skip("this machine makes no ext4")
        if not self.mount():
            pytest.skip("this machine lets nobody mount an image")

    def _run(self, *words: str | Path) -> bool:
        return subprocess.run([str(word) for word in words], capture_output=True).returncode == 0

    def mount(self) -> bool:
        # Without this, ext4 itself covers for a missing fsync before a rename.
        options = "loop,noauto_da_alloc"
        return self._run("mount", "-o", options, self.image, self.place)

    def unmount(self) -> bool:
        return self._run("umount", self.place)

    def cut(self) -> None:
        """Let nothing more reach the image, the journal not either."""
        directory = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(directory)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    try:
        yield made
    finally:
        made.unmount()


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def lose_power(disk: Disk, run: Daemon, server: PeerServer) -> None:
    """Cut, kill what ran, and come up again with a fresh ticket."""
    disk.cut()
    with pytest.raises(OSError, match="Input/output error"):
        (disk.place / "probe").write_text("x")
    groups = children_of(run.pid)
    run.kill()
    # A program that the state does not know of yet would be left to nobody.
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    assert disk.unmount()
    assert disk.mount()
    with server.changing():
        server.authority.ticket = Secret(FRESH_TICKET)
        server.authority.ticket_is_used = False


def bodies(authority: Authority) -> dict[int, set[bytes]]:
    found: dict[int, set[bytes]] = {}
    for message in authority.events:
        found.setdefault(message.event.source_seq, set()).add(message.body)
    return found


@pytest.mark.parametrize("acknowledges", [True, False], ids=["acked", "unacked"])
@pytest.mark.parametrize(
    "promise", ["first result", "third result", "birth", "first line", "last line"]
)
def test_nothing_that_was_visible_is_missing_after_a_power_cut(
    disk: Disk, promise: str, acknowledges: bool
) -> None:
    authority = with_turn(PROGRAM)
    authority.acknowledges = acknowledges

    def is_visible() -> bool:
        types = event_types(authority)
        return {
            "first result": len(authority.results) >= 1,
            "third result": len(authority.results) >= 3,
            "birth": "turn.started" in types,
            "first line": "item.delta" in types,
            "last line": types.count("item.delta") >= 8,
        }[promise]

    with serving(authority) as server:
        arguments = flags(server.url, disk.place / "state")
        with daemon(arguments) as run:
            server.wait_until(is_visible, promise)
            lose_power(disk, run, server)
        seen, answered = bodies(authority), len(authority.results)
        before = authority.connections

        with daemon(arguments, ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: authority.connections > before, "a welcome")
            server.wait_until(lambda: "runner.reconciled" in event_types(authority), "a restart")
            again.signal(signal.SIGTERM)
            again.wait_for_fact("stop_requested")
            # What is not acknowledged need not be waited for.
            again.signal(signal.SIGTERM)
            assert again.wait() == 75

        after = bodies(authority)
        assert sorted(after) == list(range(1, len(after) + 1))
        assert all(len(found) == 1 for found in after.values())
        assert {seq: after[seq] for seq in seen} == seen
        results = {m.result.controller_seq: m.body for m in authority.results[:answered]}
        assert all(
            results.get(m.result.controller_seq, m.body) == m.body for m in authority.results
        )


def test_disk_that_lies_about_fsync_is_found_out_after_a_power_cut(disk: Disk) -> None:
    authority = with_turn(PROGRAM)
    with serving(authority) as server:
        arguments = flags(server.url, disk.place / "state")
        lies = ("fsync:retval=0", "fdatasync:retval=0")
        with traced(disk.place.parent, arguments, *lies) as run:
            server.wait_until(lambda: event_types(authority).count("item.delta") >= 8, "all lines")
            assert any("fsync" in line for line in run.struck())
            lose_power(disk, run, server)
        seen, known = bodies(authority), len(authority.events)

        with daemon(arguments, ticket=FRESH_TICKET) as again:
            status = again.wait()

        assert (status, again.code) in {
            (76, "runner_rollback_detected"),
            (65, "state_missing"),
            (65, "state_corrupt"),
        }
        assert bodies(authority) == seen, "no number was given to other bytes"
        assert len(authority.events) == known
