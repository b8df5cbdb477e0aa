"""Programs that ask people and call tools: approvals, late, repeated and contradicting results.

What it breaks shows as I5 (twice), I7 (too early), I13 (a second end), I14 and I19 (K08-K10,
H08, H10).
"""

from collections import Counter
from typing import Any, Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.limits import SEMANTIC_INPUT_BYTES_MAX
from tests.simulator.draws import Stream
from tests.simulator.full.ops import give_command, may_command
from tests.simulator.full.world import World as FullWorld
from tests.simulator.option import Command, Op, Option
from tests.simulator.short.talker import PREPARE, Talker, digest, input_of, question_of
from tests.simulator.short.world import World, settings_of
from tests.simulator.verdict import Violation

FAMILY: Final = "dialogue"
LARGEST: Final = SEMANTIC_INPUT_BYTES_MAX - len(b'{"title":""}')
"""Characters of a title that make the largest input."""
_ROOM_FOR_LARGE: Final = (2 * 1024 * 1024, 64 * 1024)
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
    accepted = world.oracle.accepted
    # A state that was put back takes events away whose types are remembered.
    return any(
        found == event_type and seq <= world.peer.cursor and seq in accepted
        for seq, found in world.oracle.types.items()
    )


def result_payload(world: World) -> bytes:
    """Answer one of the calls; now and then with another result, or as if it were another."""
    stream = world.draws.stream("workload")
    calls = _arrived(world, "semantic_tool.input")
    seq, _ = calls[stream.choose("call", len(calls))]
    return _result_of(stream, msgspec.json.decode(world.oracle.accepted[seq]))


def _result_of(stream: Stream, event: dict[str, Any]) -> bytes:
    is_of_other_input = stream.chance("other input", 8)
    return _result(event, is_of_other_input, stream.chance("other result", 15))


def _result(event: dict[str, Any], is_of_other_input: bool, is_other: bool) -> bytes:
    call = event["payload"]["semantic_tool"]
    return msgspec.json.encode(
        {
            "callId": call["callId"],
            "operationId": call["operationId"],
            "inputDigest": "sha256:" if is_of_other_input else digest(call["input"]),
            "sourceEventId": event["sourceEventId"],
            "sourceEventType": "semantic_tool.input",
            "correlation": call["correlation"],
            "result": {"of": call["callId"], "other": is_other},
            "isError": False,
        }
    )


def awaited_result(world: World) -> bytes | None:
    """Return the result for which a program waits that is to be started again, if it does."""
    image = world.oracle.image
    turn = None if image is None else image.turn
    if image is None or turn is None or turn.is_born or not turn.restarts:
        return None
    pending = [call.call_id for call in image.tool_calls if call.state == "pending"]
    for seq, payload in _arrived(world, "semantic_tool.input") if pending else ():
        if payload["semantic_tool"]["callId"] in pending:
            return _result(msgspec.json.decode(world.oracle.accepted[seq]), False, False)
    return None


def answer_payload(world: World) -> bytes:
    """Answer one of the questions."""
    stream = world.draws.stream("workload")
    asked = _arrived(world, "runtime_request.created")
    _, payload = asked[stream.choose("request", len(asked))]
    return _answer_of(stream, payload)


def _answer_of(stream: Stream, payload: dict[str, Any]) -> bytes:
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


def audit(world: World | FullWorld) -> None:
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
        if call["input"] not in _inputs(call["callId"]):
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


def _inputs(call_id: str) -> tuple[dict[str, JsonValue], ...]:
    if call_id == "call_large":
        return tuple({"title": "x" * size} for size in (LARGEST - 1, LARGEST))
    return input_of(call_id), _other(call_id)


def _other(call_id: str) -> dict[str, JsonValue]:
    return {"other": int(call_id.rpartition("_")[2])}


def _weight_prepare(world: World) -> int:
    prepared = [c.payload for c in world.peer.commands if c.type == "run.prepare"]
    return 1 if prepared and bytes(prepared[-1]) == PREPARE else 20


def _weight_turn(world: World) -> int:
    is_idle = world.program is None or not world.program.is_alive
    return 60 if is_idle and _weight_prepare(world) == 1 else 0


# --- the full stack -----------------------------------------------------------------------------


def result_from(world: FullWorld) -> bytes:
    """Answer one of the calls that are committed, whatever has become of its turn."""
    stream = world.draws.stream("workload")
    calls = world.observers.asked["semantic_tool.input"]
    return _result_of(stream, msgspec.json.decode(calls[stream.choose("call", len(calls))]))


def answer_from(world: FullWorld) -> bytes:
    """Answer one of the questions that are committed."""
    stream = world.draws.stream("workload")
    asked = world.observers.asked["runtime_request.created"]
    event = msgspec.json.decode(asked[stream.choose("request", len(asked))])
    return _answer_of(stream, event["payload"])


def prepare(world: FullWorld) -> bytes:
    """Prepare the run for a program that speaks."""
    world.kept["speaks"] = True
    return PREPARE


def begin_full(world: FullWorld) -> None:
    """Draw whether the run is prepared for it, and whether inputs are as large as may be."""
    if not world.profile.has(FAMILY):
        return
    if world.draws.stream("profile").chance("prepared", 75):
        world.kept.update({"prepared for": PREPARE, "speaks": True})
    if world.profile.has("large_input"):
        world.use_settings(settings_of(*_ROOM_FOR_LARGE))
        world.programs.large_inputs = (LARGEST, LARGEST - 1, LARGEST + 1)
        world.profile.facts["outbox"] = _ROOM_FOR_LARGE[0]


def _is_idle(world: FullWorld) -> bool:
    program = world.programs.program
    return program is None or not program.is_alive


FULL: Final = Option[FullWorld](
    FAMILY,
    families=(FAMILY, "large_input"),
    begin=begin_full,
    ops=(Op("talk", lambda w: 120 if may_command(w) else 0, give_command, FAMILY),),
    commands=(
        Command("run.prepare", lambda w: 1 if w.kept.get("speaks") else 60, prepare, FAMILY),
        Command(
            "turn.start",
            lambda w: 60 if w.kept.get("speaks") and _is_idle(w) else 0,
            family=FAMILY,
        ),
        Command(
            "semantic_tool.result",
            lambda w: 50 if w.observers.asked["semantic_tool.input"] else 0,
            result_from,
            FAMILY,
        ),
        Command(
            "request.resolve",
            lambda w: 30 if w.observers.asked["runtime_request.created"] else 0,
            answer_from,
            FAMILY,
        ),
    ),
    audit=audit,
    sometimes=(
        "program was answered",
        "lost program replaced",
        "conflict of results",
        "late result after turn end",
        "same result again",
    ),
)
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
