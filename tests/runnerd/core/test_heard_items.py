"""The items of a turn as a program reports them: their order, their bound, their deltas."""

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from protocol.limits import HARNESS_ITEMS_OPEN_MAX
from runnerd.core.harness_messages import Reported
from runnerd.core.inputs import ConnectionLost, TimePassed
from tests.runnerd.core.talk import talking

ITEM_FAULTS: dict[str, tuple[list[str], str]] = {
    "duplicate": (["started i", "started i"], "this item was started before"),
    "again after its end": (
        ["started i", "completed i", "started i"],
        "this item was started before",
    ),
    "end before start": (["completed i"], "this item has ended or was never started"),
    "delta before start": (["delta i"], "this item has ended or was never started"),
    "delta after end": (
        ["started i", "failed i", "delta i"],
        "this item has ended or was never started",
    ),
    "end of another": (["started i", "completed j"], "this item has ended or was never started"),
    "two ends": (
        ["started i", "completed i", "failed i"],
        "this item has ended or was never started",
    ),
}


@pytest.mark.parametrize("name", ITEM_FAULTS)
def test_an_item_out_of_order_is_refused_and_the_others_stand(name: str) -> None:
    steps, reason = ITEM_FAULTS[name]
    world = talking()
    first = len(world.events())

    for step in steps:
        kind, item = step.split()
        world.say(Reported(event_type=f"item.{kind}", payload={}, item_id=item))

    *good, refused = world.events()[first:]
    assert [event["eventType"] for event in good] == [f"item.{s.split()[0]}" for s in steps[:-1]]
    assert refused["eventType"] == "harness.diagnostic"
    assert refused["priority"] == 2
    assert world.payloads("harness.diagnostic")[0]["reason"] == reason


def test_open_items_are_bounded() -> None:
    world = talking()
    for number in range(HARNESS_ITEMS_OPEN_MAX + 1):
        world.say(Reported(event_type="item.started", payload={}, item_id=f"i_{number}"))
        world.ack()

    [payload] = world.payloads("harness.diagnostic")
    assert payload["reason"] == "too many items are open"


def test_deltas_of_two_items_are_never_merged_and_lose_nothing() -> None:
    world = talking()
    for item in ("a", "b"):
        world.say(Reported(event_type="item.started", payload={}, item_id=item))
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    first = world.durable.next_source_seq

    for item, text in (("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")):
        world.say(Reported(event_type="item.delta", payload={"text": text}, item_id=item))

    world.later(1_000, TimePassed())
    world.connect(bootstrap=False)
    merged = [e["payload"] for e in world.events() if int(str(e["sourceSeq"])) >= first]
    assert merged == [
        {"text": "12", "harnessItemId": "a", "coalescedCount": 2},
        {"text": "3", "harnessItemId": "b"},
        {"text": "4", "harnessItemId": "a"},
    ]


@pytest.mark.parametrize(
    ("payloads", "merged"),
    [
        ([{"percent": 1}, {"percent": 2}], [{"percent": 2, "coalescedCount": 2}]),
        ([{"text": "a"}, {"p": 1}], [{"text": "a", "p": 1, "coalescedCount": 2}]),
        ([{"text": 1}, {"text": 2}], [{"text": 1}, {"text": 2}]),
        (
            [{"text": "a", "coalescedCount": 9}, {"text": "b"}],
            [{"text": "ab", "coalescedCount": 2}],
        ),
    ],
)
def test_merged_deltas_say_what_they_stand_for_and_alter_nothing(
    payloads: list[dict[str, JsonValue]], merged: list[dict[str, JsonValue]]
) -> None:
    world = talking()
    world.say(Reported(event_type="item.started", payload={}, item_id=""))
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    for payload in payloads:
        world.say(Reported(event_type="item.delta", payload=payload))

    world.later(1_000, TimePassed())
    world.connect(bootstrap=False)
    assert world.payloads("item.delta") == merged
