"""The real daemon keeps the log of its run: before it starts anything, and before it tells."""

import json
import signal
from pathlib import Path

import msgspec
import pytest

from protocol.secrets import Secret
from runnerd.runs.envelope import tell_story
from runnerd.runs.projection import project_run
from runnerd.runs.records import RecordKind, RunRecord
from tests.process.daemon import daemon, flags
from tests.process.test_life import FRESH_TICKET, connected, deliver, event_types, with_turn
from tests.runnerd.peer import IDENTITY, Authority
from tests.runnerd.runs.logs import store_in

pytestmark = pytest.mark.process

RUN = IDENTITY.run_id


def records(tmp_path: Path) -> tuple[RunRecord, ...]:
    return store_in(tmp_path / "state" / "runs").read(RUN, mends=False).records


def told(tmp_path: Path) -> list[str]:
    return [
        str(record.payload["event"])
        if record.kind is RecordKind.OPERATION and isinstance(record.payload, dict)
        else record.kind.value
        for record in records(tmp_path)
    ]


def terminal(authority: Authority) -> dict[str, object]:
    [payload] = [
        message.event.payload
        for message in authority.events
        if message.event.event_type == "run.terminal"
    ]
    found: dict[str, object] = json.loads(bytes(payload))
    return found


def test_run_is_in_its_log_before_it_is_told_and_carries_its_snapshot(tmp_path: Path) -> None:
    with connected(tmp_path, with_turn("echo one")) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")

        found = tell_story(records(tmp_path)).snapshot()

        assert told(tmp_path) == [
            *("start", "ACCEPT", "START", "verification", "COMPLETE", "finish")
        ]
        assert terminal(authority)["snapshot"] == json.loads(msgspec.json.encode(found))
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_cancelled_run_is_aborted_in_its_log(tmp_path: Path) -> None:
    with connected(tmp_path, with_turn("echo one; sleep 60")) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")

        deliver(server, 4, "run.cancel")

        server.wait_until(lambda: "run.terminal" in event_types(authority), "the end of the run")
        assert told(tmp_path) == ["start", "ACCEPT", "START", "REQUEST_ABORT", "FAIL", "finish"]
        assert project_run(records(tmp_path)).finish_reason == "aborted"
        assert terminal(authority)["runTerminalState"] == "cancelled"
        run.signal(signal.SIGTERM)
        assert run.wait() == 75


def test_run_that_is_cancelled_while_nothing_runs_has_its_end_in_the_log(tmp_path: Path) -> None:
    with connected(tmp_path, with_turn("echo one; sleep 60")) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        run.signal(signal.SIGTERM)
        run.process.wait()
        paused = told(tmp_path)
        with server.changing():
            authority.ticket_is_used = False
            authority.ticket = Secret(FRESH_TICKET)
        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: "runner.reconciled" in event_types(authority), "resumption")
            deliver(server, 4, "run.cancel")
            server.wait_until(lambda: "run.terminal" in event_types(authority), "the end")
            again.signal(signal.SIGTERM)
            assert again.wait() == 75

    assert paused[-1] == "pause"
    assert told(tmp_path) == [*paused, "REQUEST_ABORT", "FAIL", "finish"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_lost_run_is_paused_and_another_turn_resumes_it(
    how: signal.Signals, tmp_path: Path
) -> None:
    program = 'echo "turn $RUNNERD_TURN"; [ "$RUNNERD_TURN" = 2 ] || sleep 60'
    with connected(tmp_path, with_turn(program)) as (server, run):
        authority = server.authority
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")
        begun = told(tmp_path)
        run.signal(how)
        run.process.wait()
        with server.changing():
            authority.ticket_is_used = False
            authority.ticket = Secret(FRESH_TICKET)

        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: "turn.interrupted" in event_types(authority), "the report")
            paused = told(tmp_path)
            deliver(server, 4, "turn.start")
            server.wait_until(lambda: "run.terminal" in event_types(authority), "the end")
            again.signal(signal.SIGTERM)
            assert again.wait() == 75

    assert begun == ["start", "ACCEPT", "START"]
    assert paused == [*begun, "PAUSE", "pause"]
    assert told(tmp_path) == [
        *(*paused, "resume", "RESUME"),
        *("verification", "COMPLETE", "finish"),
    ]


def test_turn_whose_run_log_cannot_be_kept_fails_by_name_and_starts_nothing(
    tmp_path: Path,
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "runs").write_text("in the way")
    with connected(tmp_path, with_turn(f"touch {ran}")) as (server, run):
        authority = server.authority

        server.wait_until(lambda: "turn.failed" in event_types(authority), "the refusal")

        [payload] = [
            json.loads(bytes(message.event.payload))
            for message in authority.events
            if message.event.event_type == "turn.failed"
        ]
        assert payload["reason"] == "harness_start_failed"
        assert payload["message"].startswith("state_unsafe: ")
        assert not ran.exists()
        run.signal(signal.SIGTERM)
        assert run.wait() == 75
