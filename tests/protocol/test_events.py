"""A runner's own events: their bytes, their ids and what is refused before it is stored."""

from typing import Any

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from protocol.codec import decode_runner, event_envelope
from protocol.envelope import EventMessage
from protocol.errors import ErrorCode, PrpError
from protocol.events import Event, event_id, event_misfit, runner_event, validate_event
from protocol.ids import Identity, SourceEventId, SourceSeq
from tests.protocol.samples import BINDING, EVENT, IDENTITY, NOW_TEXT


def own_event(payload: Any, **changes: Any) -> bytes:
    stated: dict[str, Any] = {
        "source_seq": SourceSeq(7),
        "event_type": "item.delta",
        "priority": 2,
        "emitted_at": NOW_TEXT,
    }
    return runner_event(IDENTITY, payload=payload, **(stated | changes))


def refusal(payload: Any, **changes: Any) -> PrpError:
    with pytest.raises(PrpError) as raised:
        own_event(payload, **changes)
    return raised.value


def test_own_event_is_compact_utf8_in_a_fixed_order() -> None:
    assert own_event({"text": "höher \u2028 😀", "a": 1}).decode() == (
        '{"schema":"paperclip.prp.event.v1","sourceEventId":"event_runner_1_0000000000000007",'
        '"sourceSeq":7,"sourceInstanceId":"runner_1","sourceKind":"runner","runId":"run_1",'
        '"eventType":"item.delta","schemaVersion":1,"priority":2,'
        '"emittedAt":"2026-01-02T03:04:05.678Z","payload":{"text":"höher \u2028 😀","a":1},'
        '"normalizedSessionId":"session_1","turnId":"turn_1","itemId":"item_1"}'
    )


def test_own_event_is_taken_by_the_controller_byte_for_byte() -> None:
    before, after = event_envelope(2, IDENTITY)
    for body in (
        own_event({"text": "x"}),
        own_event({"goal": None}, event_type="session.goal.snapshot", schema_version=2),
        own_event({}, source_event_id=SourceEventId("event_executor_1")),
    ):
        message = decode_runner(before + body + after, BINDING)

        assert isinstance(message, EventMessage)
        assert message.body == body


def test_event_id_is_a_function_of_the_runner_and_the_sequence() -> None:
    assert event_id(IDENTITY, SourceSeq(2**53 - 1)) == "event_runner_1_9007199254740991"


def test_event_id_of_a_long_runner_name_stays_within_its_limit() -> None:
    def named(length: int) -> Identity:
        return msgspec.structs.replace(IDENTITY, runner_instance_id="r" * length)

    assert event_id(named(137), SourceSeq(1)) == f"event_{'r' * 137}_0000000000000001"
    assert len(event_id(named(137), SourceSeq(1))) == 160
    assert len(event_id(named(138), SourceSeq(1))) == 87
    assert event_id(named(138), SourceSeq(1)) != event_id(named(139), SourceSeq(1))


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ([], "/payload"),
        ("x", "/payload"),
        (None, "/payload"),
        ({"channel": "loud"}, "/payload/channel"),
        ({"x": float("nan")}, "/payload"),
        ({"x": float("-inf")}, "/payload"),
        ({1: "number as a name"}, "/payload"),
        ({"x": (1, 2)}, "/payload"),
    ],
)
def test_own_event_is_refused_at_a_pointer_when_json_would_change_or_the_schema_breaks(
    payload: object, pointer: str
) -> None:
    error = refusal(payload)

    assert error.code is ErrorCode.EVENT_INVALID
    assert error.message.endswith(f" {pointer}")


@pytest.mark.parametrize(
    "payload",
    [
        {"x": "\ud800"},
        {"\udfff": 1},
        {"x": 2**53},
        {"x": -(2**80)},
        {"x": object()},
        {"x": {1, 2}},
    ],
)
def test_own_event_is_refused_when_no_peer_could_read_it(payload: dict[str, object]) -> None:
    assert refusal(payload).code is ErrorCode.EVENT_INVALID


@pytest.mark.parametrize(
    "changes",
    [
        {"event_type": "item.unheard"},
        {"event_type": "session.goal.cleared"},
        {"priority": 3},
        {"source_seq": 0},
        {"source_seq": 2**53},
        {"emitted_at": "now"},
        {"source_event_id": "x" * 161},
        {"event_type": "runner.backpressure", "schema_version": 2},
        {"event_type": "run.terminal"},
    ],
)
def test_own_event_is_refused_when_a_member_breaks_the_schema(changes: dict[str, Any]) -> None:
    assert refusal({}, **changes).code is ErrorCode.EVENT_INVALID


def test_own_event_of_a_long_runner_name_is_refused() -> None:
    identity = msgspec.structs.replace(IDENTITY, runner_instance_id="r" * 161)

    with pytest.raises(PrpError) as raised:
        runner_event(
            identity,
            source_seq=SourceSeq(1),
            event_type="item.delta",
            priority=2,
            payload={},
            emitted_at=NOW_TEXT,
        )

    assert raised.value.message.endswith(" /sourceInstanceId")


def nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload",
    [
        {"x": "é" * 300_000},
        {"x": [0] * 10_000},
        {"x": nested(63)},
    ],
)
def test_own_event_is_too_large_when_no_frame_carries_it(payload: dict[str, object]) -> None:
    assert refusal(payload).code is ErrorCode.EVENT_TOO_LARGE


def test_own_event_of_endless_depth_is_invalid() -> None:
    assert refusal({"x": nested(100_000)}).code is ErrorCode.EVENT_INVALID


def test_validation_judges_the_members_and_the_payload() -> None:
    event = msgspec.json.decode(msgspec.json.encode(EVENT), type=Event)

    validate_event(event, EVENT["payload"])
    cases: list[tuple[Event, Any]] = [
        (msgspec.structs.replace(event, priority=5), {}),
        (msgspec.structs.replace(event, turn_id=""), {}),
        (msgspec.structs.replace(event, source_seq=2**53), {}),
        (msgspec.structs.replace(event, debug=msgspec.Raw(b"[]")), {}),
        (msgspec.structs.replace(event, run_id="\ud800"), {}),
        (event, {"channel": 1}),
        (event, []),
    ]
    for broken, payload in cases:
        with pytest.raises(PrpError) as raised:
            validate_event(broken, payload)
        assert raised.value.code is ErrorCode.EVENT_INVALID


def test_pointer_of_a_misfit_never_quotes_the_sender() -> None:
    plan = {"schema": "paperclip.plan.updated.v1", "evil": 1}
    values: list[Any] = [
        EVENT | {"evil": "evil", "eventType": "evil"},
        EVENT | {"eventType": "plan.updated", "payload": plan},
        {"evil": 1},
    ]
    for value in values:
        misfit = event_misfit(value)
        assert misfit is not None
        assert "evil" not in misfit
