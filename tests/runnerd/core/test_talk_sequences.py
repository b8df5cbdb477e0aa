"""Any input in any state of a dialogue: never an exception, and what was promised holds."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.envelope import Deliver, Revoke
from protocol.errors import ErrorCode
from protocol.ids import CommandId, ControllerSeq, Generation, RevocationEpoch
from runnerd.core import state_codec
from runnerd.core.actions import SendResult, TellHarness
from runnerd.core.harness_messages import Asked, Concluded, Logged, Proposed, Ready, Reported
from runnerd.core.inputs import (
    ConnectionLost,
    HarnessMessages,
    HarnessSpawned,
    HarnessTold,
    Input,
    StopRequested,
    TimePassed,
    WriteFailed,
)
from runnerd.core.state import Durable
from tests.runnerd.core.talk import (
    RESULT,
    SPEAKING,
    SUCCESS,
    Talk,
    after_restart,
    called,
    next_turn,
    talking,
)
from tests.runnerd.core.test_step import assert_invariants
from tests.runnerd.core.world import BIRTH, exited

COMMANDS = (
    "turn.start",
    "turn.interrupt",
    "run.cancel",
    "session.open",
    "semantic_tool.result",
    "request.resolve",
    "runner.drain",
    "runner.shutdown",
)
MESSAGES = (
    Ready(),
    Logged("x"),
    Reported(event_type="item.started", payload={}, item_id="i"),
    Reported(event_type="item.delta", payload={"text": "x" * 500}, item_id="i"),
    Asked(request_id="ask_1", kind="input", question={"q": 1}, expires_in_ms=2_000),
    Asked(request_id="ask_1", kind="input", question={"q": 2}),
    called(),
    called("call_2", input={"x": "y" * 9_000}),
    called(operation_id="paperclip_finish"),
    Proposed(RESULT),
    Concluded(SUCCESS),
)


def inputs(world: Talk) -> list[Input]:
    """One of each input that concerns a dialogue, for the present state."""
    generation = world.durable.generation
    seq = ControllerSeq(world.durable.last_controller_command_seq + 1)
    payloads: dict[str, JsonValue] = {
        "run.prepare": SPEAKING,
        "semantic_tool.result": world.result_payload(),
        "request.resolve": {"requestId": "ask_1", "resolution": {"ok": True}},
    }
    return [
        *(HarnessMessages(generation, (message,)) for message in MESSAGES),
        HarnessMessages(generation, MESSAGES),
        HarnessTold(generation, 1),
        HarnessTold(generation, 99),
        HarnessTold(Generation(generation + 1), 1),
        HarnessSpawned(generation, BIRTH),
        exited(generation, 0),
        exited(generation, 1),
        exited(generation, None, 9),
        TimePassed(),
        StopRequested(15),
        world.welcome(bootstrap=False),
        ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST),
        world.received(Revoke(RevocationEpoch(1))),
        *(
            world.received(
                Deliver(
                    world.command(
                        name,
                        payloads.get(name),
                        controller_seq=seq,
                        command_id=CommandId(f"id_{name}_{seq}"),
                    )
                )
            )
            for name in COMMANDS
        ),
    ]


def _asked() -> Talk:
    world = talking()
    world.say(MESSAGES[4])
    return world


def _called() -> Talk:
    world = talking()
    world.call()
    return world


def _answered() -> Talk:
    world = _called()
    world.answer()
    world.say(MESSAGES[4])
    world.resolve()
    return world


def _settled() -> Talk:
    world = _answered()
    world.take_told()
    return world


def _concluded() -> Talk:
    world = _called()
    world.conclude()
    return world


def _lost() -> Talk:
    world = _answered()
    world.lost()
    return world


def _again() -> Talk:
    world = after_restart(_answered())
    return next_turn(world)


def _ended() -> Talk:
    world = _called()
    world.ends()
    return world


HISTORIES: dict[str, Callable[[], Talk]] = {
    "new": Talk,
    "started": lambda: Talk().begin(),
    "ready": talking,
    "asked": _asked,
    "called": _called,
    "answered": _answered,
    "settled": _settled,
    "concluded": _concluded,
    "lost": _lost,
    "after a restart": lambda: after_restart(_answered()),
    "next turn": _again,
    "ended": _ended,
}
INPUTS = len(inputs(talking()))


@pytest.mark.parametrize("number", range(INPUTS))
@pytest.mark.parametrize("name", HISTORIES)
def test_every_input_in_every_state_keeps_the_invariants(name: str, number: int) -> None:
    world = HISTORIES[name]()
    before = world.durable
    if not world.connections:
        world.connect()

    world.driver.feed(inputs(world)[number], world.now)

    assert_invariants(before, world.runner)
    world.settle()
    assert_kept(before, world.durable)


def assert_kept(before: Durable, after: Durable) -> None:
    """Nothing that is over moves again, and nothing that is open gets lost."""
    ranks = {"pending": 0, "completed": 1, "settled": 2}
    calls = {call.call_id: call for call in after.tool_calls}
    for old in before.tool_calls:
        if old.state != "settled":
            new = calls[old.call_id]
            assert ranks[new.state] >= ranks[old.state]
            assert new.input_digest == old.input_digest
            assert old.result_digest in (None, new.result_digest)
    requests = {request.request_id: request for request in after.requests}
    for asked in before.requests:
        then = requests[asked.request_id]
        assert then.digest == asked.digest
        if asked.state not in ("pending", "answered"):
            assert then == asked
        if asked.state == "answered":
            assert then.state in ("answered", "resolved")
            assert then.answer_digest == asked.answer_digest


@given(st.lists(st.tuples(st.integers(0, INPUTS), st.integers(0, 900)), max_size=40))
def test_any_sequence_of_inputs_keeps_the_invariants_and_tells_each_line_once(
    moves: list[tuple[int, int]],
) -> None:
    world = talking()
    for number, pause_ms in moves:
        before = world.durable
        world.mono += pause_ms
        if number == INPUTS:
            if world.driver.next_write() is not None:
                world.driver.write_failed()
                world.driver.feed(WriteFailed(errno=28), world.now)
        else:
            world.driver.feed(inputs(world)[number], world.now)
        assert_invariants(before, world.runner)
        assert_kept(before, world.durable)
        if pause_ms % 2:
            settle_backed(world)
    lines: dict[tuple[int, int], bytes] = {}
    for action in world.left:
        if isinstance(action, TellHarness):
            key = (action.generation, action.number)
            # An order may come twice, which a driver ignores; it never says something else.
            assert lines.setdefault(key, action.line) == action.line


def settle_backed(world: Talk) -> None:
    """Let everything out, and compare what is told with what is durable at that moment."""
    while True:
        if world.driver.next_write() is not None:
            world.driver.wrote()
        action = world.driver.next_action()
        if action is None:
            return
        world.left.append(action)
        durable = world.driver.committed.durable
        if isinstance(action, TellHarness):
            assert_backed(action, durable)
        if isinstance(action, SendResult):
            assert any(record.result == action.result for record in durable.commands) or (
                b"command_history_compacted" in bytes(action.result.result)
            )


def assert_backed(order: TellHarness, durable: Durable) -> None:
    command = msgspec.json.decode(order.line)
    payload = command["payload"]
    if command["type"] == "semantic_tool.result" and "reason" not in str(payload["result"]):
        [call] = [c for c in durable.tool_calls if c.call_id == payload["callId"]]
        assert call.state in ("completed", "settled")
    if command["type"] == "request.resolve" and payload["outcome"] == "resolved":
        [request] = [r for r in durable.requests if r.request_id == payload["requestId"]]
        assert request.state in ("answered", "resolved")


DAMAGE: dict[str, Callable[[Durable], Durable]] = {
    "a pending call with a result": lambda d: with_call(d, result=msgspec.Raw(b"1")),
    "a completed call without": lambda d: with_call(d, state="completed", result_digest="x"),
    "a settled call with a body": lambda d: with_call(
        d, state="settled", result=msgspec.Raw(b"1"), result_digest="x"
    ),
    "a call twice": lambda d: msgspec.structs.replace(d, tool_calls=d.tool_calls * 2),
    "forgotten calls without a filter": lambda d: msgspec.structs.replace(d, compacted_calls=1),
    "a filter without calls": lambda d: msgspec.structs.replace(
        d, compacted_call_filter="f" * 8192
    ),
    "a filter of another size": lambda d: msgspec.structs.replace(
        d, compacted_calls=1, compacted_call_filter="ff"
    ),
    "a request twice": lambda d: msgspec.structs.replace(d, requests=d.requests * 2),
    "an answer nobody gave": lambda d: with_request(d, answer=msgspec.Raw(b"{}")),
    "an answered request without": lambda d: with_request(d, state="answered"),
}


def with_call(durable: Durable, **changes: object) -> Durable:
    changed = msgspec.structs.replace(durable.tool_calls[0], **changes)
    return msgspec.structs.replace(durable, tool_calls=(changed,))


def with_request(durable: Durable, **changes: object) -> Durable:
    changed = msgspec.structs.replace(durable.requests[0], **changes)
    return msgspec.structs.replace(durable, requests=(changed,))


@pytest.mark.parametrize("name", DAMAGE)
def test_a_state_that_contradicts_itself_is_not_believed(name: str) -> None:
    world = _called()
    world.say(MESSAGES[4])
    state_codec.load(state_codec.encode(world.durable), world.settings)

    damaged = state_codec.encode(DAMAGE[name](world.durable))

    with pytest.raises(Exception, match="state_corrupt"):
        state_codec.load(damaged, world.settings)
