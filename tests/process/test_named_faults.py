"""The named faults of the product, each on a real daemon with a readable story (faults 4.1)."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from protocol.envelope import Ack, Deliver
from protocol.ids import SourceSeq
from protocol.secrets import Secret
from tests.process.daemon import daemon, flags
from tests.process.test_call_faults import result_of
from tests.process.test_life import (
    FRESH_TICKET,
    connected,
    content,
    deliver,
    event_types,
    prepared,
    with_turn,
)
from tests.process.tracer import attached
from tests.runnerd.harness.support import wait_until
from tests.runnerd.peer import Authority, command, unix_ms
from tests.runnerd.peer_server import PeerServer

pytestmark = pytest.mark.process


def deliveries(authority: Authority) -> dict[int, list[bytes]]:
    """Return the bytes of each event as often as they arrived."""
    found: dict[int, list[bytes]] = {}
    for message in authority.events:
        found.setdefault(message.event.source_seq, []).append(message.body)
    return found


def payloads(authority: Authority, event_type: str) -> list[dict[str, object]]:
    by_seq = {m.event.source_seq: m.event for m in authority.events}
    return [
        msgspec.json.decode(event.payload)
        for _, event in sorted(by_seq.items())
        if event.event_type == event_type
    ]


def wait_for_results(server: PeerServer, count: int) -> None:
    server.wait_until(lambda: len(server.authority.results) == count, "an answer")


def acknowledge_all(server: PeerServer) -> None:
    """Let the controller say that it has committed everything, and go on saying so."""
    authority = server.authority
    with server.changing():
        authority.acknowledges = True
        authority.acked = max(message.event.source_seq for message in authority.events)
        server.newest().say(Ack(SourceSeq(authority.acked)))


def test_run_without_a_fault_delivers_everything_once(tmp_path: Path) -> None:
    with connected(tmp_path, with_turn("echo one; echo two")) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        deliver(server, 4, "runner.shutdown")

        assert run.wait() == 0

        found = deliveries(authority)
        assert sorted(found) == list(range(1, len(found) + 1))
        assert {len(times) for times in found.values()} == {1}
        assert [m.result.controller_seq for m in authority.results] == [1, 2, 3, 4]
        assert (authority.connections, len(authority.hellos)) == (1, 1)
        assert run.facts("connect_failed") == run.facts("state_write_failed") == []
        assert content(tmp_path)["outbox"] == []
        assert content(tmp_path)["lifecycle"] == "stopped"


def test_lost_ack_brings_the_same_bytes_again_and_no_second_event(tmp_path: Path) -> None:
    authority = with_turn("echo one; read x || sleep 1000")
    authority.acknowledges = False
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        known = len(deliveries(authority))
        server.drop_connections()
        server.wait_until(lambda: len(authority.events) == 2 * known, "all of it again")

        found = deliveries(authority)
        assert sorted(found) == list(range(1, known + 1))
        assert all(first == second for first, second in found.values())
        acknowledge_all(server)
        server.drop_connections()
        server.wait_until(lambda: authority.connections == 3, "a third welcome")
        deliver(server, 4, "run.cancel")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")

        after = deliveries(authority)
        assert {len(after[seq]) for seq in range(1, known + 1)} == {2}
        assert {len(times) for seq, times in after.items() if seq > known} == {1}
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_duplicate_command_gets_its_answer_and_starts_nothing_again(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    authority = with_turn(f"echo ran >>{ledger}; read x || sleep 1000")
    again = authority.pending[2]
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: len(authority.results) == 3, "the start of the turn")
        wait_until(ledger.exists)
        first = authority.results[-1].body
        events = len(authority.events)

        for _ in range(2):
            with server.changing():
                server.newest().say(Deliver(again))
        server.wait_until(lambda: len(authority.results) == 5, "two answers")

        assert [message.body for message in authority.results[2:]] == [first] * 3
        altered = msgspec.structs.replace(again, payload=msgspec.Raw(b'{"input":"other"}'))
        with server.changing():
            server.newest().say(Deliver(altered))
        server.wait_until(lambda: authority.connections == 2, "another connection")
        assert [fact["code"] for fact in run.facts("connection_lost")] == ["command_conflict"]
        assert len(authority.results) == 5

        for number in range(4, 4 + 130):
            deliver(server, number, "session.snapshot")
            wait_for_results(server, number + 2)
        with server.changing():
            server.newest().say(Deliver(again))
        server.wait_until(lambda: len(authority.results) == 136, "the refusal")

        refused = authority.results[-1].result
        assert refused.status == "rejected"
        assert msgspec.json.decode(refused.result)["code"] == "command_history_compacted"
        assert ledger.read_text() == "ran\n"
        assert len(authority.events) == events
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_command_that_was_started_when_its_runner_was_killed_is_indeterminate(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger"
    authority = with_turn(f"echo ran >>{ledger}")
    del authority.pending[2]
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: len(authority.results) == 2, "a session")
        with attached(run.pid, tmp_path, "vfork,fork:delay_enter=20s"):
            deliver(server, 3, "turn.start")
            server.wait_until(lambda: "harness.starting" in event_types(authority), "the start")
            run.signal(signal.SIGKILL)
            run.process.wait()
        assert len(authority.results) == 2
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False

        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as second:
            server.wait_until(lambda: len(authority.results) == 3, "an answer")
            server.wait_until(lambda: "turn.interrupted" in event_types(authority), "the report")

            answer = result_of(authority, 3)
            assert (answer["status"], answer["code"]) == (
                "indeterminate",
                "execution_indeterminate",
            )
            assert answer["logicalEffectCount"] is None
            assert not ledger.exists()
            new = event_types(authority)[event_types(authority).index("harness.starting") + 1 :]
            assert new[0] == "runner.reconciled"
            second.signal(signal.SIGTERM)
            assert second.wait() == 75


def test_display_text_of_a_lost_connection_is_merged_and_whole(tmp_path: Path) -> None:
    go, stay = tmp_path / "go", tmp_path / "stay"
    os.mkfifo(go)
    os.mkfifo(stay)
    authority = with_turn(f"echo 0; read x <{go}; seq 250; read x <{stay}")
    with connected(tmp_path, authority, "--reconnect-delay-ms", "50") as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        server.tamper.hello = lambda hello: False
        server.drop_connections()
        run.wait_for_fact("connection_lost")
        go.write_text("go\n")
        wait_until(lambda: content(tmp_path)["linesAccepted"] == 251)
        server.tamper.hello = lambda hello: True

        server.wait_until(lambda: authority.connections == 2, "a reconnect")
        server.wait_until(lambda: len(payloads(authority, "item.delta")) >= 2, "the rest")

        told = payloads(authority, "item.delta")
        assert len(told) < 20
        assert sum(int(str(payload.get("coalescedCount", 1))) for payload in told) == 251
        text = "".join(str(payload["text"]) for payload in told)
        assert text == "".join(f"{number}\n" for number in range(251))
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_full_outbox_refuses_turns_until_it_is_delivered(tmp_path: Path) -> None:
    limit = 120_000
    authority = Authority(acknowledges=False)
    small = ("--max-outbox-bytes", str(limit), "--p0-reserve-bytes", "40000")
    with connected(tmp_path, authority, *small) as (server, run):
        number = 0
        while not payloads(authority, "runner.backpressure"):
            number += 1
            with server.changing():
                authority.pending = [
                    command(number, "run.prepare", prepared("echo " + "x" * 2_000))
                ]
                server.newest().say(Deliver(authority.pending[0]))
            wait_for_results(server, number)
        produced = len(deliveries(authority))

        deliver(server, number + 1, "turn.start")
        server.wait_until(lambda: len(authority.results) == number + 1, "the refusal")

        refused = result_of(authority, number + 1)
        assert (refused["status"], refused["logicalEffectCount"]) == ("rejected", 0)
        assert len(deliveries(authority)) == produced
        acknowledge_all(server)
        server.wait_until(lambda: len(payloads(authority, "runner.backpressure")) == 2, "its end")
        edges = [
            payload["newTurnsAccepted"] for payload in payloads(authority, "runner.backpressure")
        ]
        assert edges == [False, True]
        deliver(server, number + 2, "session.open")
        server.wait_until(lambda: len(authority.results) == number + 2, "a session")
        deliver(server, number + 3, "turn.start")
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        peak = content(tmp_path)["peakOutboxBytes"]
        assert isinstance(peak, int)
        assert limit // 2 < peak <= limit
        assert sorted(deliveries(authority)) == list(range(1, len(deliveries(authority)) + 1))
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_drain_refuses_what_follows_and_shutdown_waits_for_the_outbox(tmp_path: Path) -> None:
    authority = with_turn("echo one; read x || sleep 1000")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        deliver(server, 4, "runner.drain")
        server.wait_until(lambda: "runner.draining" in event_types(authority), "the fact")
        deliver(server, 5, "turn.start")
        server.wait_until(lambda: len(authority.results) == 5, "the refusal")
        refused = result_of(authority, 5)
        assert (refused["code"], refused["logicalEffectCount"]) == ("runner_draining", 0)
        assert "harness.exited" not in event_types(authority), "admitted work is not ended"
        with server.changing():
            authority.acknowledges = False

        deliver(server, 6, "runner.shutdown")
        server.wait_until(lambda: "harness.exited" in event_types(authority), "the last facts")
        server.wait_until(lambda: len(authority.results) == 6, "its result")

        assert run.process.poll() is None, "it waits for what is not acknowledged"
        acknowledge_all(server)
        assert run.wait() == 0
        assert content(tmp_path)["lifecycle"] == "stopped"
        assert content(tmp_path)["outbox"] == []


def test_revocation_while_disconnected_ends_use_with_the_lease_and_delivers_later(
    tmp_path: Path,
) -> None:
    authority = with_turn("echo one; read x || sleep 1000")
    authority.lease_ttl_ms = 1_500
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        server.tamper.hello = lambda hello: False
        server.drop_connections()
        granted_until = authority.lease_expires_at_unix_ms

        assert (run.wait(), run.code) == (75, "lease_expired_requires_bootstrap")

        assert unix_ms() >= granted_until
        held = content(tmp_path)["outbox"]
        assert isinstance(held, list)
        assert held
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False
            authority.revocation_epoch += 1
            authority.pending = [command(4, "turn.start")]
            server.tamper.hello = lambda hello: True
        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as second:
            assert second.wait() == 0
        assert content(tmp_path)["lifecycle"] == "revoked"
        assert content(tmp_path)["outbox"] == []
        assert len(authority.results) == 3, "no command is taken any more"
        assert sorted(deliveries(authority)) == list(range(1, len(deliveries(authority)) + 1))
