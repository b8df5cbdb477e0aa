"""The real daemon with the scripted harness: every fixture, requests, tools and their faults."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from protocol.limits import HARNESS_MESSAGE_BYTES_MAX
from tests.process.daemon import STATE_FILE
from tests.process.talk import Conversation, conversation, program_pids

pytestmark = pytest.mark.process

SPEAK = """
import json, os, sys, time
seq = 0
def say(type, **payload):
    global seq
    seq += 1
    message = {"schema": "paperclip.fake_harness.message.v1", "messageSeq": seq,
               "type": type, "payload": payload}
    os.write(1, json.dumps(message).encode() + b"\\n")
def hear(*types):
    for line in sys.stdin:
        command = json.loads(line)
        if command["type"] in types:
            return command["payload"]
    sys.exit(9)
RESULT = {"schema": "paperclip.run_result.v1", "reportedWorkDisposition": "done",
          "summary": "done", "completionClaim": {"contractRevision": "1",
          "objectiveSatisfied": True, "criteria": [], "remainingWork": []}, "evidence": [],
          "verification": [], "attentionRequests": [], "artifacts": []}
TERMINAL = {"turnTerminalState": "completed", "runTerminalState": "succeeded",
            "reportedWorkDisposition": "done"}
say("ready")
session = hear("session.open")
"""
ASK = 'say("request", requestId="ask_1", requestKind="permission", call={"program": "rm"})\n'
CALL = (
    'say("request", requestKind="semantic_tool", callId="call_1", operationId="create_task",'
    ' input={"title": "x"})\n'
)
DONE = 'say("result", **RESULT)\nsay("terminal", **TERMINAL)\n'


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", SPEAK + source)


def state(talk: Conversation) -> dict[str, object]:
    found = json.loads((talk.folder / "state" / STATE_FILE).read_bytes())
    content: dict[str, object] = found["content"]
    return content


def alive(talk: Conversation) -> list[int]:
    return program_pids(str(state(talk)["stateId"]))


def test_happy_path(tmp_path: Path) -> None:
    with conversation(tmp_path, script="happy-path") as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reason"]) == (
            "succeeded",
            "successful_process_and_result",
        )
        assert talk.types() == [
            "workspace.ready",
            "session.started",
            "turn.accepted",
            "harness.starting",
            "harness.ready",
            "turn.started",
            "runtime.phase.changed",
            "item.started",
            "item.delta",
            "item.delta",
            "item.completed",
            "run.result.proposed",
            "turn.completed",
            "harness.exited",
            "run.terminal",
        ]
        text = "".join(payload["text"] for payload in talk.events("item.delta"))
        assert text == "Hello, world.\n"
        [exited] = talk.events("harness.exited")
        assert sorted(exited["logs"]["lines"]) == ["starting", "working"]


def test_permission_and_input(tmp_path: Path) -> None:
    with conversation(tmp_path, script="permission-input") as talk:
        first = talk.wait_for("runtime_request.created")
        answer = {"requestId": "ask_1", "requestDigest": first["requestDigest"]}

        done = talk.perform("request.resolve", {**answer, "resolution": {"allow": "Ü\r\n"}})
        assert done["result"]["delivery"] == "delivered"
        talk.wait_for("runtime_request.created", 2)
        talk.perform("request.resolve", {"requestId": "ask_2", "resolution": {"text": "this"}})

        assert talk.terminal()["runTerminalState"] == "succeeded"
        assert [heard["resolution"] for heard in talk.heard()] == [
            {"allow": "Ü\r\n"},
            {"text": "this"},
        ]
        again = talk.perform("request.resolve", {**answer, "resolution": {"allow": "no"}})
        assert (again["status"], again["result"]["code"]) == ("rejected", "request_resolved")


def test_interrupted(tmp_path: Path) -> None:
    with conversation(tmp_path, script="interrupted") as talk:
        talk.wait_for("item.started")

        talk.perform("turn.interrupt")

        ended = talk.terminal()
        assert (ended["turnTerminalState"], ended["reason"]) == ("interrupted", "turn_interrupted")
        assert ended["harnessTerminalProposal"]["turnTerminalState"] == "interrupted"
        assert ended["reconciliation"]["processExit"]["exitCode"] == 0
        assert talk.types()[-4:] == [
            "item.failed",
            "turn.interrupted",
            "harness.exited",
            "run.terminal",
        ]


def test_error(tmp_path: Path) -> None:
    with conversation(tmp_path, script="error") as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reason"]) == ("failed", "harness_process_failed")
        [exited] = talk.events("harness.exited")
        assert exited["processExit"]["exitCode"] == 7
        assert exited["logs"]["lines"] == ["password=[REDACTED] was wrong"]


def test_duplicate_terminal(tmp_path: Path) -> None:
    with conversation(tmp_path, script="duplicate-terminal") as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reportedWorkDisposition"]) == (
            "succeeded",
            "done",
        )
        assert talk.codes() == [
            "duplicate_semantic_result_ignored",
            "duplicate_terminal_ignored",
        ]
        assert [r["summary"] for r in talk.events("run.result.proposed")] == ["It is done."]


def test_linger(tmp_path: Path) -> None:
    with conversation(tmp_path, script="linger") as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reason"]) == (
            "succeeded",
            "harness_ended_after_terminal",
        )
        assert alive(talk) == []


def test_oversized_line(tmp_path: Path) -> None:
    with conversation(tmp_path, script="oversized-line") as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reason"]) == (
            "failed",
            "harness_protocol_violation",
        )
        assert talk.events("harness.exited")[0]["logs"]["lines"] == [
            "before",
            f"[a line of its output exceeds {HARNESS_MESSAGE_BYTES_MAX} bytes]",
        ]


def test_never_ready(tmp_path: Path) -> None:
    program = (sys.executable, "-c", "import time; time.sleep(1000)")
    with conversation(tmp_path, *program, readyTimeoutMs=50) as talk:
        ended = talk.terminal()

        assert (ended["runTerminalState"], ended["reason"]) == ("failed", "harness_not_ready")
        assert "turn.started" not in talk.types()
        assert alive(talk) == []


def test_a_call_reaches_the_controller_exactly_and_its_result_the_program(tmp_path: Path) -> None:
    with conversation(tmp_path, script="tool-call") as talk:
        call = talk.wait_for("semantic_tool.input")["semantic_tool"]
        assert call["input"] == {"title": "Grüße\r\n\U0001f600", "n": [1, 2.5, None]}
        assert call["idempotencyKey"] == "key_1"

        done = talk.answer_call({"taskId": "t_1", "tail": "x" * 100_000})

        assert done["result"]["status"] == "delivered"
        assert talk.terminal()["runTerminalState"] == "succeeded"
        again = talk.answer_call({"taskId": "t_1", "tail": "x" * 100_000})
        assert again["result"]["status"] == "duplicate"
        other = talk.answer_call({"taskId": "t_2"})
        assert (other["status"], other["result"]["code"]) == ("failed", "tool_result_conflict")


def test_what_may_not_be_passed_on_reaches_no_disk_and_no_wire(tmp_path: Path) -> None:
    source = (
        'say("request", requestKind="semantic_tool", callId="c_1", operationId="create_task",'
        ' input={"note": "ghp_" + "a" * 36})\n'
        'first = hear("semantic_tool.result")\n'
        'say("request", requestKind="semantic_tool", callId="c_2", operationId="create_task",'
        ' input="x" * (480 * 1024))\n'
        'second = hear("semantic_tool.result")\n'
        'say("diagnostic", code="told", message=first["result"]["reason"])\n'
        'say("diagnostic", code="told", message=second["result"]["reason"])\n'
    )
    with conversation(tmp_path, *python(source + DONE)) as talk:
        assert talk.terminal()["runTerminalState"] == "succeeded"

        told = [p["message"] for p in talk.events("harness.diagnostic") if p["code"] == "told"]
        assert told == ["tool_input_holds_credential", "tool_input_too_large"]
        assert talk.events("semantic_tool.input") == []
        assert b"ghp_aaaa" not in (tmp_path / "state" / STATE_FILE).read_bytes()
        assert b"ghp_aaaa" not in b"".join(m.body for m in talk.authority.events)


def test_the_largest_input_crosses_the_wire(tmp_path: Path) -> None:
    source = (
        'say("request", requestKind="semantic_tool", callId="c_1", operationId="create_task",'
        ' input="x" * (480 * 1024 - 2))\n'
        'hear("semantic_tool.result")\n'
    )
    with conversation(tmp_path, *python(source + DONE)) as talk:
        call = talk.wait_for("semantic_tool.input")["semantic_tool"]

        assert call["input"] == "x" * (480 * 1024 - 2)
        assert talk.answer_call(None)["result"]["status"] == "delivered"
        assert talk.terminal()["runTerminalState"] == "succeeded"


# --- faults -------------------------------------------------------------------------------------


def test_a_killed_harness_is_started_again_within_its_turn(tmp_path: Path) -> None:
    source = (
        'turn = hear("turn.start")\n'
        'say("event", eventType="usage.reported", payload={"pid": os.getpid(),'
        ' "generation": session["generation"], "input": turn["input"]})\n'
        'if session["generation"] == 1:\n'
        "    import subprocess\n"
        '    subprocess.Popen(["sleep", "1000"], start_new_session=True)\n'
        "    time.sleep(1000)\n"
    )
    with conversation(tmp_path, *python(source + DONE), harnessRestartsMax=1) as talk:
        first = talk.wait_for("usage.reported")

        os.killpg(first["pid"], signal.SIGKILL)

        second = talk.wait_for("usage.reported", 2)
        assert talk.terminal()["runTerminalState"] == "succeeded"
        assert (first["generation"], second["generation"]) == (1, 2)
        assert first["input"] == second["input"] == "Grüße\r\n"
        gone, _ = talk.events("harness.exited")
        assert (gone["generation"], gone["recoverable"]) == (1, True)
        [reconciled] = talk.events("session.reconciled")
        assert (reconciled["outcome"], reconciled["generation"]) == ("same_session_resumed", 2)
        assert len(talk.events("turn.started")) == 1
        assert alive(talk) == []


def test_an_answer_after_the_runner_was_killed_waits_for_the_next_program(tmp_path: Path) -> None:
    source = ASK + (
        'answer = hear("request.resolve")\n'
        'say("diagnostic", code="told", message=json.dumps(answer["resolution"]))\n'
    )
    with conversation(tmp_path, *python(source + DONE)) as talk:
        talk.wait_for("runtime_request.created")
        talk.kill_runner()
        with talk.next_runner():
            talk.wait_for("turn.interrupted")
            stored = talk.perform(
                "request.resolve", {"requestId": "ask_1", "resolution": {"allow": True}}
            )
            assert stored["result"]["delivery"] == "stored"

            talk.perform("turn.start", {"input": "again"})

            assert talk.terminal()["runTerminalState"] == "succeeded"
        assert len(talk.events("runtime_request.created")) == 1
        assert len(talk.events("runtime_request.resolved")) == 1
        told = [p["message"] for p in talk.events("harness.diagnostic") if p["code"] == "told"]
        assert told == ['{"allow": true}']


def test_a_late_result_is_stored_and_given_to_whoever_calls_the_same_again(tmp_path: Path) -> None:
    source = CALL + (
        'result = hear("semantic_tool.result")\n'
        'say("diagnostic", code="told", message=json.dumps(result["result"]))\n'
    )
    with conversation(tmp_path, *python(source + DONE)) as talk:
        talk.wait_for("semantic_tool.input")
        talk.kill_runner()
        with talk.next_runner():
            talk.wait_for("turn.interrupted")
            refused = talk.perform("turn.start", {})
            assert refused["result"]["code"] == "tool_calls_pending"
            assert talk.answer_call({"taskId": "t_1"})["result"]["status"] == "stored"

            talk.perform("turn.start", {})

            assert talk.terminal()["runTerminalState"] == "succeeded"
        assert len(talk.events("semantic_tool.input")) == 1
        told = [p["message"] for p in talk.events("harness.diagnostic") if p["code"] == "told"]
        assert told == ['{"taskId": "t_1"}']


def test_a_request_expires_in_real_time(tmp_path: Path) -> None:
    source = (
        'say("request", requestId="ask_1", requestKind="permission", expiresInMs=50)\n'
        'say("diagnostic", code="told", message=hear("request.resolve")["outcome"])\n'
    )
    with conversation(tmp_path, *python(source + DONE)) as talk:
        talk.wait_for("runtime_request.expired")

        assert talk.terminal()["runTerminalState"] == "succeeded"
        assert "told" in talk.codes()
        late = talk.perform("request.resolve", {"requestId": "ask_1", "resolution": {}})
        assert late["result"]["code"] == "request_expired"


def test_a_program_that_reads_nothing_does_not_stop_the_commands(tmp_path: Path) -> None:
    source = "".join(
        f'say("request", requestId="ask_{n}", requestKind="input")\n' for n in range(20)
    )
    with conversation(tmp_path, *python(source + "time.sleep(1000)\n")) as talk:
        talk.wait_for("runtime_request.created", 20)

        for number in range(20):
            done = talk.perform(
                "request.resolve",
                {"requestId": f"ask_{number}", "resolution": {"text": "x" * 30_000}},
            )
            assert done["status"] == "completed"
        talk.perform("run.cancel")

        assert talk.terminal()["reason"] == "run_cancelled"


@pytest.mark.parametrize("close", ["os.close(0)", "sys.stdin.close()"])
def test_a_program_that_closes_its_input_is_no_reason_to_end(tmp_path: Path, close: str) -> None:
    source = f'{ASK}{close}\nsay("event", eventType="usage.reported", payload={{}})\n'
    with conversation(tmp_path, *python(source + "time.sleep(1000)\n")) as talk:
        talk.wait_for("usage.reported")

        done = talk.perform("request.resolve", {"requestId": "ask_1", "resolution": {}})
        talk.perform("turn.interrupt")

        assert done["status"] == "completed"
        assert talk.terminal()["reason"] == "turn_interrupted"
        talk.run.signal(signal.SIGTERM)
        assert talk.run.wait() == 75


def test_a_stop_by_signal_tells_the_program_and_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    source = (
        'say("event", eventType="usage.reported", payload={})\n'
        'say("event", eventType="usage.reported", payload=hear("turn.stop"))\n'
    )
    with conversation(tmp_path, *python(source)) as talk:
        talk.wait_for("usage.reported")

        talk.run.signal(signal.SIGTERM)

        assert talk.run.wait() == 75
        assert talk.wait_for("usage.reported", 2) == {"reason": "stop"}
        assert talk.events("turn.interrupted")[0]["reason"] == "runner_stopped"
        assert talk.events("run.terminal") == []
