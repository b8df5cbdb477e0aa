"""A bad network under a real runner (W01, W02, W05, W13)."""

import contextlib
import signal
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from protocol.envelope import Deliver
from tests.process.daemon import Daemon, daemon, flags
from tests.process.relay import Relay, relaying
from tests.process.test_life import content, event_types, with_turn
from tests.process.test_resources import footprint
from tests.runnerd.harness.support import wait_until
from tests.runnerd.peer import Authority, command
from tests.runnerd.peer_server import PeerServer, serving

pytestmark = pytest.mark.process

QUIET = "echo one; read x || sleep 1000"
LINES = 5_000
KIB_MAX = 32 * 1_024


@contextlib.contextmanager
def relayed(tmp_path: Path, authority: Authority) -> Generator[tuple[PeerServer, Relay]]:
    with serving(authority) as server, relaying(server.port) as relay:
        yield server, relay


@contextlib.contextmanager
def running(tmp_path: Path, relay: Relay) -> Generator[Daemon]:
    with daemon(flags(relay.url, tmp_path / "state")) as run:
        yield run
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def texts(authority: Authority) -> list[str]:
    by_seq = {message.event.source_seq: message.event for message in authority.events}
    return [
        msgspec.json.decode(event.payload)["text"]
        for _, event in sorted(by_seq.items())
        if event.event_type == "item.delta"
    ]


@pytest.mark.parametrize("how", ["single bytes", "late"])
def test_run_is_whole_over_a_network_that_is_only_slow(tmp_path: Path, how: str) -> None:
    authority = with_turn("seq 20")
    with relayed(tmp_path, authority) as (server, relay):
        for flow in (relay.up, relay.down):
            if how == "single bytes":
                flow.piece_bytes = 1
            else:
                flow.delay_s = 0.2

        with running(tmp_path, relay):
            server.wait_until(lambda: "run.terminal" in event_types(authority), "the end")

            assert "".join(texts(authority)) == "".join(f"{n}\n" for n in range(1, 21))
            sequences = [message.event.source_seq for message in authority.events]
            assert sequences == list(range(1, len(sequences) + 1))
            assert authority.connections == 1
            assert relay.up.seen_bytes > 10_000


def test_silence_in_one_direction_is_noticed_and_another_connection_made(tmp_path: Path) -> None:
    authority = with_turn(QUIET)
    with relayed(tmp_path, authority) as (server, relay), running(tmp_path, relay) as run:
        server.wait_until(lambda: authority.acked >= 8, "a quiet turn")
        relay.down.is_swallowed = True
        relay.heal()
        with server.changing():
            # Said on the connection that is silent; it is said again on the next one.
            authority.pending = [command(4, "runner.drain")]
            server.newest().say(Deliver(authority.pending[0]))

        server.wait_until(lambda: authority.connections == 2, "another connection")
        server.wait_until(lambda: len(authority.results) == 4, "an answer")

        assert [fact["code"] for fact in run.facts("connection_lost")] == ["peer_timeout"]
        assert event_types(authority).count("runner.draining") == 1
        assert event_types(authority).count("turn.started") == 1
        assert "harness.exited" not in event_types(authority)


def test_peer_that_reads_nothing_costs_a_bounded_memory_and_no_line(tmp_path: Path) -> None:
    done, go = tmp_path / "done", tmp_path / "go"
    program = f"until [ -e {go} ]; do sleep 0.05; done; yes {'x' * 1_000} | head -{LINES}"
    authority = with_turn(f"{program}; touch {done}")
    with relayed(tmp_path, authority) as (server, relay), running(tmp_path, relay) as run:
        server.wait_until(lambda: "turn.started" in event_types(authority), "the turn")
        _, _, kib = footprint(run.pid)
        relay.up.is_stopped = True
        go.touch()

        wait_until(lambda: int(str(content(tmp_path)["linesAccepted"])) > 200)

        _, _, later = footprint(run.pid)
        assert later - kib < KIB_MAX
        assert not done.exists(), "the program waits"
        relay.up.is_stopped = False
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        assert "".join(texts(authority)) == ("x" * 1_000 + "\n") * LINES
        assert done.exists()
