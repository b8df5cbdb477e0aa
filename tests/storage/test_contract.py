"""What every store must do, on disk or not."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from controller_mock.core.actions import Change, CountRedelivery, PutCredential
from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, RevokeRequested
from controller_mock.core.state import DurableRun, LiveRun, Run, new_run, restore
from controller_mock.storage.store import EventIdConflict, Store
from protocol.base.revision import Revision
from protocol.errors import ErrorCode, PrpError
from protocol.ids import CredentialId, RunId, SourceSeq
from protocol.limits import CREDENTIALS_MAX, DIGEST_WINDOW_EVENTS, SETTLED_RESULTS_MAX
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    CONFIG,
    IDENTITY,
    World,
    connected,
    digest_of,
    event,
    lease_of,
    result,
    welcome_in,
)
from tests.storage.changes import RUN, events, put_event, row, ticket
from tests.storage.kinds import KINDS, StoreKind

OTHER_CONFIG = msgspec.structs.replace(
    CONFIG, identity=msgspec.structs.replace(IDENTITY, run_id="run-2")
)
OTHER = RunId("run-2")
TEXT = 'é\u2028\U0001f600\\ " \x00'


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind: StoreKind = request.param
    opened = kind.open(tmp_path / "data")
    opened.create_run(CONFIG)
    yield opened
    opened.close()


def in_any_order(durable: DurableRun) -> DurableRun:
    """Return the state without the order of its credentials, which decides nothing."""
    ordered = sorted(durable.credentials, key=lambda held: held.credential_id)
    return msgspec.structs.replace(durable, credentials=tuple(ordered))


def eventful() -> World:
    """A run with something of everything that a store holds."""
    world = connected("turn.start", "turn.stop", "session.goal.get")
    lease = lease_of(1, welcome_in(world.sent))
    for seq in range(1, 20):
        world.say(1, event(seq, 'é\u2028\U0001f600\\ " \x00'))
    world.say(1, event(3, 'é\u2028\U0001f600\\ " \x00'))
    world.say(1, result(world.run.durable.open_commands[0].command, "failed", b'{"a": 1.50}'))
    world.say(1, result(world.run.durable.open_commands[0].command, "indeterminate"))
    world.feed(ConnectionLost(ConnectionHandle(1)))
    world.reconnect(2, lease)
    world.issue(Secret("newer"))
    world.bootstrap(3, Secret("newer"))
    world.issue(Secret("unused"))
    return world


def test_a_run_is_as_new_when_nothing_was_committed(store: Store) -> None:
    assert restore(*store.load_run(RUN)) == new_run(CONFIG)
    assert store.load_runs() == [store.load_run(RUN)]
    assert store.run_ids() == [RUN]
    assert store.events(RUN, 0, 10) == []
    assert store.commands(RUN) == []
    assert store.command(RUN, 1) is None
    assert store.credentials(RUN) == []


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_run_is_loaded_as_it_was_when_it_was_committed_in_parts(store: Store, size: int) -> None:
    world = eventful()
    world.feed(RevokeRequested(world.request()))

    for start in range(0, len(world.written), size):
        store.commit([(RUN, tuple(world.written[start : start + size]))])

    expected = Run(CONFIG, Revision(0), in_any_order(world.run.durable), LiveRun())
    loaded = restore(*store.load_run(RUN))
    assert msgspec.structs.replace(loaded, durable=in_any_order(loaded.durable)) == expected


def test_one_run_may_have_several_batches_in_a_commit(store: Store) -> None:
    world = eventful()

    store.commit([(RUN, (change,)) for change in world.written])

    loaded = restore(*store.load_run(RUN)).durable
    assert in_any_order(loaded) == in_any_order(world.run.durable)


def test_the_readers_see_each_row_as_it_was_put(store: Store) -> None:
    world = eventful()
    store.commit([(RUN, tuple(world.written))])

    found = store.events(RUN, 0, 100)
    assert [bytes(each.body) for each in found] == [
        bytes(event(seq, 'é\u2028\U0001f600\\ " \x00').body) for seq in range(1, 20)
    ]
    assert [each.digest for each in found][2] == event(3, 'é\u2028\U0001f600\\ " \x00').digest.hex()
    assert [each.delivery_count for each in found][1:4] == [1, 2, 1]
    first, second, third = store.commands(RUN)
    assert (first.status, second.status, third.status) == ("failed", "indeterminate", None)
    assert isinstance(first.result, msgspec.Raw)
    assert msgspec.json.decode(first.result)["result"] == {"a": 1.5}
    assert b"1.50" in bytes(first.result)
    assert (first.result_count, third.result_count) == (1, 0)
    assert third.result is msgspec.UNSET
    assert store.command(RUN, 2) == second
    assert [row.kind for row in store.credentials(RUN)] == [
        "bootstrap",
        "lease",
        "bootstrap",
        "lease",
        "bootstrap",
    ]
    assert [row.superseded for row in store.credentials(RUN)] == [False, True, False, False, False]


def test_events_are_read_in_pages(store: Store) -> None:
    store.commit([(RUN, events(range(1, 11)))])

    pages = [[found.source_seq for found in store.events(RUN, after, 4)] for after in (0, 4, 8, 10)]

    assert pages == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], []]


def test_runs_keep_their_order_and_stay_apart(store: Store) -> None:
    store.create_run(OTHER_CONFIG)
    store.commit([(OTHER, events(range(1, 4))), (RUN, events(range(1, 3)))])

    assert store.run_ids() == [RUN, OTHER]
    assert [config for config, _ in store.load_runs()] == [CONFIG, OTHER_CONFIG]
    assert [len(store.events(run_id, 0, 10)) for run_id in (RUN, OTHER)] == [2, 3]


def test_a_run_is_refused_when_it_is_there_already(store: Store) -> None:
    with pytest.raises(PrpError) as caught:
        store.create_run(msgspec.structs.replace(CONFIG, lease_ttl_ms=1))

    assert caught.value.code is ErrorCode.RUN_EXISTS
    assert store.load_run(RUN)[0] == CONFIG


def test_an_unknown_run_has_a_code_and_leaves_nothing_behind(store: Store) -> None:
    with pytest.raises(PrpError) as loaded:
        store.load_run(OTHER)
    with pytest.raises(PrpError) as committed:
        store.commit([(RUN, events([1])), (OTHER, events([1]))])

    assert loaded.value.code is committed.value.code is ErrorCode.RUN_UNKNOWN
    assert store.events(RUN, 0, 10) == []
    assert store.events(OTHER, 0, 10) == []


@pytest.mark.parametrize("split", [True, False], ids=["later commit", "same commit"])
def test_an_id_that_names_two_events_leaves_nothing_behind(store: Store, split: bool) -> None:
    store.create_run(OTHER_CONFIG)
    first: tuple[Change, ...] = (put_event(1, event_id="twice"), row(1))
    again: tuple[Change, ...] = (put_event(2, event_id="twice"), row(2))
    if split:
        store.commit([(OTHER, first)])
        first = (CountRedelivery(SourceSeq(1)),)
    batches = [(RUN, events([1])), (OTHER, (*first, *again))]

    with pytest.raises(EventIdConflict) as caught:
        store.commit(batches)

    assert caught.value.code is ErrorCode.EVENT_IDENTITY_CONFLICT
    assert (caught.value.run_id, caught.value.source_seq) == (OTHER, 2)
    assert store.events(RUN, 0, 10) == []
    assert [found.source_seq for found in store.events(OTHER, 0, 10)] == ([1] if split else [])
    assert store.load_run(OTHER)[1].row.acked_source_seq == (1 if split else 0)
    assert [found.delivery_count for found in store.events(OTHER, 0, 10)] == ([1] if split else [])
    store.commit([(RUN, events([1])), (OTHER, events([2] if split else [1, 2]))])
    assert len(store.events(OTHER, 0, 10)) == 2


def test_one_id_may_name_events_of_two_runs(store: Store) -> None:
    store.create_run(OTHER_CONFIG)

    store.commit([(run_id, (put_event(1, event_id="same"), row(1))) for run_id in (RUN, OTHER)])

    assert store.events(RUN, 0, 1) == store.events(OTHER, 0, 1)


def test_ids_of_any_characters_stay_apart_and_come_back(store: Store) -> None:
    ids = [
        "a",
        "a\0",
        "a\0b",
        "\0",
        "\x01",
        '\x01"a\\u0000"',
        '"',
        "\\",
        "a\\u0000",
        "é",
        "e\u0301",
    ]
    ids += ["\U0001f600" * 160, "'; DROP TABLE events; --", "$[0]", " ", "\n"]

    store.commit(
        [
            (RUN, (put_event(seq, event_id=event_id), row(seq)))
            for seq, event_id in enumerate(ids, start=1)
        ]
    )

    assert [found.source_event_id for found in store.events(RUN, 0, 100)] == ids
    for event_id in ids:
        with pytest.raises(EventIdConflict) as caught:
            store.commit([(RUN, (put_event(len(ids) + 1, event_id=event_id), row(len(ids) + 1)))])
        assert caught.value.source_seq == len(ids) + 1


@pytest.mark.parametrize(
    "body",
    [
        b'{ "a" :\t1.0e2 ,\n"b":[ ] }',
        '{"a":"\\u0000\\/\\ud83d\\ude00 é\u2028"}'.encode(),
        b'{"a":"' + b"x" * 500_000 + b'"}',
    ],
    ids=["spaces", "escapes", "large"],
)
def test_a_body_comes_back_byte_for_byte(store: Store, body: bytes) -> None:
    store.commit([(RUN, (put_event(1, body=body), row(1)))])

    (found,) = store.events(RUN, 0, 1)

    assert bytes(found.body) == body


def test_counters_add_up_when_a_commit_names_them_more_than_once(store: Store) -> None:
    store.commit([(RUN, events([1, 2]))])

    counted = (CountRedelivery(SourceSeq(2)), row(2)) * 3
    store.commit([(RUN, counted), (RUN, (CountRedelivery(SourceSeq(1)),))])

    assert [found.delivery_count for found in store.events(RUN, 0, 10)] == [2, 4]


def test_an_event_may_be_counted_in_the_commit_that_stores_it(store: Store) -> None:
    store.commit([(RUN, (*events([1]), CountRedelivery(SourceSeq(1))))])

    assert store.events(RUN, 0, 1)[0].delivery_count == 2


def test_the_newest_lease_is_loaded_when_many_tickets_followed_it(store: Store) -> None:
    world = connected()
    store.commit([(RUN, tuple(world.written))])

    store.commit([(RUN, tuple(ticket(number) for number in range(100)))])

    loaded = restore(*store.load_run(RUN)).durable
    assert loaded.lease == world.run.durable.lease
    assert [held.credential_id for held in loaded.credentials] == [
        ticket(number).credential_id for number in range(100 - CREDENTIALS_MAX, 100)
    ]
    assert len(store.credentials(RUN)) == 102


def test_a_credential_is_changed_in_its_place(store: Store) -> None:
    first, second = ticket(1), ticket(2)
    store.commit([(RUN, (first, second))])

    used = msgspec.structs.replace(first, used=True)
    store.commit([(RUN, (used, msgspec.structs.replace(used, revoked=True)))])

    assert store.load_run(RUN)[1].credentials == (
        msgspec.structs.replace(first, used=True, revoked=True),
        second,
    )


def test_only_the_newest_results_are_loaded(store: Store) -> None:
    world = connected()
    for _ in range(SETTLED_RESULTS_MAX + 5):
        world.queue()
        world.say(1, result(world.run.durable.open_commands[0].command))
    store.commit([(RUN, tuple(world.written))])

    loaded = restore(*store.load_run(RUN)).durable

    assert loaded.settled == world.run.durable.settled
    assert len(store.commands(RUN)) == SETTLED_RESULTS_MAX + 5


def test_only_the_newest_digests_are_loaded(store: Store) -> None:
    count = DIGEST_WINDOW_EVENTS + 10
    for start in range(1, count + 1, 5_000):
        store.commit([(RUN, events(range(start, min(start + 5_000, count + 1))))])

    loaded = store.load_run(RUN)[1]

    assert loaded.first_digest_seq == 11
    assert len(loaded.digests) == 32 * DIGEST_WINDOW_EVENTS
    assert loaded.digests[:32] == digest_of(11)
    assert loaded.digests[-32:] == digest_of(count)


def test_no_key_is_in_what_readers_get(store: Store) -> None:
    put: PutCredential = ticket(1)
    store.commit([(RUN, (put,))])

    shown = repr((store.credentials(RUN), store.load_run(RUN)))

    assert put.auth_key.reveal().hex() not in shown
    assert repr(bytes(put.auth_key.reveal())) not in shown
    assert CredentialId(put.credential_id) in shown
