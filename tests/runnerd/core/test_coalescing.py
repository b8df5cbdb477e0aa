"""Display text merges only where nobody could have seen it, and loses no character."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.limits import COALESCED_TEXT_BYTES_MAX
from runnerd.core.actions import SendEvent
from runnerd.core.inputs import ConnectionLost, HarnessOutput
from tests.runnerd.core.world import World, restarted, running


def offline() -> World:
    world = running()
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))
    return world


def deltas(world: World) -> list[dict[str, object]]:
    return [
        msgspec.json.decode(entry.body)["payload"]
        for entry in world.durable.outbox
        if entry.event_type == "item.delta"
    ]


def test_lines_are_single_events_while_connected() -> None:
    world = running()

    world.lines("a", "b")

    assert [payload["text"] for payload in deltas(world)] == ["a\n", "b\n"]


def test_lines_merge_into_one_event_while_offline_and_count_what_it_stands_for() -> None:
    world = offline()

    world.lines("a", "b")
    world.lines("c")

    assert deltas(world) == [
        {
            "channel": "progress",
            "text": "a\nb\nc\n",
            "stream": "stdout",
            "lineNumber": 3,
            "coalescedCount": 3,
        }
    ]
    assert world.durable.lines_accepted == 3


def test_event_that_was_handed_to_a_socket_is_never_merged_into() -> None:
    world = running()
    world.lines("sent")
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    world.lines("later")

    assert [payload["text"] for payload in deltas(world)] == ["sent\n", "later\n"]


def test_merged_event_is_frozen_by_the_next_connection() -> None:
    world = offline()
    world.lines("a")
    world.connect(bootstrap=False)
    world.feed(ConnectionLost(world.binding.connection_id, ErrorCode.CONNECTION_LOST))

    world.lines("b")

    assert [payload["text"] for payload in deltas(world)] == ["a\n", "b\n"]


def test_every_stored_event_is_frozen_after_a_restart() -> None:
    world = offline()
    world.lines("a")

    again = restarted(world)

    assert again.runner.live.frozen_through == world.durable.next_source_seq - 1


def test_other_event_between_updates_ends_the_merging() -> None:
    world = offline()
    world.lines("a")
    world.exit(0)

    assert [entry.event_type for entry in world.durable.outbox][-6:] == [
        "item.delta",
        "item.completed",
        "run.result.proposed",
        "turn.completed",
        "harness.exited",
        "run.terminal",
    ]


def test_merged_text_is_bounded() -> None:
    world = offline()
    line = "x" * 5_000

    world.lines(*[line] * 10)

    sizes = [len(str(payload["text"])) for payload in deltas(world)]
    assert max(sizes) <= COALESCED_TEXT_BYTES_MAX
    assert sum(sizes) == 10 * 5_001


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30)),
        max_size=8,
    )
)
def test_no_character_is_lost_however_lines_arrive(batches: list[list[str]]) -> None:
    world = offline()

    for batch in batches:
        if batch:
            world.feed(HarnessOutput(world.durable.generation, tuple(batch)))

    text = "".join(str(payload["text"]) for payload in deltas(world))
    assert text == "".join(f"{line}\n" for batch in batches for line in batch)
    actions = world.connect(bootstrap=False)
    sent = [a.source_seq for a in actions if isinstance(a, SendEvent)]
    assert sent == list(range(1, world.durable.next_source_seq))
