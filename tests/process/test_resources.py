"""What runs out under a real process, and what must not grow in it (faults U01, U02, U03, S10)."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from protocol.limits import OUTBOX_PAUSE_BYTES
from tests.process.test_life import connected, content, deliver, event_types, with_turn
from tests.process.test_quiet import quiet_turn
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import PeerServer

pytestmark = pytest.mark.process

WARM_UP = 40
RECONNECTS = 200
KIB_MAX = 4 * 1024


def footprint(pid: int) -> tuple[int, int, int]:
    """Return threads, open descriptors and resident KiB."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return int(status["Threads"]), descriptors, int(status["VmRSS"].split()[0])


def reconnect(server: PeerServer, times: int) -> None:
    wanted = server.authority.connections

    def has_come() -> bool:
        return server.authority.connections >= wanted

    for _ in range(times):
        wanted += 1
        server.drop_connections()
        server.wait_until(has_come, "another connection")


def test_nothing_grows_over_many_reconnects(tmp_path: Path) -> None:
    authority = with_turn("echo one; read x || sleep 1000")
    with connected(tmp_path, authority, "--reconnect-delay-ms", "1") as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        reconnect(server, WARM_UP)
        threads, descriptors, kib = footprint(run.pid)

        reconnect(server, RECONNECTS)

        assert authority.connections == 1 + WARM_UP + RECONNECTS
        after = footprint(run.pid)
        assert after[:2] == (threads, descriptors)
        assert after[2] - kib < KIB_MAX
        assert len(str(content(tmp_path)["diagnostics"])) < KIB_MAX
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_flood_of_output_is_taken_in_bounded_memory_and_can_be_cancelled(tmp_path: Path) -> None:
    authority = with_turn("yes flood & yes error >&2")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: event_types(authority).count("item.delta") > 500, "a flood")
        _, _, kib = footprint(run.pid)
        server.wait_until(lambda: event_types(authority).count("item.delta") > 5_000, "more of it")

        assert footprint(run.pid)[2] - kib < 4 * KIB_MAX
        deliver(server, 4, "run.cancel")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")

        sequences = [message.event.source_seq for message in authority.events]
        assert sequences == list(range(1, len(sequences) + 1))
        peak = content(tmp_path)["peakOutboxBytes"]
        assert isinstance(peak, int)
        assert peak < 4 * OUTBOX_PAUSE_BYTES
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


# --- descriptors --------------------------------------------------------------------------------


@contextlib.contextmanager
def without_descriptors(pid: int) -> Generator[None]:
    """Leave a living process no number for another descriptor."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(soft) if number not in taken)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_save_without_a_descriptor_closes_and_goes_on_when_there_is_one(tmp_path: Path) -> None:
    with quiet_turn(tmp_path, lease_ms=60_000) as (server, run):
        authority = server.authority
        with without_descriptors(run.pid):
            deliver(server, 4, "runner.drain")
            run.wait_for_fact("state_write_failed")

        server.wait_until(lambda: len(authority.results) == 4, "the result")

        refused = run.facts("state_write_failed")
        assert {fact["reason"] for fact in refused} == {"Too many open files"}
        assert authority.connections >= 2
        assert content(tmp_path)["lifecycle"] == "draining"
        assert event_types(authority).count("runner.draining") == 1
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_turn_without_descriptors_fails_by_name_and_the_next_one_succeeds(tmp_path: Path) -> None:
    authority = with_turn("echo one")
    del authority.pending[2]
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: len(authority.results) == 2, "a session")
        soft, hard = resource.prlimit(run.pid, resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir(f"/proc/{run.pid}/fd"))
        # Room for what a save and the run's log need, and for none of a program's pipes.
        resource.prlimit(run.pid, resource.RLIMIT_NOFILE, (highest + 4, hard))

        deliver(server, 3, "turn.start")

        server.wait_until(lambda: "turn.failed" in event_types(authority), "the refusal")
        resource.prlimit(run.pid, resource.RLIMIT_NOFILE, (soft, hard))
        deliver(server, 4, "turn.start")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        assert [message.result.status for message in authority.results[2:]] == [
            "failed",
            "completed",
        ]
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


# --- processors ---------------------------------------------------------------------------------


@contextlib.contextmanager
def busy_neighbours() -> Generator[None]:
    """Let every processor be wanted by somebody else."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_busy_neighbours_cost_no_lease(tmp_path: Path) -> None:
    with quiet_turn(tmp_path, lease_ms=4_000) as (server, run), busy_neighbours():
        authority: Authority = server.authority
        asked = len(authority.renewals)

        server.wait_until(lambda: len(authority.renewals) >= asked + 3, "renewals")

        assert authority.connections == 1
        assert run.process.poll() is None
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_turn_is_done_when_neighbours_are_busy(tmp_path: Path) -> None:
    with busy_neighbours(), connected(tmp_path, with_turn("seq 500")) as (server, run):
        authority = server.authority

        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")

        assert run.process.poll() is None
        run.signal(signal.SIGTERM)
        assert run.wait() == 75
