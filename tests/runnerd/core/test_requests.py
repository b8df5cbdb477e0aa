"""Requests to people: asked once, answered once, and every late answer has a stated fate."""

from collections.abc import Callable

import msgspec
import pytest

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.ids import Generation
from protocol.limits import (
    OPEN_END_BYTES,
    REQUEST_ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS_PENDING_MAX,
    REQUESTS_SETTLED_MAX,
)
from runnerd.core import state_codec
from runnerd.core.harness_messages import Asked, Ready
from runnerd.core.inputs import HarnessSpawned, StopRequested, TimePassed
from tests.runnerd.core.talk import Talk, after_restart, next_turn, said, talking
from tests.runnerd.core.world import BIRTH, SETTINGS, exited

QUESTION: dict[str, JsonValue] = {
    "requestId": "ask_1",
    "requestKind": "permission",
    "call": {"program": "rm", "arguments": ["-r", "é\r\n"]},
}
DIGEST = sha256_label(canonical_bytes(QUESTION))
EXPIRY_MS = 5_000


def asked(request_id: str = "ask_1", /, **changes: object) -> Asked:
    ask = Asked(request_id=request_id, kind="permission", question=QUESTION)
    return msgspec.structs.replace(ask, **changes)


def asking(**changes: object) -> Talk:
    world = talking()
    world.say(asked(**changes))
    return world


def state_of(world: Talk, request_id: str = "ask_1") -> str | None:
    found = [r.state for r in world.durable.requests if r.request_id == request_id]
    return found[0] if found else None


def test_a_question_is_one_event_with_the_digest_of_exactly_what_was_asked() -> None:
    world = asking()

    [event] = [e for e in world.events() if e["eventType"] == "runtime_request.created"]
    assert event["priority"] == 0
    assert event["payload"] == {
        "requestId": "ask_1",
        "requestKind": "permission",
        "requestDigest": DIGEST,
        "request": QUESTION,
        "requestRedacted": False,
    }


def test_a_question_with_a_credential_shows_a_redacted_copy_and_the_digest_of_the_exact_one() -> (
    None
):
    exact: dict[str, JsonValue] = {"call": {"password": "hunter2"}}

    world = asking(question=exact)

    [payload] = world.payloads("runtime_request.created")
    assert payload["request"] == {"call": {"password": "[REDACTED]"}}
    assert payload["requestRedacted"] is True
    assert payload["requestDigest"] == sha256_label(canonical_bytes(exact))
    assert world.stored is not None
    assert b"hunter2" not in world.stored


def test_an_answer_is_told_once_and_exactly_and_the_request_is_resolved() -> None:
    world = asking()
    resolution: JsonValue = {"allow": True, "note": "Ü\r\n\U0001f600"}

    result = world.resolve(resolution=resolution, requestDigest=DIGEST)

    assert said(result) == (
        "completed",
        {"requestId": "ask_1", "status": "resolved", "delivery": "delivered"},
    )
    assert world.take_told() == [
        {
            "type": "request.resolve",
            "requestId": "ask_1",
            "outcome": "resolved",
            "resolution": resolution,
        }
    ]
    assert state_of(world) == "resolved"
    [payload] = world.payloads("runtime_request.resolved")
    assert payload == {
        "requestId": "ask_1",
        "requestKind": "permission",
        "requestDigest": DIGEST,
        "answerDigest": sha256_label(canonical_bytes(resolution)),
        "delivery": "delivered",
    }
    assert world.take_told() == []


def test_the_same_answer_again_is_a_duplicate_and_another_is_refused() -> None:
    world = asking()
    world.resolve()
    world.take_told()

    assert said(world.resolve()) == (
        "completed",
        {"requestId": "ask_1", "status": "duplicate"},
    )
    status, members = said(world.resolve(resolution={"allow": False}))
    assert (status, members["code"]) == ("rejected", "request_resolved")
    assert world.take_told() == []
    assert len(world.payloads("runtime_request.resolved")) == 1


def test_an_answer_to_another_question_is_refused() -> None:
    world = asking()

    status, members = said(world.resolve(requestDigest="sha256:" + "0" * 64))

    assert (status, members["code"]) == ("rejected", "request_conflict")
    assert state_of(world) == "pending"


@pytest.mark.parametrize(
    "changes",
    [
        {"requestId": 7},
        {"requestId": None},
        {"resolution": None},
        {"resolution": []},
        {"resolution": "yes"},
        {"requestDigest": 5},
        {"resolution": {"x": "y" * REQUEST_ANSWER_BYTES_MAX}},
    ],
)
def test_a_malformed_answer_changes_nothing(changes: dict[str, JsonValue]) -> None:
    world = asking()
    events = world.event_types()

    status, members = said(world.resolve(**changes))

    assert (status, members["code"]) == ("rejected", "request_invalid")
    assert state_of(world) == "pending"
    assert world.event_types() == events


def expired() -> Talk:
    world = asking(expires_in_ms=EXPIRY_MS)
    world.later(EXPIRY_MS, TimePassed())
    world.take_told()
    return world


def cancelled() -> Talk:
    world = asking()
    world.ends()
    return world


def resolved() -> Talk:
    world = asking()
    world.resolve(resolution={"first": 1})
    world.take_told()
    return world


def answered() -> Talk:
    world = asking()
    world.resolve(resolution={"first": 1})
    return world


FATES: dict[str, tuple[Callable[[], Talk], str]] = {
    "expired": (expired, "request_expired"),
    "cancelled": (cancelled, "request_cancelled"),
    "resolved": (resolved, "request_resolved"),
    "answered": (answered, "request_resolved"),
}


@pytest.mark.parametrize("state", FATES)
def test_a_late_answer_is_refused_by_name_and_an_event_says_so(state: str) -> None:
    make, code = FATES[state]
    world = make()
    assert state_of(world) == state
    told = len(world.unwritten())

    status, members = said(world.resolve())

    assert status == "rejected"
    assert members == {"code": code, "requestId": "ask_1", "requestState": state}
    [payload] = world.payloads("runner.diagnostic")
    assert (payload["code"], payload["fate"]) == (code, "not_applied")
    assert state_of(world) == state
    assert len(world.unwritten()) == told


@pytest.mark.parametrize("state", FATES)
def test_no_second_transition_leaves_a_request_that_is_over(state: str) -> None:
    world = FATES[state][0]()
    events = [t for t in world.event_types() if str(t).startswith("runtime_request.")]

    world.later(2 * EXPIRY_MS, TimePassed())
    if not world.durable.run_terminal:
        world.say(asked())
        world.ends()

    after = [t for t in world.event_types() if str(t).startswith("runtime_request.")]
    assert after == events
    assert state_of(world) == ("resolved" if state == "answered" else state)


def test_an_unknown_request_is_refused() -> None:
    assert said(talking().resolve())[1]["code"] == "request_unknown"


# --- who waits ----------------------------------------------------------------------------------


def test_the_end_of_the_run_cancels_what_is_pending_before_it_says_that_it_ended() -> None:
    world = asking()

    world.ends()

    assert state_of(world) == "cancelled"
    types = world.event_types()
    assert types.index("runtime_request.cancelled") < types.index("run.terminal")
    [event] = [e for e in world.events() if e["eventType"] == "runtime_request.cancelled"]
    assert event["priority"] == 0


def test_a_run_that_is_cancelled_between_turns_cancels_its_requests() -> None:
    world = after_restart(asking())

    world.deliver("run.cancel")

    assert state_of(world) == "cancelled"


def test_a_pending_request_survives_the_runner_and_its_answer_waits_for_the_next_program() -> None:
    world = after_restart(asking())
    assert state_of(world) == "pending"

    result = world.resolve()

    assert said(result)[1]["delivery"] == "stored"
    assert state_of(world) == "answered"
    next_turn(world)
    world.say(asked())
    [told] = world.take_told()
    assert (told["outcome"], told["resolution"]) == ("resolved", {"allow": True})
    assert state_of(world) == "resolved"
    assert len(world.payloads("runtime_request.created")) == 1
    assert len(world.payloads("runtime_request.resolved")) == 1


def test_a_question_that_is_asked_again_by_the_next_program_waits_for_one_answer() -> None:
    world = after_restart(asking())
    next_turn(world)

    world.say(asked())
    world.resolve()

    assert [told["requestId"] for told in world.take_told()] == ["ask_1"]
    assert len(world.payloads("runtime_request.created")) == 1


def test_an_answer_that_was_stored_survives_a_second_restart() -> None:
    world = after_restart(asking())
    world.resolve()

    world = after_restart(world)
    next_turn(world)
    world.say(asked())

    assert len(world.take_told()) == 1


def test_a_program_started_again_within_the_turn_gets_the_answer_that_was_not_taken() -> None:
    world = asking()
    world.resolve()
    assert len(world.unwritten()) == 1
    world.lost()
    world.feed(HarnessSpawned(Generation(2), BIRTH))
    world.say(Ready())
    world.take_told()

    world.say(asked())

    [told] = world.take_told()
    assert told["resolution"] == {"allow": True}


def test_asking_twice_changes_nothing() -> None:
    world = asking()
    before = world.durable.requests
    events = world.event_types()

    world.say(asked())

    assert world.durable.requests == before
    assert world.event_types() == events
    assert world.take_told() == []


def test_another_question_under_a_known_id_is_refused() -> None:
    world = asking()

    world.say(asked(question={"other": True}))

    [told] = world.take_told()
    assert (told["outcome"], told["code"]) == ("refused", "request_conflict")
    assert world.codes() == ["request_conflict"]
    assert state_of(world) == "pending"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"request_id": ""}, "request_invalid"),
        ({"request_id": "a b"}, "request_invalid"),
        ({"question": {"x": "y" * REQUEST_BYTES_MAX}}, "request_invalid"),
        ({"question": {"x": "\ud800"}}, "request_invalid"),
    ],
)
def test_a_question_that_cannot_be_passed_on_is_refused(
    changes: dict[str, object], code: str
) -> None:
    world = asking(**changes)

    assert [told["code"] for told in world.take_told()] == [code]
    assert world.durable.requests == ()
    assert world.payloads("runtime_request.created") == []


def test_open_requests_are_bounded_and_settled_ones_are_forgotten_oldest_first() -> None:
    world = talking()
    for number in range(REQUESTS_PENDING_MAX + 1):
        world.say(asked(f"ask_{number}"))
    assert [told["code"] for told in world.take_told()] == ["requests_full"]

    count = REQUESTS_PENDING_MAX + REQUESTS_SETTLED_MAX
    for number in range(count):
        world.say(asked(f"ask_{number}"))
        world.ack()
        world.resolve(f"ask_{number}")
        world.take_told()

    assert len(world.durable.requests) == REQUESTS_SETTLED_MAX
    assert said(world.resolve("ask_0"))[1]["code"] == "request_unknown"
    assert said(world.resolve(f"ask_{count - 1}"))[1]["status"] == "duplicate"
    state_codec.load(state_codec.encode(world.durable), SETTINGS)


def test_what_is_open_can_always_report_its_end() -> None:
    reserve = 16 * 1024
    world = talking(msgspec.structs.replace(SETTINGS, p0_reserve_bytes=reserve))
    for number in range(20):
        world.say(asked(f"ask_{number}"))
        world.call(f"call_{number}")
        world.ack()

    open_ = len(world.durable.requests) + len(world.durable.tool_calls)
    assert open_ * OPEN_END_BYTES == reserve // 2
    told = {line.get("code") or line["result"]["reason"] for line in world.take_told()}
    assert told == {"requests_full", "tool_calls_full"}
    before = world.runner.live.outbox_bytes
    world.ends()
    assert world.runner.live.outbox_bytes - before <= reserve


def test_an_answer_is_taken_while_the_runner_is_about_to_end() -> None:
    world = asking()
    world.feed(StopRequested(15))

    result = world.resolve()

    assert said(result)[1] == {"requestId": "ask_1", "status": "resolved", "delivery": "stored"}
    world.feed(exited(world.generation, None, 15))
    assert state_of(world) == "answered"
