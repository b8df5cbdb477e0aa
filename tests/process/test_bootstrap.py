"""Tests of the real daemon between its start and its first welcome."""

import json
import signal
from pathlib import Path

import pytest

from tests.process.daemon import daemon, flags
from tests.runnerd.peer import Authority, Tamper
from tests.runnerd.peer_server import serving

pytestmark = pytest.mark.process


def hurried(url: str, tmp_path: Path, deadline_ms: int = 1_000) -> list[str]:
    """Return arguments of a daemon that gives up soon."""
    return [
        *flags(url, tmp_path / "state"),
        *("--bootstrap-deadline-ms", str(deadline_ms), "--reconnect-delay-ms", "50"),
    ]


@pytest.mark.parametrize("name", ["wrong", "used", "expired"])
def test_ticket_that_no_controller_takes_ends_the_start_in_bounded_time(
    tmp_path: Path, name: str
) -> None:
    authority = Authority(ticket_is_used=name == "used")
    ticket = "bootstrap_wrong" if name == "wrong" else "bootstrap_expired"
    if name == "used":
        ticket = bytes(authority.ticket.reveal()).decode()
    with serving(authority) as server:
        if name == "expired":
            server.tamper.hello = lambda hello: False

        with daemon(hurried(server.url, tmp_path), ticket=ticket) as run:
            status = run.wait()

    assert (status, run.code) == (69, "bootstrap_deadline_exceeded")
    assert "last: connection_lost" in run.last_line
    assert len(authority.hellos) >= 2, "it was tried again: the ticket was not spent"


def test_controller_that_is_not_there_ends_the_start_in_bounded_time(tmp_path: Path) -> None:
    with serving(Authority()) as server:
        url = server.url

    with daemon(hurried(url, tmp_path)) as run:
        status = run.wait()

    assert (status, run.code) == (69, "bootstrap_deadline_exceeded")


def test_controller_that_never_answers_ends_the_start_in_bounded_time(tmp_path: Path) -> None:
    with serving(Authority()) as server:
        server.tamper.challenge = lambda frame: frame.replace(
            b'"serverProof":"', b'"serverProof":"0'
        )

        with daemon(hurried(server.url, tmp_path)) as run:
            status = run.wait()

    assert (status, run.code) == (69, "bootstrap_deadline_exceeded")
    assert "last: proof_invalid" in run.last_line


def test_altered_challenge_is_refused_and_the_ticket_serves_the_next_one(tmp_path: Path) -> None:
    def altered(frame: bytes) -> bytes:
        message = json.loads(frame)
        message["payload"]["credentialExpiresAtUnixMs"] += 1
        return json.dumps(message).encode()

    with serving(Authority()) as server:
        server.tamper.challenge = altered
        with daemon(flags(server.url, tmp_path / "state")) as run:
            server.wait_until(lambda: len(server.peers) >= 2, "a second attempt")
            with server.changing():
                assert not any(len(peer.texts) > 1 for peer in server.peers), "no response"
                for peer in server.peers:
                    peer.tamper.challenge = lambda frame: frame
                server.tamper.challenge = lambda frame: frame

            server.wait_until(lambda: server.authority.connections == 1, "a welcome")

            run.signal(signal.SIGTERM)
            assert run.wait() == 75
            assert {fact["code"] for fact in run.facts("connect_failed")} == {"proof_invalid"}


@pytest.mark.parametrize("failure", ["no welcome", "bad welcome"])
def test_failure_after_the_proof_ends_the_start_and_asks_for_a_fresh_ticket(
    tmp_path: Path, failure: str
) -> None:
    with serving(Authority()) as server:
        if failure == "no welcome":
            server.tamper = Tamper(response=lambda response: False)
        else:
            server.tamper = Tamper(
                sealed=lambda frame: frame.replace(b'"counter":0', b'"counter":1')
            )

        with daemon(flags(server.url, tmp_path / "state")) as run:
            status = run.wait()

        assert (status, run.code) == (75, "bootstrap_consumed")
        assert "fresh ticket" in run.last_line
        assert len(server.authority.hellos) == 1, "the ticket was not tried again"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 64,
        b"HTTP/1.1 500 Internal Server Error\r\n\r\n",
        b"\x82\x02{}",
        b"\x81\x82\0\0\0\0{}",
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_garbage_before_the_welcome_is_refused_and_the_next_attempt_succeeds(
    tmp_path: Path, garbage: bytes
) -> None:
    with serving(Authority()) as server:
        server.tamper.hello = lambda hello: False
        with daemon(flags(server.url, tmp_path / "state")) as run:
            server.wait_until(lambda: len(server.authority.hellos) >= 1, "a hello")
            with server.changing():
                server.tamper.hello = lambda hello: True
                server.tamper.challenge = lambda frame: garbage.hex().encode()

            server.wait_until(lambda: len(server.authority.hellos) >= 2, "another hello")
            with server.changing():
                server.tamper.challenge = lambda frame: frame

            server.wait_until(lambda: server.authority.connections == 1, "a welcome")
            run.signal(signal.SIGTERM)
            assert run.wait() == 75


def test_flags_of_the_upstream_controller_are_accepted_and_said_to_be_ignored(
    tmp_path: Path,
) -> None:
    ignored = ["--fake-harness", "/x", "--fake-harness-script", "/y", "--lifecycle-mode", "warm"]
    with (
        serving(Authority()) as server,
        daemon([*flags(server.url, tmp_path / "state"), *ignored]) as run,
    ):
        server.wait_until(lambda: server.authority.connections == 1, "a welcome")
        run.wait_for_fact("flags_ignored")
        run.signal(signal.SIGTERM)
        assert run.wait() == 75

    (fact,) = run.facts("flags_ignored")
    assert fact["flags"] == ["--fake-harness", "--fake-harness-script", "--lifecycle-mode"]


def test_stop_is_obeyed_while_a_silent_controller_is_waited_for(tmp_path: Path) -> None:
    with serving(Authority()) as server:
        server.tamper.challenge = lambda frame: b"{}"
        with daemon(flags(server.url, tmp_path / "state")) as run:
            server.wait_until(lambda: len(server.authority.hellos) >= 1, "a hello")

            run.signal(signal.SIGTERM)

            assert (run.wait(), run.code) == (75, "stop_requested")
        assert not server.authority.ticket_is_used
