"""Requests that nobody answers in time: over at their moment, and not before."""

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.timestamps import rfc3339_ms
from runnerd.core.inputs import ConnectionLost, TimePassed
from tests.runnerd.core.talk import after_restart, said, talking
from tests.runnerd.core.test_requests import EXPIRY_MS, asked, asking, state_of


def test_a_request_expires_at_its_time_and_the_program_is_told() -> None:
    world = asking(expires_in_ms=EXPIRY_MS)
    [created] = world.payloads("runtime_request.created")
    assert created["expiresAt"] == rfc3339_ms(type(world.now.unix_ms)(world.now.unix_ms + 5_000))
    world.later(EXPIRY_MS - 1, TimePassed())
    assert state_of(world) == "pending"

    world.later(1, TimePassed())

    assert state_of(world) == "expired"
    [event] = [e for e in world.events() if e["eventType"] == "runtime_request.expired"]
    assert event["priority"] == 0
    assert world.take_told() == [
        {"type": "request.resolve", "requestId": "ask_1", "outcome": "expired"}
    ]


def test_an_answer_at_the_very_time_is_too_late_although_no_time_was_told() -> None:
    world = asking(expires_in_ms=EXPIRY_MS)
    world.mono += EXPIRY_MS

    status, members = said(world.resolve())

    assert (status, members["code"]) == ("rejected", "request_expired")
    assert len(world.payloads("runtime_request.expired")) == 1


def test_each_of_several_expires_at_its_own_time() -> None:
    world = talking()
    for number, expiry in enumerate((3_000, 1_000, None, 2_000)):
        world.say(asked(f"ask_{number}", question={"n": number}, expires_in_ms=expiry))

    order: list[Sequence[str]] = []
    for _ in range(4):
        world.later(1_000, TimePassed())
        states = [r.state for r in world.durable.requests]
        order.append(states)

    assert order == [
        ["pending", "expired", "pending", "pending"],
        ["pending", "expired", "pending", "expired"],
        ["expired", "expired", "pending", "expired"],
        ["expired", "expired", "pending", "expired"],
    ]
    assert world.runner.live.request_deadline_mono_ms is None


def test_a_request_expires_while_nobody_is_connected() -> None:
    world = asking(expires_in_ms=EXPIRY_MS)
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    world.later(EXPIRY_MS, TimePassed())

    assert state_of(world) == "expired"


def test_a_request_that_expired_while_no_process_ran_expires_at_the_next_chance() -> None:
    world = asking(expires_in_ms=EXPIRY_MS)
    world.mono += EXPIRY_MS

    again = after_restart(world)
    again.mono = world.mono
    assert again.runner.live.request_deadline_mono_ms is not None
    again.later(EXPIRY_MS, TimePassed())

    assert state_of(again) == "expired"
