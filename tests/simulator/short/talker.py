"""A scripted harness that speaks messages, and remembers what it was told.

It decides what its questions and calls say, so that the same id says the same in every
generation. It judges what it is told by the disk alone, and refuses to know turns and events.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.semantic_tools import authorized_tools
from runnerd.core.actions import TellHarness
from runnerd.core.harness_messages import (
    Asked,
    Called,
    Concluded,
    HarnessMessage,
    Misspoken,
    Proposed,
    Ready,
    Reported,
)
from runnerd.core.inputs import HarnessMessages, HarnessTold
from tests.simulator.draws import Stream
from tests.simulator.image import Image
from tests.simulator.short.program import Program
from tests.simulator.verdict import Violation

IDS: Final = 3
OPERATION: Final = "create_task"
EXPIRY_MS: Final = 3_000
RESULT: Final[dict[str, JsonValue]] = {
    "schema": "paperclip.run_result.v1",
    "reportedWorkDisposition": "done",
    "summary": "done",
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
TOOLS: Final = authorized_tools(
    [
        {
            "operationId": OPERATION,
            "version": 1,
            "description": "",
            "inputSchema": {},
            "responseSchema": {},
        }
    ]
)
PREPARE: Final = msgspec.json.encode(
    {
        "provider": {"kind": "jsonl", "argv": ["agent"], "cwd": "/tmp", "harnessRestartsMax": 1},
        "authorizedTools": TOOLS,
    }
)
TERMINAL: Final[dict[str, JsonValue]] = {
    "turnTerminalState": "completed",
    "runTerminalState": "succeeded",
    "reportedWorkDisposition": "done",
}


def digest(value: object) -> str:
    """Return the digest of a value of plain texts and small numbers."""
    spelled = msgspec.json.encode(value, order="sorted")
    return "sha256:" + hashlib.sha256(spelled).hexdigest()


def input_of(call_id: str) -> dict[str, JsonValue]:
    """Return what a call of this id passes, always."""
    return {"title": f"of {call_id}\r\n", "n": len(call_id)}


def question_of(request_id: str) -> dict[str, JsonValue]:
    """Return what a request of this id asks, always."""
    return {"requestId": request_id, "text": f"about {request_id}"}


def called(call_id: str) -> Called:
    """Return the call of this id."""
    return Called(call_id=call_id, operation_id=OPERATION, input=input_of(call_id))


def asked(request_id: str) -> Asked:
    """Return the request of this id; the first one expires."""
    return Asked(
        request_id=request_id,
        kind="permission",
        question=question_of(request_id),
        expires_in_ms=EXPIRY_MS if request_id == "ask_0" else None,
    )


GREETING: Final = (Ready(), called("call_0"), asked("ask_1"))
"""What a program begins with; a driver gives at least the first of it."""


@dataclass
class Talker(Program):
    """A program that speaks messages."""

    is_ready: bool = False
    concluded: bool = False
    told_through: int = 0
    taken_through: int = 0
    answers: tuple[str, ...] = ()
    """What it was told of, each once."""

    # --- saying -----------------------------------------------------------------------------

    def speak(self, stream: Stream) -> HarnessMessages:
        """Answer the present read."""
        assert self.reading is not None
        if not self.is_ready:
            return self.say(*GREETING[: stream.between("greeting", 1, len(GREETING))])
        count = stream.between("messages", 1, min(3, self.reading.lines_max))
        return self.say(*(self._say(stream) for _ in range(count)))

    def say(self, *messages: HarnessMessage) -> HarnessMessages:
        """Answer the present read with these."""
        self.reading = None
        self.is_ready = True
        self.lines += len(messages)
        return HarnessMessages(self.generation, messages)

    def _say(self, stream: Stream) -> HarnessMessage:
        number = stream.choose("id", IDS)
        call_id, request_id = f"call_{number}", f"ask_{number}"
        match stream.choose("message", 14):
            case 0 | 1:
                return Reported(event_type="usage.reported", payload={"n": number})
            case 2 | 3 | 4 | 5:
                return called(call_id)
            case 6 | 7 | 8 | 9:
                return asked(request_id)
            case 10:
                return Called(call_id=call_id, operation_id=OPERATION, input={"other": number})
            case 11:
                return Misspoken(type="request", reason="nothing", call_id="call_x")
            case 12:
                return Proposed(RESULT)
            case _:
                self.concluded = True
                return Concluded(TERMINAL)

    # --- being told -------------------------------------------------------------------------

    def tell(self, order: TellHarness, surviving: Sequence[Image | None], seen: set[str]) -> None:
        """Read a line; one that comes again is ignored."""
        if order.generation != self.generation or order.number <= self.told_through:
            return
        if order.number != self.told_through + 1:
            raise Violation("I3", f"line {order.number} was told after {self.told_through}")
        self.told_through = order.number
        command = msgspec.json.decode(order.line)
        payload = command["payload"]
        if command["type"] == "semantic_tool.result" and not _is_refusal(payload):
            self._once("result of " + payload["callId"])
            _is_stored_result(payload, surviving)
            seen.add("program was answered")
        if command["type"] == "request.resolve" and payload["outcome"] == "resolved":
            self._once("answer to " + payload["requestId"])
            _is_stored_answer(payload, surviving)
            seen.add("program was answered")

    def _once(self, what: str) -> None:
        if what in self.answers:
            raise Violation("I5", f"the {what} was told twice")
        self.answers = (*self.answers, what)

    @property
    def has_untaken(self) -> bool:
        """True if its pipe may say that it took something."""
        return self.is_alive and self.taken_through < self.told_through

    def take(self, stream: Stream) -> HarnessTold:
        """Let the pipe take some lines."""
        left = self.told_through - self.taken_through
        self.taken_through = self.told_through - stream.choose("lines not taken", left)
        return HarnessTold(self.generation, self.taken_through)


def _is_refusal(payload: dict[str, Any]) -> bool:
    result: JsonValue = payload["result"]
    return isinstance(result, dict) and result.get("code") == "semantic_tool_not_dispatched"


def _is_stored_result(payload: dict[str, Any], surviving: Sequence[Image | None]) -> None:
    call_id = payload["callId"]
    for image in surviving:
        calls = {} if image is None else {call.call_id: call for call in image.tool_calls}
        call = calls.get(call_id)
        if call is None or call.state == "pending":
            raise Violation("I7", f"the result of {call_id} was told before it was durable")
        if call.result_digest != digest(payload["result"]):
            raise Violation("I19", f"the result of {call_id} was told as another one")


def _is_stored_answer(payload: dict[str, Any], surviving: Sequence[Image | None]) -> None:
    request_id = payload["requestId"]
    for image in surviving:
        asked = {} if image is None else {request.request_id: request for request in image.requests}
        request = asked.get(request_id)
        if request is None or request.state not in ("answered", "resolved"):
            raise Violation("I7", f"the answer to {request_id} was told before it was durable")
        if request.answer_digest != digest(payload["resolution"]):
            raise Violation("I19", f"the answer to {request_id} was told as another one")
