"""Tests of the real daemon after its welcome: lost sockets, hostile peers, stops, restarts."""

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.envelope import Deliver, Ping, Revoke
from protocol.ids import RevocationEpoch
from protocol.secrets import Secret
from tests.process.daemon import STATE_FILE, Daemon, daemon, flags
from tests.runnerd.peer import Authority, command
from tests.runnerd.peer_server import PeerServer, serving

pytestmark = pytest.mark.process

FRESH_TICKET = "bootstrap_fresh"


@contextmanager
def connected(
    tmp_path: Path, authority: Authority | None = None, *more: str
) -> Generator[tuple[PeerServer, Daemon]]:
    """Run a daemon against a server, welcomed."""
    with (
        serving(authority or Authority()) as server,
        daemon([*flags(server.url, tmp_path / "state"), "--log-level", "debug", *more]) as run,
    ):
        server.wait_until(lambda: server.authority.connections == 1, "a welcome")
        yield server, run


def content(tmp_path: Path) -> dict[str, object]:
    """Return what the state file holds."""
    loaded: dict[str, object] = json.loads((tmp_path / "state" / STATE_FILE).read_bytes())[
        "content"
    ]
    return loaded


def event_types(authority: Authority) -> list[str]:
    return [message.event.event_type for message in authority.events]


def prepared(program: str) -> dict[str, object]:
    return {"provider": {"kind": "command", "argv": ["/bin/sh", "-c", program], "cwd": "/"}}


def with_turn(program: str) -> Authority:
    """Return an authority that has a program run as soon as a runner is there."""
    return Authority(
        pending=[
            command(1, "run.prepare", prepared(program)),
            command(2, "session.open"),
            command(3, "turn.start"),
        ]
    )


def deliver(server: PeerServer, seq: int, type_: str) -> None:
    with server.changing():
        server.authority.pending = [command(seq, type_)]
        server.newest().say(Deliver(server.authority.pending[0]))


def test_lost_socket_keeps_process_and_lease_and_resends_nothing_committed(tmp_path: Path) -> None:
    with connected(tmp_path, with_turn("echo one; read x || sleep 60")) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        before = list(authority.events)

        server.drop_connections()

        server.wait_until(lambda: authority.connections == 2, "a reconnect")
        assert [hello.credential_kind for hello in authority.hellos] == ["bootstrap", "lease"]
        deliver(server, 4, "run.cancel")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        assert authority.events[: len(before)] == before
        sequences = [message.event.source_seq for message in authority.events]
        assert sequences == list(range(1, len(sequences) + 1))
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\0" * 64, "frame_malformed"),
        (b"\x82\x02{}", "frame_malformed"),
        (b"\x81\x82\0\0\0\0{}", "frame_malformed"),
        (b"\x81\x7f\x00\x00\x00\x00\x00\x10\x00\x01", "frame_too_large"),
        (b"\x81\x02{}", "frame_malformed"),
        (b"\x81\x01{", "message_not_json"),
        (b"\x81\x06[[[[[[", "message_not_json"),
        (b"\x88\x02\x03\xe8", "connection_lost"),
    ],
)
def test_hostile_bytes_cost_the_connection_and_nothing_else(
    tmp_path: Path, data: bytes, code: str
) -> None:
    with connected(tmp_path) as (server, run):
        with server.changing():
            server.newest().say_bytes(data)

        server.wait_until(lambda: server.authority.connections == 2, "a reconnect")

        run.signal(signal.SIGTERM)
        assert run.wait() == 75
        assert [fact["code"] for fact in run.facts("connection_lost")] == [code]


def test_repeated_frame_costs_the_connection_and_nothing_else(tmp_path: Path) -> None:
    with connected(tmp_path) as (server, run):
        with server.changing():
            peer = server.newest()
            peer.say(Ping())
            sealed = peer.outgoing()
            peer.say_bytes(sealed + sealed)

        server.wait_until(lambda: server.authority.connections == 2, "a reconnect")

        run.signal(signal.SIGTERM)
        assert run.wait() == 75
        assert [fact["code"] for fact in run.facts("connection_lost")] == ["frame_counter_mismatch"]


def test_stop_ends_the_harness_and_leaves_a_state_that_the_next_process_resumes(
    tmp_path: Path,
) -> None:
    authority = with_turn("trap '' TERM; echo started; while :; do sleep 1; done")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")

        run.signal(signal.SIGTERM)

        assert (run.wait(), run.code) == (75, "stop_requested")
        assert run.facts("harness_exited")[0]["survivors"] == 0
        assert content(tmp_path)["lifecycle"] not in ("stopped", "revoked", "suspended")
        assert "turn.interrupted" in event_types(authority)

        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False
        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: "runner.reconciled" in event_types(authority), "resumption")
            again.signal(signal.SIGTERM)
            assert again.wait() == 75
        sequences = [message.event.source_seq for message in authority.events]
        assert sequences == list(range(1, len(sequences) + 1))


def test_second_stop_ends_at_once(tmp_path: Path) -> None:
    authority = with_turn("trap '' TERM; echo started; while :; do sleep 1; done")
    authority.acknowledges = False
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")

        run.signal(signal.SIGTERM)
        run.wait_for_fact("stop_requested")
        run.signal(signal.SIGTERM)

        assert (run.wait(), run.code) == (75, "stop_requested")


def test_killed_process_is_resumed_and_its_harness_is_proven_gone(tmp_path: Path) -> None:
    authority = with_turn("echo $$; while :; do sleep 1; done")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        run.signal(signal.SIGKILL)
        run.process.wait()
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False

        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: "turn.interrupted" in event_types(authority), "the report")
            again.signal(signal.SIGTERM)
            assert again.wait() == 75

        assert [fact["outcome"] for fact in again.facts("orphan_settled")] == ["ended"]
        sequences = sorted({message.event.source_seq for message in authority.events})
        assert sequences == list(range(1, len(sequences) + 1))


@pytest.mark.parametrize(
    ("type_", "lifecycle"), [("runner.shutdown", "stopped"), ("runner.suspend", "suspended")]
)
def test_terminal_command_ends_well_once_everything_is_delivered(
    tmp_path: Path, type_: str, lifecycle: str
) -> None:
    with connected(tmp_path) as (server, run):
        deliver(server, 1, type_)

        assert run.wait() == 0
        assert content(tmp_path)["lifecycle"] == lifecycle
        assert content(tmp_path)["outbox"] == []
        assert [message.result.status for message in server.authority.results] == ["completed"]


def test_revocation_ends_well_and_a_restart_needs_no_connection(tmp_path: Path) -> None:
    with connected(tmp_path) as (server, run):
        with server.changing():
            server.newest().say(Revoke(RevocationEpoch(2)))

        assert run.wait() == 0
        assert content(tmp_path)["lifecycle"] == "revoked"
        connections = len(server.peers)
        with daemon(flags(server.url, tmp_path / "state")) as again:
            assert again.wait() == 0
        assert len(server.peers) == connections


def test_lease_is_renewed_for_as_long_as_the_controller_answers(tmp_path: Path) -> None:
    with connected(tmp_path, Authority(lease_ttl_ms=2_500)) as (server, run):
        server.wait_until(lambda: len(server.authority.renewals) >= 4, "renewals")

        run.signal(signal.SIGTERM)
        assert run.wait() == 75
        assert server.authority.connections == 1


def test_lease_that_is_not_renewed_ends_the_process_at_its_expiry(tmp_path: Path) -> None:
    authority = Authority(lease_ttl_ms=1_000, answers_renewals=False)
    with connected(tmp_path, authority) as (server, run):
        assert (run.wait(), run.code) == (75, "lease_expired_requires_bootstrap")

        assert content(tmp_path)["recoverableFailure"] == "lease_expired_requires_bootstrap"
        assert len(server.authority.renewals) >= 1


def test_controller_that_stays_away_ends_the_process_after_the_grace(tmp_path: Path) -> None:
    with serving(Authority()) as server:
        arguments = [*flags(server.url, tmp_path / "state"), "--reconnect-grace-ms", "500"]
        with daemon(arguments) as run:
            server.wait_until(lambda: server.authority.connections == 1, "a welcome")

            server.stop()

            assert (run.wait(), run.code) == (69, "transport_reconnect_grace_exceeded")


def test_controller_that_lost_history_is_refused_and_nothing_is_renumbered(tmp_path: Path) -> None:
    authority = with_turn("echo one")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        with server.changing():
            authority.acked = 0
        server.drop_connections()

        assert (run.wait(), run.code) == (76, "controller_rollback_detected")
