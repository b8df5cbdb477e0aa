"""The outbox: numbering, acknowledgement, the P0 reserve, and what a state file may say."""

import msgspec
import pytest

from protocol.base.clock import Now
from protocol.envelope import Ack
from protocol.errors import ErrorCode, PrpError
from protocol.ids import SourceSeq
from runnerd.core import state_codec
from runnerd.core.actions import CloseConnection
from runnerd.core.outbox import Draft, outbox_bytes, produce, soft_room
from runnerd.core.state import Durable, Lifecycle, Runner, Settings
from tests.runnerd.core.world import IDENTITY, SETTINGS, World


def small(max_outbox_bytes: int, p0_reserve_bytes: int) -> Settings:
    return msgspec.structs.replace(
        SETTINGS, max_outbox_bytes=max_outbox_bytes, p0_reserve_bytes=p0_reserve_bytes
    )


def filled(runner: Runner, now: Now, count: int) -> Runner:
    return produce(runner, [Draft("runner.diagnostic", 0, {"n": n}) for n in range(count)], now)


def test_events_are_numbered_contiguously_in_one_revision() -> None:
    world = World()

    longer = filled(world.runner, world.now, 3)

    assert [entry.source_seq for entry in longer.durable.outbox] == [1, 2, 3]
    assert longer.durable.next_source_seq == 4
    assert longer.revision == world.runner.revision + 1


def test_accounting_is_what_the_events_cost_on_the_wire() -> None:
    world = World()

    longer = filled(world.runner, world.now, 5)

    assert longer.live.outbox_bytes == outbox_bytes(longer.durable.outbox, IDENTITY)
    assert longer.durable.peak_outbox_bytes == longer.live.outbox_bytes


@pytest.mark.parametrize(("cursor", "left"), [(0, [1, 2]), (1, [2]), (2, [])])
def test_ack_drops_the_prefix_and_nothing_else(cursor: int, left: list[int]) -> None:
    world = World()
    world.connect()
    for command_type in ("runner.drain", "run.cancel"):
        world.deliver(command_type)

    world.control(Ack(SourceSeq(cursor)))

    assert [entry.source_seq for entry in world.durable.outbox] == left
    assert world.runner.live.outbox_bytes == outbox_bytes(world.durable.outbox, IDENTITY)


@pytest.mark.parametrize(
    ("cursor", "code"),
    [(0, ErrorCode.ACK_REGRESSED), (3, ErrorCode.ACK_BEYOND_PRODUCED)],
)
def test_ack_out_of_range_closes_and_keeps_the_outbox(cursor: int, code: ErrorCode) -> None:
    world = World()
    world.connect()
    world.deliver("runner.drain")
    world.deliver("run.cancel")
    world.ack(1)
    before = world.durable

    actions = world.control(Ack(SourceSeq(cursor)))

    assert actions == [CloseConnection(world.binding.connection_id, code)]
    assert world.durable == before


def test_acknowledgement_alone_causes_no_write() -> None:
    world = World()
    world.connect()
    world.deliver("runner.drain")
    writes = world.writes

    world.ack()

    assert world.writes == writes


def test_fact_of_priority_0_may_use_the_reserve() -> None:
    world = World(settings=small(3_000, 2_000))

    longer = filled(world.runner, world.now, 3)

    assert soft_room(longer) < 0
    assert longer.durable.lifecycle is not Lifecycle.UNRECOVERABLE


def test_fact_that_does_not_fit_makes_the_runner_unrecoverable_by_name() -> None:
    world = World(settings=small(3_000, 2_000))
    full = filled(world.runner, world.now, 3)

    over = filled(full, world.now, 3)

    assert over.durable.lifecycle is Lifecycle.UNRECOVERABLE
    assert over.durable.unrecoverable_outcome == "p0_storage_exhausted"
    assert over.durable.outbox == full.durable.outbox


def stored(world: World) -> bytes:
    return state_codec.encode(world.durable)


def test_state_survives_its_own_encoding() -> None:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()

    assert state_codec.load(stored(world), SETTINGS) == world.durable


@pytest.mark.parametrize(
    "change",
    [
        {"next_source_seq": 9},
        {"acked_source_seq": 1},
        {"last_controller_command_seq": 9},
        {"compacted_through_controller_seq": 1},
        {"peak_outbox_bytes": 1},
        {"generation": 9},
        {"provider": None},
        {"outbox": ()},
        {"diagnostics": ("x",) * 33},
        {"lines_accepted": -1},
    ],
)
def test_state_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    world = World()
    world.connect()
    world.prepare()
    world.start_turn()
    broken: Durable = msgspec.structs.replace(world.durable, **change)

    with pytest.raises(PrpError) as caught:
        state_codec.load(state_codec.encode(broken), SETTINGS)

    assert caught.value.code is ErrorCode.STATE_CORRUPT


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\0" * 50, b"[" * 100_000, b"\xff"])
def test_bytes_that_are_no_state_are_refused(content: bytes) -> None:
    with pytest.raises(PrpError) as caught:
        state_codec.load(content, SETTINGS)

    assert caught.value.code is ErrorCode.STATE_CORRUPT


def test_state_of_another_identity_is_foreign() -> None:
    other = msgspec.structs.replace(IDENTITY, run_id="run_2")

    with pytest.raises(PrpError) as caught:
        state_codec.load(stored(World()), msgspec.structs.replace(SETTINGS, identity=other))

    assert caught.value.code is ErrorCode.STATE_FOREIGN


def test_no_secret_can_reach_the_state_file() -> None:
    world = World()
    world.connect()
    world.prepare()

    assert b"lease-token" not in stored(world)
    with pytest.raises(TypeError):
        msgspec.json.encode(world.runner.live)
