"""Tools end to end: a real runner with the scripted harness, a real controller with a handler."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller_mock.controller import Controller
from controller_mock.core.state import RunConfig
from controller_mock.io.system import SystemClock, SystemEntropy
from controller_mock.storage.sqlite import open_store
from controller_mock.storage.store import Store
from protocol.ids import RunId
from tests.controller_mock.served import WAIT_S, eventually, run_config
from tests.controller_mock.test_tool_bridge import Tool
from tests.process.daemon import Daemon
from tests.process.talk import SCRIPTS
from tests.process.test_dialogue import CALL, DONE, python
from tests.runnerd.core.talk import TOOLS

pytestmark = pytest.mark.process

TOLD = (
    'result = hear("semantic_tool.result")\n'
    'say("diagnostic", code="told", message=json.dumps(result["result"]))\n'
)


class Site:
    """A controller on one store and one port, and the runner that it is asked to start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: RunConfig = run_config()
        self.run_id = RunId(self.config.identity.run_id)
        self.controller: Controller
        self.store: Store
        self.port = 0
        self.runners: list[Daemon] = []

    async def open(self, tool: Tool | None) -> None:
        """Start a controller; the second one finds what the first has left."""
        self.store = open_store(self.folder / "data")
        controller = self.controller = Controller(self.store, SystemClock(), SystemEntropy())
        await controller.start()
        if tool is not None:
            controller.answer_tools(tool)
        bound = await controller.serve(port=self.port)
        self.port, self.url = bound.port, bound.url
        if self.run_id not in controller.run_ids():
            await controller.create_run(self.config)

    async def close(self) -> None:
        await self.controller.close()
        self.store.close()

    async def start_runner(self) -> Daemon:
        token = await self.controller.issue_ticket(self.run_id, 60_000)
        identity = self.config.identity
        run = Daemon(
            [
                *("--connect-url", self.url),
                *("--state-dir", str(self.folder / "state")),
                *("--runner-id", identity.runner_instance_id),
                *("--environment-lease-id", identity.environment_lease_id),
                *("--run-id", identity.run_id),
                *("--session-id", identity.normalized_session_id),
                *("--turn-id", identity.turn_id),
                *("--item-id", identity.item_id),
                *("--runner-version", self.config.runner_version),
                *("--runner-digest", self.config.runner_digest),
            ],
            ticket=str(token.reveal(), "utf-8"),
        )
        self.runners.append(run)
        await self.controller.wait_for(self.run_id, lambda view: view.connected, WAIT_S)
        return run

    async def start_turn(self, *argv: str, script: str | None = None) -> None:
        provider: dict[str, Any] = {"kind": "jsonl", "argv": list(argv), "cwd": "/"}
        if script is not None:
            provider["argv"] = [sys.executable, "-m", "runnerd.harness.fake"]
            provider["script"] = str(SCRIPTS / f"{script}.json")
        prepared = {"provider": provider, "authorizedTools": TOOLS}
        for command, payload in (
            ("run.prepare", prepared),
            ("session.open", {}),
            ("turn.start", {}),
        ):
            row = await self.controller.perform(self.run_id, command, payload, WAIT_S)
            assert row.status == "completed", row

    async def ended(self) -> str | None:
        """Return the run's terminal state once it has one."""
        view = await self.controller.wait_for(
            self.run_id, lambda view: view.run_terminal_state is not None, WAIT_S
        )
        return view.run_terminal_state

    def payloads(self, event_type: str) -> list[Any]:
        events = self.store.events(self.run_id, 0, 10_000)
        return [
            msgspec.json.decode(event.body)["payload"]
            for event in events
            if event.event_type == event_type
        ]

    def has_asked(self, request_id: str) -> bool:
        return any(p["requestId"] == request_id for p in self.payloads("runtime_request.created"))

    def told(self) -> list[str]:
        return [p["message"] for p in self.payloads("harness.diagnostic") if p["code"] == "told"]


@contextlib.asynccontextmanager
async def site(folder: Path, tool: Tool | None) -> AsyncGenerator[Site]:
    made = Site(folder)
    await made.open(tool)
    try:
        yield made
    finally:
        for run in made.runners:
            await asyncio.to_thread(run.kill)
        await made.close()


async def test_a_call_is_answered_by_its_handler_and_the_run_succeeds(tmp_path: Path) -> None:
    tool = Tool()
    async with site(tmp_path, tool) as s:
        await s.start_runner()
        await s.start_turn(script="tool-call")

        assert await s.ended() == "succeeded"
        [call] = tool.calls
        assert (call.operation_id, call.idempotency_key) == ("create_task", "key_1")
        assert call.input == {"title": "Grüße\r\n\U0001f600", "n": [1, 2.5, None]}
        [row] = [r for r in s.store.commands(s.run_id) if r.type == "semantic_tool.result"]
        assert row.status == "completed"
        assert isinstance(row.result, msgspec.Raw)
        assert msgspec.json.decode(row.result)["result"]["status"] == "delivered"
        assert await s.controller.unsettled_calls(s.run_id) == []


async def test_a_handler_that_fails_tells_the_program_so(tmp_path: Path) -> None:
    async with site(tmp_path, Tool(ValueError("hunter2"))) as s:
        await s.start_runner()
        await s.start_turn(*python(CALL + TOLD + DONE))

        await eventually(lambda: bool(s.payloads("turn.interrupted")))
        # Whether it did anything before it failed is unknown, so nobody claims success.
        [interrupted] = s.payloads("turn.interrupted")
        assert interrupted["reason"] == "verification_missing"
        assert s.told() == ['{"code": "semantic_tool_bridge_failed"}']


async def test_a_result_that_comes_while_the_runner_is_dead_waits_for_the_next_program(
    tmp_path: Path,
) -> None:
    tool = Tool()
    tool.may_answer.clear()
    async with site(tmp_path, tool) as s:
        run = await s.start_runner()
        await s.start_turn(*python(CALL + TOLD + DONE))
        await eventually(lambda: len(tool.calls) == 1)
        run.signal(signal.SIGKILL)
        await asyncio.to_thread(run.process.wait)
        await s.controller.wait_for(s.run_id, lambda view: not view.connected, WAIT_S)

        tool.may_answer.set()
        await s.start_runner()
        await eventually(lambda: any(p for p in s.payloads("semantic_tool.result")))
        row = await s.controller.perform(s.run_id, "turn.start", {}, WAIT_S)

        assert row.status == "completed"
        assert await s.ended() == "succeeded"
        assert len(tool.calls) == 1
        assert len(s.payloads("semantic_tool.input")) == 1
        assert s.told() == ['{"taskId": "t_1"}']


async def test_a_call_lost_with_its_controller_is_settled_by_the_authority_alone(
    tmp_path: Path,
) -> None:
    first, second = Tool(), Tool()
    first.may_answer.clear()
    async with site(tmp_path, first) as s:
        await s.start_runner()
        await s.start_turn(*python(CALL + TOLD + DONE))
        await eventually(lambda: len(first.calls) == 1)

        await s.close()
        await s.open(second)
        await s.controller.wait_for(s.run_id, lambda view: view.connected, WAIT_S)
        assert await s.controller.unsettled_calls(s.run_id) == ["call_1"]

        await s.controller.settle_call(s.run_id, "call_1", {"taskId": "t_7"})

        assert await s.ended() == "succeeded"
        assert second.calls == []
        assert s.told() == ['{"taskId": "t_7"}']


async def test_an_approval_goes_through_a_real_controller(tmp_path: Path) -> None:
    async with site(tmp_path, None) as s:
        await s.start_runner()
        await s.start_turn(script="permission-input")
        for request_id in ("ask_1", "ask_2"):
            await eventually(partial(s.has_asked, request_id))
            row = await s.controller.perform(
                s.run_id,
                "request.resolve",
                {"requestId": request_id, "resolution": {"allow": True}},
                WAIT_S,
            )
            assert row.status == "completed"

        assert await s.ended() == "succeeded"
