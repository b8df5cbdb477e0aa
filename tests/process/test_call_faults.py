"""Every kind of fault of one system call under a whole real run (faults 4.2, P01, P09; 6.1)."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from protocol.secrets import Secret
from tests.process.daemon import Daemon, daemon, flags
from tests.process.test_life import FRESH_TICKET, connected, deliver, event_types, with_turn
from tests.process.tracer import TracedDaemon, attached, need_strace, traced
from tests.runnerd.harness.support import wait_until
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import PeerServer, serving

pytestmark = pytest.mark.process

ENDS = ("run.terminal", "turn.interrupted", "turn.failed")
STORAGE_CODES = {"storage_sync_failed", "storage_unavailable", "storage_read_failed"}
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@pytest.fixture(autouse=True)
def _tracing() -> None:
    need_strace()


def wake_when_over(run: Daemon, server: PeerServer) -> None:
    """Wake whoever waits at the server when the process is over: no byte need tell."""
    run.process.wait()
    with server.changing():
        pass


class Story:
    """One run whose program leaves a mark outside; however it is struck, its promises hold."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.ledger = tmp_path / "ledger"
        self.authority = with_turn(f"echo ran >>{self.ledger}; echo one; echo two")
        self.flags: tuple[str, ...] = ()
        self.status: int | None = None
        """How the struck process ended by itself; None if it lived on."""
        self.code = ""

    def has_ended(self) -> bool:
        """Tell whether the turn is over, or was refused by a process that was ending."""
        was_refused = any(
            message.result.command_type == "turn.start" and message.result.status == "rejected"
            for message in self.authority.results
        )
        return was_refused or any(name in event_types(self.authority) for name in ENDS)

    def play(self, *injections: str) -> TracedDaemon:
        """Run it to its end under faults, and without any if the process did not survive them."""
        with serving(self.authority) as server:
            arguments = [*flags(server.url, self.folder / "state"), *self.flags]
            with traced(self.folder, arguments, *injections) as run:
                waking = threading.Thread(target=wake_when_over, args=(run, server))
                waking.start()
                server.wait_until(
                    lambda: self.has_ended() or run.process.poll() is not None, "an end"
                )
                if self.has_ended() and run.process.poll() is None:
                    run.signal(signal.SIGTERM)
                    run.wait()
                else:
                    self.status, self.code = run.wait(), run.code
            waking.join()
            if self.status is not None:
                self.start_again(server)
        self.audit()
        return run

    def start_again(self, server: PeerServer) -> None:
        """Let a process without faults bring the run to its end."""
        with server.changing():
            self.authority.ticket, self.authority.ticket_is_used = Secret(FRESH_TICKET), False
        before = self.authority.connections
        arguments = flags(server.url, self.folder / "state")
        with daemon(arguments, ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: self.authority.connections > before, "a welcome")
            server.wait_until(self.has_ended, "the end of the turn")
            again.signal(signal.SIGTERM)
            assert again.wait() in (0, 75)

    def audit(self) -> None:
        """Judge what a controller and the world outside saw (I1-I3, I5, I7, I12)."""
        bodies: dict[int, set[bytes]] = {}
        for message in self.authority.events:
            bodies.setdefault(message.event.source_seq, set()).add(message.body)
        assert sorted(bodies) == list(range(1, len(bodies) + 1)), "no gap"
        assert all(len(found) == 1 for found in bodies.values()), "the same bytes each time"
        results: dict[str, set[bytes]] = {}
        for answered in self.authority.results:
            results.setdefault(answered.result.command_id, set()).add(answered.body)
        assert all(len(found) == 1 for found in results.values()), "one outcome for a command"
        effects = self.ledger.read_text().count("ran") if self.ledger.exists() else 0
        assert effects <= 1
        assert event_types(self.authority).count("turn.started") <= 2 * effects + 2


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


@pytest.mark.parametrize(
    ("call", "number"),
    [*(("fsync", number) for number in range(1, 9)), *(("renameat", n) for n in range(1, 7))],
)
def test_process_that_dies_at_a_call_loses_nothing_and_repeats_nothing(
    story: Story, call: str, number: int
) -> None:
    story.play(f"{call}:signal=SIGKILL:when={number}")

    assert story.status in KILLED


@pytest.mark.parametrize("number", [4, 6])
@pytest.mark.parametrize("call", ["write", "sendto", "recvfrom"])
def test_process_that_dies_at_a_transfer_loses_nothing_and_repeats_nothing(
    story: Story, call: str, number: int
) -> None:
    story.play(f"{call}:signal=SIGKILL:when={number}")

    assert story.status in KILLED


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7])
def test_failed_sync_of_file_or_directory_keeps_every_promise(story: Story, number: int) -> None:
    run = story.play(f"fsync:error=EIO:when={number}")

    struck = run.struck()
    assert struck
    for line in struck:
        name = line.partition("<")[2].partition(">")[0]
        if name.endswith(".tmp"):
            again = [call for call in run.calls_after(line) if call.startswith("fsync(")]
            assert not any(name in call for call in again), "no second sync of what failed"
    if story.status is not None:
        assert (story.status, story.code in STORAGE_CODES) == (74, True)


def test_failed_sync_of_the_state_costs_the_connection_and_nothing_else(story: Story) -> None:
    run = story.play("fsync:error=EIO:when=5")

    assert any(".runner-state.json" in line for line in run.struck())
    assert story.status is None
    assert story.authority.connections >= 2
    assert [fact["code"] for fact in run.facts("connection_lost")][:1] == ["storage_write_failed"]


def test_failed_sync_of_the_directory_ends_the_process(story: Story) -> None:
    run = story.play("fsync:error=EIO:when=4")

    assert any(line.rstrip().endswith("(INJECTED)") and "/state>" in line for line in run.struck())
    assert (story.status, story.code) == (74, "storage_sync_failed")


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
@pytest.mark.parametrize(("call", "number"), [("write", 4), ("fsync", 5)])
def test_state_without_room_goes_into_the_reserve_and_the_run_goes_on(
    story: Story, call: str, number: int, error: str
) -> None:
    run = story.play(f"{call}:error={error}:when={number}")

    assert any(".runner-state.json" in line for line in run.struck())
    assert story.status is None
    assert run.facts("storage_full")
    assert story.authority.connections == 1


@pytest.mark.parametrize("fault", ["write:error=EIO", "renameat:error=EROFS", "renameat:error=EIO"])
def test_state_that_cannot_be_replaced_costs_the_connection(story: Story, fault: str) -> None:
    run = story.play(f"{fault}:when=4")

    assert any(".runner-state.json" in line for line in run.struck())
    assert story.status is None
    assert story.authority.connections >= 2
    assert "storage_write_failed" in {fact["code"] for fact in run.facts("connection_lost")}


@pytest.mark.parametrize("call", ["write", "fsync", "renameat", "sendto", "recvfrom"])
def test_interrupted_call_is_made_again_or_fails_cleanly(story: Story, call: str) -> None:
    run = story.play(f"{call}:error=EINTR:when=4+3")

    assert run.struck()
    assert story.status is None
    assert "run.terminal" in event_types(story.authority)


def test_disk_that_stays_broken_ends_the_process_by_name(story: Story) -> None:
    story.flags = ("--reconnect-grace-ms", "300")

    story.play("renameat:error=EIO:when=3+")

    assert (story.status, story.code) == (74, "storage_unavailable")


def test_slow_sync_lets_the_lease_live_and_every_claim_wait(story: Story) -> None:
    story.authority.lease_ttl_ms = 1_000

    run = story.play("fsync:delay_exit=2500ms:when=4")

    assert any("DELAYED" in line for line in run.struck())
    assert story.status is None
    assert len(story.authority.renewals) >= 2
    assert story.authority.connections == 1
    assert "run.terminal" in event_types(story.authority)


# --- a running daemon ---------------------------------------------------------------------------


@contextmanager
def prepared(tmp_path: Path) -> Generator[tuple[PeerServer, Daemon, Authority]]:
    authority = with_turn("echo one")
    del authority.pending[2]
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: len(authority.results) == 2, "a session")
        yield server, run, authority


def result_of(authority: Authority, number: int) -> dict[str, object]:
    [result] = [
        message.result for message in authority.results if message.result.controller_seq == number
    ]
    members: dict[str, object] = msgspec.json.decode(result.result)
    return {"status": result.status, **members}


def test_refused_fork_fails_the_turn_once_and_the_next_one_succeeds(tmp_path: Path) -> None:
    with prepared(tmp_path) as (server, run, authority):
        with attached(run.pid, tmp_path, "clone,clone3,vfork,fork:error=EAGAIN") as trace:
            deliver(server, 3, "turn.start")
            server.wait_until(lambda: len(authority.results) == 3, "the refusal")
        assert "EAGAIN" in trace.read_text()

        refused = result_of(authority, 3)
        assert (refused["status"], refused["code"]) == ("failed", "harness_start_failed")
        assert refused["logicalEffectCount"] == 0
        deliver(server, 4, "turn.start")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        assert result_of(authority, 4)["status"] == "completed"
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


# --- signals in every phase ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("phase", "delayed"),
    [
        ("the first save", "fsync:delay_enter=3s:when=2"),
        ("a save under way", "fsync:delay_enter=3s:when=5"),
        ("a rename under way", "renameat:delay_enter=3s:when=4"),
    ],
)
def test_stop_is_obeyed_while_the_disk_is_slow_and_nothing_is_lost(
    story: Story, phase: str, delayed: str, number: signal.Signals
) -> None:
    with serving(story.authority) as server:
        arguments = flags(server.url, story.folder / "state")
        with traced(story.folder, arguments, delayed) as run:
            wait_until(lambda: run.trace.exists() and is_under_way(run, delayed))

            os.kill(run.pid, number)

            assert run.wait() == 75, phase
            assert "runnerd: stop_requested: " in run.stderr
            assert any("DELAYED" in line for line in run.struck())
        story.status = 75
        story.start_again(server)
    story.audit()


def is_under_way(run: TracedDaemon, delayed: str) -> bool:
    """Tell whether the call that is delayed has been begun, and its thread is held in it."""
    call, _, number = delayed.partition(":delay_enter=3s:when=")
    counts: dict[str, int] = {}
    text = run.trace.read_text(errors="replace")
    for line in text.splitlines():
        thread, _, rest = line.partition(" ")
        if rest.strip().startswith(f"{call}("):
            counts[thread] = counts.get(thread, 0) + 1
    if max(counts.values(), default=0) < int(number) - 1:
        return False
    held = held_threads(run.pid)
    # A call that is only traced is held for a moment; this one for seconds.
    time.sleep(0.2)
    is_still = run.trace.read_text(errors="replace") == text
    return is_still and bool(held & held_threads(run.pid))


def held_threads(pid: int) -> set[int]:
    """Return the threads that strace holds at this moment."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if task.read_text().rpartition(")")[2].split()[0] == "t":
                found.add(int(task.parent.name))
    return found
