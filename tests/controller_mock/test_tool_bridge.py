"""Handlers of tools: called once, answered with one command, and never called again."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_mock.tool_bridge import OutcomeUnknown, ToolAnswer, ToolCall
from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.commands import WireCommand
from protocol.digest import sha256_label
from protocol.envelope import Deliver
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId
from protocol.semantic_tools import result_command_id
from tests.controller_mock.runner_client import RunnerClient, event_body, result_of
from tests.controller_mock.served import WAIT_S, eventually, run_config, served
from tests.controller_mock.stores import FailingStore
from tests.controller_mock.tools import INPUT, call_payload


class Tool:
    """A handler that counts its calls and answers when it is let."""

    def __init__(self, answer: ToolAnswer | BaseException | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._answer = answer or ToolAnswer({"taskId": "t_1"})

    async def __call__(self, call: ToolCall) -> ToolAnswer:
        self.calls.append(call)
        await self.may_answer.wait()
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


async def send_call(
    client: RunnerClient, seq: int, call_id: str = "call_1", value: JsonValue = INPUT
) -> None:
    body = event_body(
        client.config,
        seq,
        event_type="semantic_tool.input",
        priority=0,
        payload=call_payload(client.config.identity, call_id, value),
    )
    await client.send_events([body])


async def delivered(client: RunnerClient) -> WireCommand:
    """Return the next command, passing over everything else."""
    async with asyncio.timeout(WAIT_S):
        while True:
            message = await client.receive()
            if isinstance(message, Deliver):
                return message.command


def payload_of(command: WireCommand) -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.json.decode(command.payload)
    return payload


async def test_a_call_is_answered_with_the_one_command_of_its_id(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        tool = Tool()
        world.controller.answer_tools(tool)
        client = await world.bootstrap()

        await send_call(client, 1)
        command = await delivered(client)

        assert tool.calls == [
            ToolCall(
                run_id=world.run_id,
                call_id="call_1",
                operation_id="create_task",
                idempotency_key=None,
                input=INPUT,
                input_digest=sha256_label(canonical_bytes(INPUT)),
            )
        ]
        assert command.command_id == result_command_id(world.run_id, "call_1")
        assert command.type == "semantic_tool.result"
        identity = world.config.identity
        [event] = world.store.events(world.run_id, 0, 9)
        assert payload_of(command) == {
            "callId": "call_1",
            "operationId": "create_task",
            "inputDigest": sha256_label(canonical_bytes(INPUT)),
            "sourceEventId": event.source_event_id,
            "sourceEventType": "semantic_tool.input",
            "correlation": {
                "runId": identity.run_id,
                "normalizedSessionId": identity.normalized_session_id,
                "turnId": identity.turn_id,
                "itemId": identity.item_id,
            },
            "result": {"taskId": "t_1"},
            "isError": False,
        }
        await client.send_result(result_of(command))
        assert await world.controller.unsettled_calls(world.run_id) == []


async def test_the_call_is_acknowledged_before_it_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        tool = Tool()
        tool.may_answer.clear()
        world.controller.answer_tools(tool)
        client = await world.bootstrap()

        await send_call(client, 1)
        await client.acked_through(1)
        await eventually(lambda: len(tool.calls) == 1)
        assert await world.controller.unsettled_calls(world.run_id) == ["call_1"]

        tool.may_answer.set()
        await delivered(client)
        assert await world.controller.unsettled_calls(world.run_id) == []


@pytest.mark.parametrize(
    "answer",
    [ValueError("with a secret: hunter2"), ToolAnswer({1: 2, "x": object()}), ToolAnswer("\ud800")],  # type: ignore[dict-item]  # no JSON
)
async def test_a_handler_that_fails_gives_an_error_without_its_words(
    tmp_path: Path, answer: ToolAnswer | BaseException
) -> None:
    async with served(tmp_path) as world:
        world.controller.answer_tools(Tool(answer))
        client = await world.bootstrap()

        await send_call(client, 1)
        payload = payload_of(await delivered(client))

        assert payload["result"] == {"code": "semantic_tool_bridge_failed"}
        assert payload["isError"] is True


async def test_a_redelivered_call_is_not_made_again(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        tool = Tool()
        world.controller.answer_tools(tool)
        first = await world.bootstrap()
        await send_call(first, 1)
        await delivered(first)
        world.controller.drop_connections(world.run_id)
        await first.closed()
        assert first.credential is not None

        second = await world.connect(world.config, first.credential)
        await send_call(second, 1)
        await send_call(second, 2)
        await second.acked_through(2)

        assert len(tool.calls) == 1
        assert len(world.store.commands(world.run_id)) == 1


async def test_after_a_restart_a_lost_call_stays_unsettled_until_an_authority_settles_it(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        tool = Tool()
        tool.may_answer.clear()
        world.controller.answer_tools(tool)
        client = await world.bootstrap()
        await send_call(client, 1)
        await eventually(lambda: len(tool.calls) == 1)

    again = Tool()
    async with served(tmp_path) as world:
        world.controller.answer_tools(again)
        client = await world.bootstrap()
        await send_call(client, 1)
        await client.acked_through(1)
        await client.ping()

        assert again.calls == []
        assert await world.controller.unsettled_calls(world.run_id) == ["call_1"]
        assert world.store.commands(world.run_id) == []

        queued = await world.controller.settle_call(world.run_id, "call_1", {"taskId": "t_9"})
        command = await delivered(client)
        assert command.command_id == queued.command_id
        assert payload_of(command)["result"] == {"taskId": "t_9"}
        assert await world.controller.unsettled_calls(world.run_id) == []

        same = await world.controller.settle_call(world.run_id, "call_1", {"taskId": "t_9"})
        assert same == queued
        with pytest.raises(PrpError) as refusal:
            await world.controller.settle_call(world.run_id, "call_1", {"taskId": "t_8"})
        assert refusal.value.code is ErrorCode.COMMAND_CONFLICT
        assert again.calls == []


async def test_a_handler_that_cannot_tell_leaves_its_call_unsettled(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        tool = Tool(OutcomeUnknown())
        world.controller.answer_tools(tool)
        client = await world.bootstrap()

        await send_call(client, 1)
        await eventually(lambda: len(tool.calls) == 1)
        await client.acked_through(1)

        assert await world.controller.unsettled_calls(world.run_id) == ["call_1"]
        assert world.store.commands(world.run_id) == []


async def test_without_a_handler_a_call_is_committed_and_unsettled(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        client = await world.bootstrap()

        await send_call(client, 1)
        await client.acked_through(1)
        late = Tool()
        world.controller.answer_tools(late)
        await send_call(client, 2, "call_2")
        await delivered(client)

        assert [call.call_id for call in late.calls] == ["call_2"]
        assert await world.controller.unsettled_calls(world.run_id) == ["call_1"]


async def test_a_result_that_no_command_can_carry_leaves_its_call_unsettled(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as world:
        tool = Tool(ToolAnswer("x" * 600_000))
        world.controller.answer_tools(tool)
        client = await world.bootstrap()

        await send_call(client, 1)
        await eventually(lambda: len(tool.calls) == 1)
        await send_call(client, 2, "call_2")
        await client.acked_through(2)
        await client.ping()

        assert world.store.commands(world.run_id) == []
        assert await world.controller.unsettled_calls(world.run_id) == ["call_1", "call_2"]
        with pytest.raises(PrpError) as refusal:
            await world.controller.settle_call(world.run_id, "call_1", "x" * 600_000)
        assert refusal.value.code is ErrorCode.COMMAND_TOO_LARGE


async def test_a_large_input_and_a_large_result_fit(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        world.controller.answer_tools(Tool(ToolAnswer("y" * 400_000)))
        client = await world.bootstrap()

        await send_call(client, 1, value="x" * (480 * 1024 - 2))
        command = await delivered(client)

        assert payload_of(command)["result"] == "y" * 400_000


async def test_each_run_may_have_its_own_handler(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        other = run_config("run-2")
        await world.controller.create_run(other)
        common, own = Tool(), Tool()
        world.controller.answer_tools(common)
        world.controller.answer_tools(own, RunId("run-2"))

        for config in (world.config, other):
            client = await world.bootstrap(config)
            await send_call(client, 1)
            await delivered(client)

        assert [call.run_id for call in common.calls] == ["run-1"]
        assert [call.run_id for call in own.calls] == ["run-2"]


async def test_calls_are_answered_beside_each_other(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        tool = Tool()
        tool.may_answer.clear()
        world.controller.answer_tools(tool)
        client = await world.bootstrap()

        for number in range(1, 6):
            await send_call(client, number, f"call_{number}")
        await eventually(lambda: len(tool.calls) == 5)
        tool.may_answer.set()

        answered: dict[str, str] = {}
        while len(answered) < 5:
            # The pending command is delivered once more whenever another is queued behind it.
            command = await delivered(client)
            if command.command_id not in answered:
                answered[command.command_id] = payload_of(command)["callId"]
                await client.send_result(result_of(command))
        assert sorted(answered.values()) == [f"call_{number}" for number in range(1, 6)]


@pytest.mark.parametrize("after_commit", [False, True])
async def test_a_result_survives_a_store_that_fails_for_a_while(
    tmp_path: Path, after_commit: bool
) -> None:
    failing = FailingStore()
    async with served(tmp_path, failing.over) as world:
        tool = Tool()
        tool.may_answer.clear()
        world.controller.answer_tools(tool)
        client = await world.bootstrap()
        await send_call(client, 1)
        await eventually(lambda: len(tool.calls) == 1)

        failing.commits_to_fail, failing.fails_after_commit = 2, after_commit
        tool.may_answer.set()

        await eventually(lambda: len(world.store.commands(world.run_id)) == 1)
        await eventually(lambda: world.controller.view(world.run_id).last_controller_seq == 1)
        assert len(tool.calls) == 1
        assert await world.controller.unsettled_calls(world.run_id) == []


async def test_unknown_calls_and_runs_are_named(tmp_path: Path) -> None:
    async with served(tmp_path) as world:
        for run_id, code in (
            (world.run_id, ErrorCode.TOOL_CALL_UNKNOWN),
            (RunId("none"), ErrorCode.RUN_UNKNOWN),
        ):
            with pytest.raises(PrpError) as refusal:
                await world.controller.settle_call(run_id, "call_1", None)
            assert refusal.value.code is code
