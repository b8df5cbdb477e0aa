"""The real daemon keeps the log of its run: before it starts anything, and before it tells."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from protocol.secrets import Secret
from runnerd.runs.envelope import tell_story
from runnerd.runs.projection import project_run
from runnerd.runs.records import RecordKind, RunRecord
from tests.process.daemon import daemon, flags
from tests.process.talk import conversation
from tests.process.test_dialogue import ASK, CALL, DONE, python
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


def console(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "runnerd", *arguments], capture_output=True, text=True, check=False
    )


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
    found = tell_story(records(tmp_path)).snapshot()
    assert terminal(authority)["snapshot"] == json.loads(msgspec.json.encode(found))


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


def test_effect_whose_end_nobody_saw_is_not_repeated_until_somebody_decides(
    tmp_path: Path,
) -> None:
    """A real SIGKILL between the start of a call and its result."""
    ran = tmp_path / "ran"
    source = f'open({str(ran)!r}, "a").write("x")\n' + CALL + 'hear("semantic_tool.result")\n'
    runs = tmp_path / "state" / "runs"
    with conversation(tmp_path, *python(source + DONE)) as talk:
        talk.wait_for("semantic_tool.input")
        talk.kill_runner()
        with talk.next_runner():
            talk.wait_for("turn.interrupted")
            assert project_run(records(tmp_path)).status.value == "paused"
            refused = talk.perform("turn.start", {})
            assert refused["result"]["code"] == "tool_calls_pending"
            talk.run.signal(signal.SIGTERM)
            assert talk.run.wait() == 75

        # What a person sees, decides, and sees then.
        plan = console("runs", "resume", "--dry-run", RUN, "--runs", str(runs))
        assert plan.returncode != 0
        assert "call_1" in plan.stdout + plan.stderr
        assert "unknown_effect" in plan.stdout + plan.stderr
        evidence = tmp_path / "evidence.txt"
        evidence.write_text("the task list shows it")
        decided = console(
            *("runs", "reconcile", RUN, "call_1", "--outcome", "committed"),
            *("--evidence", str(evidence), "--runs", str(runs)),
        )
        assert decided.returncode == 0, decided.stderr
        again = console("runs", "resume", "--dry-run", RUN, "--runs", str(runs))
        assert again.returncode == 0, again.stdout
        assert console("runs", "verify", RUN, "--runs", str(runs)).returncode == 0
    assert ran.read_text() == "x"


def test_result_of_a_lost_program_is_the_decision_that_lets_the_run_go_on(tmp_path: Path) -> None:
    with conversation(tmp_path, *python(CALL + 'hear("semantic_tool.result")\n' + DONE)) as talk:
        talk.wait_for("semantic_tool.input")
        talk.kill_runner()
        with talk.next_runner():
            talk.wait_for("turn.interrupted")
            assert talk.answer_call({"taskId": "t_1"})["result"]["status"] == "stored"
            talk.perform("turn.start", {})
            assert talk.terminal()["runTerminalState"] == "succeeded"

    [decision] = [r.payload for r in records(tmp_path) if r.kind is RecordKind.CONTROL]
    assert isinstance(decision, dict)
    assert decision["outcome"] == "committed"
    assert decision["decidedBy"] == {"kind": "authority", "name": "controller"}
    assert told(tmp_path)[-3:] == ["verification", "COMPLETE", "finish"]


def test_calls_and_answers_of_a_program_stand_in_its_log(tmp_path: Path) -> None:
    source = CALL + 'hear("semantic_tool.result")\n' + ASK + 'hear("request.resolve")\n'
    with conversation(tmp_path, *python(source + DONE)) as talk:
        talk.wait_for("semantic_tool.input")
        talk.answer_call({"taskId": "t_1"})
        talk.wait_for("runtime_request.created")
        talk.perform("request.resolve", {"requestId": "ask_1", "resolution": {"allow": False}})
        assert talk.terminal()["runTerminalState"] == "succeeded"

    said = [
        record.payload["event"]
        for record in records(tmp_path)
        if record.kind is RecordKind.EVENT and isinstance(record.payload, dict)
    ]
    assert [event.get("status") or event["type"] for event in said if isinstance(event, dict)] == [
        *("step_start", "tool_call", "capability_resolved", "started"),
        *("tool_result", "step_output", "committed"),
        *("approval_required", "approval_resolved"),
    ]
    assert isinstance(said[-1], dict)
    assert said[-1]["decision"] == "denied"


def test_run_beyond_its_limit_of_tokens_fails_by_name(tmp_path: Path) -> None:
    source = (
        'say("event", eventType="usage.reported", payload={"totalTokens": 11, "costUsd": 0.5})\n'
        'hear("nothing")\n'
    )
    limits: dict[str, object] = {"limits": {"maxTokens": 10}}
    with conversation(tmp_path, *python(source + DONE), prepared=limits) as talk:
        ended = talk.terminal()

    assert (ended["runTerminalState"], ended["reason"]) == ("failed", "budget_exceeded")
    assert ended["snapshot"]["metrics"]["tokens"] == 11
    assert project_run(records(tmp_path)).finish_reason == "budget_exceeded"
