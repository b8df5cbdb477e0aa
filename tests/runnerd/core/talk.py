"""A runner core in a turn whose program speaks messages, under a test's control."""

from collections.abc import Iterable
from typing import Any

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.commands import CommandResult
from protocol.digest import sha256_label
from protocol.envelope import Deliver
from protocol.ids import Generation
from protocol.semantic_tools import authorized_tools
from runnerd.core import state_codec
from runnerd.core.actions import Action, SendResult, StopHarness, TellHarness
from runnerd.core.harness_messages import Called, Concluded, HarnessMessage, Proposed, Ready
from runnerd.core.inputs import (
    HarnessExited,
    HarnessMessages,
    HarnessSpawned,
    HarnessTold,
    OrphanSettled,
    WriteFailed,
)
from runnerd.core.state import Durable, Settings
from tests.runnerd.core.world import BIRTH, IDENTITY, SETTINGS, World, exited, members

SCHEMAS: dict[str, dict[str, JsonValue]] = {
    "create_task": {},
    "paperclip_finish": {"type": "object"},
}
TOOLS = authorized_tools(
    [
        {
            "operationId": name,
            "version": 1,
            "description": f"what {name} does",
            "inputSchema": schema,
            "responseSchema": schema,
        }
        for name, schema in SCHEMAS.items()
    ]
)
SPEAKING: dict[str, JsonValue] = {
    "provider": {"kind": "jsonl", "argv": ["agent"], "cwd": "/tmp", "harnessRestartsMax": 1},
    "authorizedTools": TOOLS,
}
RESULT: dict[str, JsonValue] = {
    "schema": "paperclip.run_result.v1",
    "reportedWorkDisposition": "done",
    "summary": "It is done.",
    "completionClaim": {
        "contractRevision": "1",
        "objectiveSatisfied": True,
        "criteria": [],
        "remainingWork": [],
    },
    "evidence": [],
    "verification": [],
    "attentionRequests": [],
    "artifacts": [],
}
SUCCESS: dict[str, JsonValue] = {
    "turnTerminalState": "completed",
    "runTerminalState": "succeeded",
    "reportedWorkDisposition": "done",
}
FAILURE: dict[str, JsonValue] = {
    "turnTerminalState": "failed",
    "runTerminalState": "failed",
    "reportedWorkDisposition": "blocked",
}
INPUT: dict[str, JsonValue] = {"title": "Grüße\r\n\U0001f600", "n": [1, 2.5, None, True]}
"""An input that a careless copy would alter."""


class Talk(World):
    """A `World` with short forms for what a program says and is told."""

    def begin(self, payload: dict[str, JsonValue] = SPEAKING, **turn: JsonValue) -> "Talk":
        """Connect, prepare, and start a turn whose program is released and has said nothing."""
        self.connect()
        assert self.deliver("run.prepare", payload).status == "completed"
        assert self.deliver("session.open").status == "completed"
        return self.spawn(**turn)

    def spawn(self, **turn: JsonValue) -> "Talk":
        """Start a turn and let its program come to be."""
        self.control(Deliver(self.command("turn.start", turn or None)))
        self.feed(HarnessSpawned(self.generation, BIRTH))
        return self

    def ready(self) -> "Talk":
        """Begin, and let the program say that it is ready and read what it is told."""
        self.begin()
        self.say(Ready())
        self.take_told()
        return self

    @property
    def generation(self) -> Generation:
        return self.durable.generation

    def say(self, *messages: HarnessMessage) -> list[Action]:
        return self.feed(HarnessMessages(self.generation, messages))

    def take_told(self) -> list[dict[str, Any]]:
        """Let the program's pipe take every line that was ordered, and return what they say."""
        orders = self.unwritten()
        if orders:
            self.feed(HarnessTold(self.generation, orders[-1].number))
        return [decoded(order) for order in orders]

    def unwritten(self) -> list[TellHarness]:
        dialogue = self.runner.live.dialogue
        waiting = () if dialogue is None else dialogue.commands
        numbers = {command.number for command in waiting}
        orders = {
            action.number: action
            for action in self.left
            if isinstance(action, TellHarness) and action.generation == self.generation
        }
        return [orders[number] for number in sorted(orders) if number in numbers]

    def call(self, call_id: str = "call_1", /, **changes: object) -> None:
        self.say(called(call_id, **changes))

    def answer(self, call_id: str = "call_1", /, **changes: Any) -> CommandResult:
        """Deliver the result of a call."""
        return self.deliver("semantic_tool.result", self.result_payload(call_id, **changes))

    def result_payload(self, call_id: str = "call_1", /, **changes: Any) -> dict[str, JsonValue]:
        made = [call.source_event_id for call in self.durable.tool_calls if call.call_id == call_id]
        payload: dict[str, JsonValue] = {
            "callId": call_id,
            "operationId": "create_task",
            "inputDigest": sha256_label(canonical_bytes(INPUT)),
            "sourceEventId": made[0] if made else "event_x",
            "sourceEventType": "semantic_tool.input",
            "correlation": CORRELATION,
            "result": {"taskId": "t_1"},
            "isError": False,
        }
        return payload | changes

    def resolve(self, request_id: str = "ask_1", /, **changes: Any) -> CommandResult:
        payload: dict[str, JsonValue] = {"requestId": request_id, "resolution": {"allow": True}}
        return self.deliver("request.resolve", payload | changes)

    def write_fails(self) -> None:
        """Let the next write fail, which drops what was held."""
        assert self.driver.next_write() is not None
        self.driver.write_failed()
        self.feed(WriteFailed(errno=5))

    def payloads(self, event_type: str) -> list[Any]:
        """Return the payloads of all events of a type, each once however often it was sent."""
        found = [event for event in self.events() if event["eventType"] == event_type]
        return list({event["sourceSeq"]: event["payload"] for event in found}.values())

    def codes(self) -> list[str]:
        """Return the codes of all diagnostics of the program."""
        return [payload["code"] for payload in self.payloads("harness.diagnostic")]

    def stops(self) -> list[str]:
        return [action.intent for action in self.left if isinstance(action, StopHarness)]

    def conclude(self, proposal: dict[str, JsonValue] | None = None) -> None:
        self.say(Proposed(RESULT), Concluded(SUCCESS if proposal is None else proposal))

    def lost(self, signal: int = 9) -> None:
        """Let the program be killed by somebody else."""
        self.feed(exited(self.generation, None, signal))

    def ends(self, code: int = 0, **changes: object) -> Any:
        """Let the program exit, and return the payload of `run.terminal`."""
        end = msgspec.structs.replace(exited(self.generation, code), **changes)
        assert isinstance(end, HarnessExited)
        self.feed(end)
        [payload] = self.payloads("run.terminal")
        return payload


CORRELATION: dict[str, JsonValue] = {
    "runId": IDENTITY.run_id,
    "normalizedSessionId": IDENTITY.normalized_session_id,
    "turnId": IDENTITY.turn_id,
    "itemId": IDENTITY.item_id,
}


def talking(settings: Settings | None = None) -> Talk:
    """Return a runner whose program is ready and has read its greeting."""
    return (Talk() if settings is None else Talk(settings=settings)).ready()


def called(call_id: str = "call_1", /, **changes: object) -> Called:
    call = Called(call_id=call_id, operation_id="create_task", input=INPUT)
    return msgspec.structs.replace(call, **changes)


def decoded(order: TellHarness) -> dict[str, Any]:
    assert order.line.endswith(b"\n")
    assert order.line.count(b"\n") == 1
    line: dict[str, Any] = msgspec.json.decode(order.line)
    assert line["schema"] == "paperclip.fake_harness.command.v1"
    assert line["commandId"] == f"harness_{order.generation}_{order.number}"
    return {"type": line["type"], **line["payload"]}


def after_restart(world: Talk) -> Talk:
    """Return a new runner process, connected, on what was durable; its program was ended."""
    assert world.stored is not None
    return loaded(state_codec.load(world.stored, world.settings), world.settings)


def loaded(durable: Durable, settings: Settings = SETTINGS) -> Talk:
    """Return a process, connected, that found a state."""
    turn = durable.turn
    orphan = None if turn is None else OrphanSettled(turn.generation, "ended")
    again = Talk(durable, settings, orphan)
    again.commands = durable.last_controller_command_seq
    again.connect()
    return again


def next_turn(world: Talk) -> Talk:
    """Start another turn with a program that is ready."""
    if not world.durable.session_open:
        world.deliver("session.open")
    world.spawn()
    world.say(Ready())
    world.take_told()
    return world


def said(result: CommandResult) -> tuple[str, Any]:
    """Return status and members of a result, without what every result has."""
    body = members(result)
    count = body.pop("logicalEffectCount")
    assert count == (1 if result.status == "completed" else 0)
    return result.status, body


def results(actions: Iterable[Action]) -> list[CommandResult]:
    return [action.result for action in actions if isinstance(action, SendResult)]
