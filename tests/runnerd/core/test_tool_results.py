"""Results of tools: the first one holds, a repetition is harmless, a contradiction has a name."""

from collections.abc import Callable

import msgspec
import pytest

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.event_payloads import PAYLOADS_V1
from runnerd.core.inputs import StopRequested
from tests.runnerd.core.talk import (
    CORRELATION,
    INPUT,
    Talk,
    after_restart,
    said,
    talking,
)
from tests.runnerd.core.world import PREPARE, exited

RESULT: JsonValue = {"taskId": "t_1"}


def calling() -> Talk:
    world = talking()
    world.call()
    return world


def test_a_result_is_told_once_exactly_as_it_came() -> None:
    world = calling()
    exact: JsonValue = {"text": "é\u2028\r\n" + "long " * 1_000 + "tail", "n": [1.5, None]}

    result = world.answer(result=exact, isError=True)

    assert said(result) == ("completed", {"callId": "call_1", "status": "delivered"})
    assert world.take_told() == [
        {
            "type": "semantic_tool.result",
            "callId": "call_1",
            "operationId": "create_task",
            "isError": True,
            "result": exact,
        }
    ]
    assert world.take_told() == []


def test_a_result_is_one_event_with_its_digest_and_without_its_body() -> None:
    world = calling()

    world.answer(result={"secret": "hunter2"})

    [event] = [e for e in world.events() if e["eventType"] == "semantic_tool.result"]
    assert event["priority"] == 0
    payload = event["payload"]
    assert isinstance(payload, dict)
    assert PAYLOADS_V1["semantic_tool.result"](payload) is None
    facts = payload["semantic_tool"]
    assert isinstance(facts, dict)
    assert facts["content"] == {
        "digest": sha256_label(canonical_bytes({"secret": "hunter2"})),
        "redactionDisposition": "digest_only",
        "references": [],
    }
    assert b"hunter2" not in msgspec.json.encode(payload)


@pytest.mark.parametrize(
    ("value", "is_error", "expected"),
    [
        (None, False, ("succeeded", "succeeded", False, "active_task")),
        ("x", True, ("failed", "failed", False, "active_task")),
        (
            {"code": "stale_base", "retryable": True, "authorizationBoundary": "revision"},
            True,
            ("failed", "stale_base", True, "revision"),
        ),
        (
            {"code": "Not A Code", "retryable": "yes", "authorizationBoundary": ["x"]},
            False,
            ("succeeded", "succeeded", False, "active_task"),
        ),
    ],
)
def test_the_event_repeats_what_the_result_says_of_itself(
    value: JsonValue, is_error: bool, expected: tuple[str, str, bool, str]
) -> None:
    world = calling()

    world.answer(result=value, isError=is_error)

    [payload] = world.payloads("semantic_tool.result")
    facts = payload["semantic_tool"]
    named = ("outcome", "code", "retryable", "authorizationBoundary")
    assert tuple(facts[name] for name in named) == expected
    assert facts["operationReceiptId"] == f"cmd_{world.commands}"


def test_the_complete_input_binds_a_result_as_well_as_its_digest() -> None:
    world = calling()
    payload = world.result_payload()
    del payload["inputDigest"]

    result = world.deliver("semantic_tool.result", {**payload, "input": INPUT})

    assert said(result)[1]["status"] == "delivered"


def pending() -> Talk:
    return calling()


def completed() -> Talk:
    world = calling()
    world.answer()
    return world


def settled() -> Talk:
    world = completed()
    world.take_told()
    return world


def stored() -> Talk:
    world = after_restart(calling())
    world.answer()
    return world


STATES: dict[str, Callable[[], Talk]] = {
    "completed": completed,
    "settled": settled,
    "stored": stored,
}


@pytest.mark.parametrize("state", STATES)
def test_the_same_result_again_is_a_duplicate(state: str) -> None:
    world = STATES[state]()
    before, waiting = world.durable.tool_calls, len(world.unwritten())

    result = world.answer()

    assert said(result) == ("completed", {"callId": "call_1", "status": "duplicate"})
    assert world.durable.tool_calls == before
    assert len(world.unwritten()) == waiting
    [payload] = world.payloads("runner.diagnostic")
    assert payload["code"] == "semantic_tool_result_duplicate"
    assert len(world.payloads("semantic_tool.result")) == 1


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("changes", [{"result": {"taskId": "t_2"}}, {"isError": True}])
def test_another_result_is_a_conflict_that_names_both_digests_and_no_body(
    state: str, changes: dict[str, JsonValue]
) -> None:
    world = STATES[state]()
    before = world.durable.tool_calls

    status, members = said(world.answer(**changes))

    assert status == "failed"
    assert members == {
        "code": "tool_result_conflict",
        "callId": "call_1",
        "operationId": "create_task",
        "storedResultDigest": sha256_label(canonical_bytes(RESULT)),
        "resultDigest": sha256_label(canonical_bytes(changes.get("result", RESULT))),
    }
    assert world.durable.tool_calls == before


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"callId": "other"}, "tool_call_unknown"),
        ({"callId": 5}, "tool_result_invalid"),
        ({"isError": "no"}, "tool_result_invalid"),
        ({"operationId": "paperclip_finish"}, "tool_call_conflict"),
        ({"sourceEventId": "event_2"}, "tool_call_conflict"),
        ({"sourceEventType": "mcp_app.tool_input"}, "tool_call_conflict"),
        ({"correlation": {**CORRELATION, "runId": "other"}}, "tool_call_conflict"),
        ({"correlation": None}, "tool_call_conflict"),
        ({"inputDigest": "sha256:" + "0" * 64}, "tool_call_conflict"),
        ({"inputDigest": None}, "tool_call_conflict"),
    ],
)
def test_a_result_of_something_else_is_rejected(changes: dict[str, JsonValue], code: str) -> None:
    world = pending()

    status, members = said(world.answer(**changes))

    assert (status, members["code"]) == ("rejected", code)
    assert world.durable.tool_calls[0].state == "pending"
    assert world.take_told() == []
    assert world.payloads("semantic_tool.result") == []


@pytest.mark.parametrize("missing", ["result", "isError", "inputDigest", "operationId"])
def test_a_result_that_lacks_a_member_is_rejected(missing: str) -> None:
    world = pending()
    payload = world.result_payload()
    del payload[missing]

    status, _ = said(world.deliver("semantic_tool.result", payload))

    assert status == "rejected"
    assert world.durable.tool_calls[0].state == "pending"


def test_a_result_with_another_input_is_rejected() -> None:
    world = pending()
    payload = world.result_payload()
    del payload["inputDigest"]

    result = world.deliver("semantic_tool.result", {**payload, "input": {"other": 1}})

    assert said(result)[1]["code"] == "tool_call_conflict"


def test_a_result_is_taken_while_the_runner_is_about_to_end_and_survives() -> None:
    world = pending()
    world.feed(StopRequested(15))

    assert said(world.answer())[1]["status"] == "stored"

    world.feed(exited(world.generation, None, 15))
    again = after_restart(world)
    assert again.durable.tool_calls[0].state == "completed"


def test_a_result_for_a_driver_that_delivers_no_second_time_is_only_remembered() -> None:
    world = after_restart(pending())
    world.deliver("run.prepare", PREPARE)

    assert said(world.answer())[1]["status"] == "stored"

    [call] = world.durable.tool_calls
    assert (call.state, call.result) == ("settled", msgspec.UNSET)
    assert said(world.answer())[1]["status"] == "duplicate"


def test_a_result_after_the_program_concluded_is_stored() -> None:
    world = pending()
    world.conclude()
    world.take_told()

    assert said(world.answer())[1]["status"] == "stored"
    assert world.take_told() == []


def test_the_redelivered_command_gets_the_stored_answer_and_tells_nobody_again() -> None:
    world = pending()
    world.answer()
    world.take_told()
    [seq] = [
        record.controller_seq
        for record in world.durable.commands
        if record.command_type == "semantic_tool.result"
    ]
    again = after_restart(world)
    again.commands = seq - 1
    payload = world.result_payload()

    result = again.deliver("semantic_tool.result", payload)

    assert said(result) == ("completed", {"callId": "call_1", "status": "delivered"})
    assert again.take_told() == []


def test_a_result_that_departs_from_its_schema_changes_nothing_and_an_error_has_none() -> None:
    world = talking()
    world.call("call_1", operation_id="paperclip_finish", input={})
    before = world.durable.tool_calls

    refused = world.answer(
        operationId="paperclip_finish", inputDigest=sha256_label(b"{}"), result=["hunter2"]
    )

    status, members = said(refused)
    assert (status, members["code"]) == ("rejected", "tool_result_invalid")
    assert str(members["message"]).endswith("departs from its schema: /: type")
    assert world.durable.tool_calls == before
    taken = world.answer(
        operationId="paperclip_finish", inputDigest=sha256_label(b"{}"), result=[], isError=True
    )
    assert said(taken)[0] == "completed"
