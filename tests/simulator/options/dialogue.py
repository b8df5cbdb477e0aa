"""Programs that ask people and call tools: approvals, late, repeated and contradicting results.

What it breaks shows as I5 (twice), I7 (too early), I13 (a second end), I14 and I19 (K08-K10,
H08, H10).
"""

from collections import Counter
from typing import Any, Final

import msgspec

from protocol.canonical_json import JsonValue
from tests.simulator.option import Command, Op, Option
from tests.simulator.short.talker import PREPARE, Talker, digest, input_of, question_of
from tests.simulator.short.world import World
from tests.simulator.verdict import Violation

FAMILY: Final = "dialogue"
_ENDS: Final = (
    "runtime_request.resolved",
    "runtime_request.expired",
    "runtime_request.cancelled",
)


# --- what the controller says -------------------------------------------------------------------


def _arrived(world: World, event_type: str) -> list[tuple[int, dict[str, Any]]]:
    """Return sequence and payload of the committed events of a type."""
    types, accepted = world.oracle.types, world.oracle.accepted
    return [
        (seq, msgspec.json.decode(accepted[seq])["payload"])
        for seq in sorted(accepted)
        if seq <= world.peer.cursor and types.get(seq) == event_type
    ]


def _has(world: World, event_type: str) -> bool:
    return any(
        found == event_type and seq <= world.peer.cursor
        for seq, found in world.oracle.types.items()
    )


def result_payload(world: World) -> bytes:
    """Answer one of the calls; now and then with another result, or as if it were another."""
    stream = world.draws.stream("workload")
    calls = _arrived(world, "semantic_tool.input")
    seq, payload = calls[stream.choose("call", len(calls))]
    call = payload["semantic_tool"]
    event = msgspec.json.decode(world.oracle.accepted[seq])
    return msgspec.json.encode(
        {
            "callId": call["callId"],
            "operationId": call["operationId"],
            "inputDigest": "sha256:" if stream.chance("other input", 8) else digest(call["input"]),
            "sourceEventId": event["sourceEventId"],
            "sourceEventType": "semantic_tool.input",
            "correlation": call["correlation"],
            "result": {"of": call["callId"], "other": stream.chance("other result", 15)},
            "isError": False,
        }
    )


def answer_payload(world: World) -> bytes:
    """Answer one of the questions."""
    stream = world.draws.stream("workload")
    asked = _arrived(world, "runtime_request.created")
    _, payload = asked[stream.choose("request", len(asked))]
    answer: dict[str, object] = {
        "requestId": payload["requestId"],
        "resolution": {"allow": not stream.chance("other answer", 15)},
    }
    if stream.chance("name the question", 50):
        answer["requestDigest"] = payload["requestDigest"]
    return msgspec.json.encode(answer)


# --- what the program does ----------------------------------------------------------------------


def take(world: World) -> None:
    """Let the program's pipe take what it was told."""
    program = world.program
    assert isinstance(program, Talker)
    world.inbox.append(program.take(world.draws.stream("program")))


def _may_take(world: World) -> int:
    program = world.program
    is_told = isinstance(program, Talker) and program.has_untaken
    return 10 if world.is_running and is_told else 0


# --- what must be true in the end ---------------------------------------------------------------


def audit(world: World) -> None:
    """Judge the log of the whole history by its bytes."""
    if not world.profile.has(FAMILY):
        return
    made: Counter[str] = Counter()
    for seq, body in world.oracle.accepted.items():
        event_type = world.oracle.types.get(seq, "")
        if event_type.startswith(("semantic_tool.", "runtime_request.")):
            _judge(event_type, msgspec.json.decode(body)["payload"], made)
    for what, count in made.items():
        if count > 1:
            raise Violation("I13" if what.startswith("end of") else "I5", f"{what}: {count} times")
    image = world.oracle.image
    if image is not None and image.run_terminal:
        pending = [one.request_id for one in image.requests if one.state == "pending"]
        if pending:
            raise Violation("I20", f"the run is over and {pending} is still pending")


def _judge(event_type: str, payload: dict[str, Any], made: Counter[str]) -> None:
    if event_type == "semantic_tool.input":
        call = payload["semantic_tool"]
        made[f"input of {call['callId']}"] += 1
        if call["input"] not in (input_of(call["callId"]), _other(call["callId"])):
            raise Violation("I19", f"the input of {call['callId']} was altered")
        if call["content"]["digest"] != digest(call["input"]):
            raise Violation("I19", f"the input of {call['callId']} has another digest")
    elif event_type == "semantic_tool.result":
        made[f"end of {payload['semantic_tool']['callId']}"] += 1
    elif event_type == "runtime_request.created":
        made[f"question {payload['requestId']}"] += 1
        if payload["request"] != question_of(payload["requestId"]):
            raise Violation("I19", f"the question of {payload['requestId']} was altered")
    elif event_type in _ENDS:
        made[f"end of {payload['requestId']}"] += 1


def _other(call_id: str) -> dict[str, JsonValue]:
    return {"other": int(call_id.rpartition("_")[2])}


def _weight_prepare(world: World) -> int:
    prepared = [c.payload for c in world.peer.commands if c.type == "run.prepare"]
    return 1 if prepared and bytes(prepared[-1]) == PREPARE else 20


def _weight_turn(world: World) -> int:
    is_idle = world.program is None or not world.program.is_alive
    return 60 if is_idle and _weight_prepare(world) == 1 else 0


SHORT: Final = Option[World](
    FAMILY,
    families=(FAMILY,),
    ops=(Op("pipe takes", _may_take, take, FAMILY),),
    commands=(
        Command("run.prepare", _weight_prepare, lambda _: PREPARE, FAMILY),
        Command("turn.start", _weight_turn, family=FAMILY),
        Command(
            "semantic_tool.result",
            lambda w: 30 if _has(w, "semantic_tool.input") else 0,
            result_payload,
            FAMILY,
        ),
        Command(
            "request.resolve",
            lambda w: 20 if _has(w, "runtime_request.created") else 0,
            answer_payload,
            FAMILY,
        ),
    ),
    audit=audit,
    sometimes=("program was answered",),
)
