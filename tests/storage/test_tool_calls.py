"""Every store returns the calls that its events carry, so that none is made twice."""

from pathlib import Path

import msgspec
import pytest

from controller_mock.core.state import StoredCall, restore
from protocol.ids import SourceSeq
from tests.controller_mock.core.test_tool_calls import TYPES, call_event
from tests.controller_mock.core.world import CONFIG, connected, event
from tests.storage.changes import RUN
from tests.storage.kinds import KINDS, StoreKind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_calls_of_a_run_come_back_in_order_with_the_first_of_each_id_first(
    kind: StoreKind, tmp_path: Path
) -> None:
    world = connected()
    world.say(1, event(1))
    for seq, call_id in ((2, "call_b"), (3, "call_a"), (4, "call_b")):
        event_type = TYPES[seq % 2]
        world.say(1, call_event(seq, call_id, event_type=event_type))
    store = kind.open(tmp_path / "data")
    store.create_run(CONFIG)

    store.commit([(RUN, tuple(world.written))])

    config, stored = store.load_run(RUN)
    assert stored.tool_calls == (
        StoredCall("call_b", SourceSeq(2)),
        StoredCall("call_a", SourceSeq(3)),
        StoredCall("call_b", SourceSeq(4)),
    )
    loaded = restore(config, stored).durable
    assert loaded.tool_calls == world.run.durable.tool_calls == {"call_b": 2, "call_a": 3}
    assert msgspec.structs.replace(loaded, credentials=()) == msgspec.structs.replace(
        world.run.durable, credentials=()
    )
    store.close()
