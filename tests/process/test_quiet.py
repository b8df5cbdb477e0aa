"""Quiet work, lost renewals and pauses of a real process (faults T04, P03)."""

import contextlib
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.envelope import Ack, Deliver, Revoke
from protocol.ids import RevocationEpoch, SourceSeq
from tests.process.daemon import Daemon
from tests.process.test_life import connected, content, event_types, with_turn
from tests.runnerd.harness.support import lives, wait_until
from tests.runnerd.peer import command, unix_ms
from tests.runnerd.peer_server import PeerServer

pytestmark = pytest.mark.process

LEASE_MS = 3_000
QUIET = "echo $$; read x || sleep 1000"


def program_pid(tmp_path: Path) -> int:
    turn = msgspec.convert(content(tmp_path)["turn"], dict[str, Any])
    pid = turn["birth"]["pid"]
    assert isinstance(pid, int)
    return pid


@contextlib.contextmanager
def quiet_turn(tmp_path: Path, lease_ms: int = LEASE_MS) -> Generator[tuple[PeerServer, Daemon]]:
    """Run a daemon whose program has said one line and says nothing more."""
    authority = with_turn(QUIET)
    authority.lease_ttl_ms = lease_ms
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        yield server, run


@contextlib.contextmanager
def paused(run: Daemon) -> Generator[None]:
    """Stop the process, and let it go on at the end of the block."""
    run.signal(signal.SIGSTOP)
    wait_until(lambda: state_of(run.pid) == "T")
    yield
    assert state_of(run.pid) == "T"
    run.signal(signal.SIGCONT)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def let_pass(until_unix_ms: int) -> None:
    """Let real time pass until a lease would be over; nothing but time can bring that about."""
    while (left_ms := until_unix_ms + 1 - unix_ms()) > 0:
        time.sleep(left_ms / 1_000)


# --- quiet --------------------------------------------------------------------------------------


def test_quiet_turn_keeps_both_processes_past_its_first_lease(tmp_path: Path) -> None:
    with quiet_turn(tmp_path) as (server, run):
        authority, first = server.authority, program_pid(tmp_path)
        granted_until = authority.lease_expires_at_unix_ms

        let_pass(granted_until)
        renewals = len(authority.renewals)
        server.wait_until(lambda: len(authority.renewals) > renewals, "another renewal")

        assert unix_ms() > granted_until
        assert run.process.poll() is None
        assert lives(first)
        assert program_pid(tmp_path) == first
        assert authority.connections == 1
        assert event_types(authority).count("turn.started") == 1
        assert "harness.exited" not in event_types(authority)
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_lost_renewal_reply_reconnects_and_starts_nothing(tmp_path: Path) -> None:
    with quiet_turn(tmp_path) as (server, run):
        authority, first = server.authority, program_pid(tmp_path)
        with server.changing():
            authority.answers_renewals = False
        asked = len(authority.renewals)
        server.wait_until(lambda: len(authority.renewals) > asked, "a renewal without a reply")
        with server.changing():
            # The extension was stored; only its reply was lost, and the socket with it.
            authority.lease_expires_at_unix_ms = unix_ms() + LEASE_MS
            authority.answers_renewals = True
        server.drop_connections()

        server.wait_until(lambda: authority.connections == 2, "a reconnect")
        let_pass(authority.lease_expires_at_unix_ms)
        renewals = len(authority.renewals)
        server.wait_until(lambda: len(authority.renewals) > renewals, "another renewal")

        assert [hello.credential_kind for hello in authority.hellos] == ["bootstrap", "lease"]
        assert run.process.poll() is None
        assert (lives(first), program_pid(tmp_path)) == (True, first)
        assert event_types(authority).count("turn.started") == 1
        assert len(authority.results) == 3
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


# --- pauses -------------------------------------------------------------------------------------


def test_pause_past_the_lease_applies_nothing_that_came_meanwhile(tmp_path: Path) -> None:
    with quiet_turn(tmp_path) as (server, run):
        authority, program = server.authority, program_pid(tmp_path)
        before = content(tmp_path)
        with paused(run):
            with server.changing():
                peer = server.newest()
                peer.say(Deliver(command(4, "runner.drain")))
                peer.say(Ack(SourceSeq(authority.acked)))
                peer.say(Revoke(RevocationEpoch(2)))
            let_pass(authority.lease_expires_at_unix_ms)

        assert (run.wait(), run.code) == (75, "lease_expired_requires_bootstrap")

        after = content(tmp_path)
        assert after["lastControllerCommandSeq"] == before["lastControllerCommandSeq"] == 3
        assert after["lifecycle"] == "recoverable_failure"
        assert after["revocationEpoch"] == before["revocationEpoch"]
        assert len(authority.results) == 3
        assert not lives(program)


@pytest.mark.parametrize("what", ["drain", "revoke"])
def test_pause_within_the_lease_applies_what_came_meanwhile(tmp_path: Path, what: str) -> None:
    with quiet_turn(tmp_path, lease_ms=60_000) as (server, run):
        authority = server.authority
        with paused(run), server.changing():
            if what == "drain":
                authority.pending = [command(4, "runner.drain")]
                server.newest().say(Deliver(authority.pending[0]))
            else:
                server.newest().say(Revoke(RevocationEpoch(2)))

        if what == "drain":
            server.wait_until(lambda: len(authority.results) == 4, "the result")
            assert content(tmp_path)["lifecycle"] == "draining"
            run.signal(signal.SIGTERM)
            assert run.wait() == 75
        else:
            assert run.wait() == 0
            assert content(tmp_path)["lifecycle"] == "revoked"
        assert authority.connections == 1
