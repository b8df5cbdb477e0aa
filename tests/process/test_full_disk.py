"""A real file system that fills while the daemon runs (faults S12, S13; R15)."""

import os
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from protocol.limits import RUN_LOG_RESERVE_BYTES
from runnerd.io.state_file import RESERVE_NAME
from runnerd.runs.projection import ProjectionStatus, project_run
from tests.process.daemon import Daemon, daemon, flags
from tests.process.test_life import deliver, event_types, with_turn
from tests.runnerd.peer import IDENTITY, Authority
from tests.runnerd.peer_server import PeerServer, serving
from tests.runnerd.runs.logs import store_in

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="a file system is mounted only by root"),
]

SIZE = 8 * 2**20
CHUNK = 4096


@pytest.fixture(params=[f"size={SIZE}", f"size={SIZE},nr_inodes=11"], ids=["blocks", "inodes"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return a small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Take every block and every inode that is left."""
    try:
        with (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(CHUNK)):
                pass
    except OSError:
        pass
    try:
        for number in range(100_000):
            (disk / f"filler.{number}").touch()
    except OSError:
        return


def clear(disk: Path) -> None:
    for path in disk.glob("filler*"):
        path.unlink()


@contextmanager
def running(disk: Path, authority: Authority, *more: str) -> Generator[tuple[PeerServer, Daemon]]:
    with (
        serving(authority) as server,
        daemon([*flags(server.url, disk / "state"), *more]) as run,
    ):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        yield server, run


def pressures(authority: Authority) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    for message in authority.events:
        if message.event.event_type == "runner.backpressure":
            payload = msgspec.json.decode(message.event.payload, type=dict[str, object])
            found.append((payload["reason"], payload["newTurnsAccepted"]))
    return found


def test_full_disk_costs_no_accepted_event_and_work_goes_on_when_there_is_room(
    disk: Path, tmp_path: Path
) -> None:
    go, later = tmp_path / "go", tmp_path / "later"
    os.mkfifo(go)
    os.mkfifo(later)
    program = f"echo one; read x <{go}; echo two; read x <{later}; echo three; read x <{go}"
    authority = with_turn(program)
    with running(disk, authority) as (server, run):
        fill(disk)
        go.write_text("go\n")
        server.wait_until(lambda: ("storage_full", False) in pressures(authority), "the P0 fact")
        later.write_text("go\n")
        run.wait_for_fact("storage_full")

        clear(disk)

        run.wait_for_fact("storage_has_room")
        server.wait_until(lambda: len(pressures(authority)) == 2, "the end of the pressure")
        assert pressures(authority)[1][1] is True
        server.wait_until(
            lambda: sum(kind == "item.delta" for kind in event_types(authority)) == 3, "all lines"
        )
        sequences = [message.event.source_seq for message in authority.events]
        assert sorted(set(sequences)) == list(range(1, max(sequences) + 1))
        assert authority.connections == 1
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_disk_without_room_and_without_reserve_ends_by_name_and_resumes_with_all_it_accepted(
    disk: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    authority = with_turn(f"echo one; read x <{go}; echo two; sleep 60")
    with running(disk, authority, "--reconnect-grace-ms", "300") as (server, run):
        known = len(authority.events)
        (disk / "state" / RESERVE_NAME).unlink()
        fill(disk)
        go.write_text("go\n")

        assert (run.wait(), run.code) == (74, "storage_unavailable")
        assert len(authority.events) == known

        clear(disk)
        with server.changing():
            authority.ticket_is_used = False
        with daemon(flags(server.url, disk / "state")) as again:
            server.wait_until(lambda: "turn.interrupted" in event_types(authority), "the report")
            again.signal(signal.SIGTERM)
            assert again.wait() == 75
        sequences = sorted({message.event.source_seq for message in authority.events})
        assert sequences == list(range(1, len(sequences) + 1))


def test_run_that_is_cancelled_on_a_full_disk_has_its_end_in_its_log(
    disk: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    authority = with_turn(f"echo one; read x <{go}; echo two; sleep 60")
    with running(disk, authority) as (server, run):
        log = disk / "state" / "runs" / f"{IDENTITY.run_id}.jsonl"
        assert log.stat().st_blocks * 512 > RUN_LOG_RESERVE_BYTES
        fill(disk)
        go.write_text("go\n")
        server.wait_until(lambda: ("storage_full", False) in pressures(authority), "the P0 fact")

        deliver(server, 4, "run.cancel")

        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        found = project_run(store_in(disk / "state" / "runs").scan(IDENTITY.run_id, mends=False))
        assert (found.status, found.finish_reason) == (ProjectionStatus.FINISHED, "aborted")
        run.signal(signal.SIGTERM)
        run.process.wait()
