"""A state that was put back, or is gone, while nothing ran (faults S15, S16; R5)."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.secrets import Secret
from runnerd.io.state_file import RESERVE_NAME
from tests.process.daemon import REPOSITORY, STATE_FILE, Daemon, daemon, flags
from tests.process.test_life import FRESH_TICKET, connected, deliver, event_types
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import PeerServer

pytestmark = pytest.mark.process


@contextmanager
def over(tmp_path: Path) -> Generator[tuple[PeerServer, Path]]:
    """Run a daemon that says something and ends, with a ticket ready for the next one."""
    with connected(tmp_path) as (server, run):
        authority = server.authority
        deliver(server, 1, "runner.drain")
        server.wait_until(lambda: authority.acked == 1, "the fact")
        run.signal(signal.SIGTERM)
        assert run.wait() == 75
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False
        yield server, tmp_path / "state"


@contextmanager
def next_one(server: PeerServer, state: Path) -> Generator[Daemon]:
    with daemon(flags(server.url, state), ticket=FRESH_TICKET) as run:
        yield run


def sequences(authority: Authority) -> list[int]:
    return [message.event.source_seq for message in authority.events]


def test_older_state_that_was_put_back_is_refused_and_renumbers_nothing(tmp_path: Path) -> None:
    with over(tmp_path) as (server, state):
        authority = server.authority
        older = (state / STATE_FILE).read_bytes()
        with next_one(server, state) as run:
            server.wait_until(lambda: "runner.reconciled" in event_types(authority), "a restart")
            deliver(server, 2, "session.snapshot")
            server.wait_until(lambda: len(authority.results) == 2, "an answer")
            run.signal(signal.SIGTERM)
            assert run.wait() == 75
        said = sequences(authority)
        (state / STATE_FILE).write_bytes(older)
        with server.changing():
            authority.ticket_is_used = False

        with next_one(server, state) as again:
            assert (again.wait(), again.code) == (76, "runner_rollback_detected")

        assert sequences(authority) == said
        assert len(authority.results) == 2


def test_missing_state_is_refused_and_nothing_is_begun_anew(tmp_path: Path) -> None:
    with over(tmp_path) as (server, state):
        authority = server.authority
        assert (state / RESERVE_NAME).stat().st_size > 0
        (state / STATE_FILE).unlink()
        names = sorted(path.name for path in state.iterdir())
        dialled = len(authority.hellos)

        with next_one(server, state) as again:
            assert (again.wait(), again.code) == (65, "state_missing")

        assert sorted(path.name for path in state.iterdir()) == names
        assert len(authority.hellos) == dialled
        looked = subprocess.run(
            [sys.executable, "-m", "runnerd", "inspect", "--state-dir", str(state)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        assert looked.returncode == 65
        assert looked.stderr.startswith("runnerd: state_missing: ")


def test_missing_directory_is_begun_anew_and_noticed_by_the_cursor(tmp_path: Path) -> None:
    with over(tmp_path) as (server, state):
        authority = server.authority
        said = sequences(authority)
        shutil.rmtree(state)

        with next_one(server, state) as again:
            assert (again.wait(), again.code) == (76, "runner_rollback_detected")

        assert sequences(authority) == said
