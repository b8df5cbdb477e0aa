"""What a run remembers, and what it never shows."""

import msgspec
import pytest

from controller_mock.core.inputs import ConnectionHandle, ConnectionLost, RevokeRequested
from controller_mock.core.state import LiveRun, Run, new_run, restore, run_row
from protocol.base.revision import Revision
from protocol.credentials import auth_key
from protocol.errors import ErrorCode
from protocol.ids import RunId, SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    CONFIG,
    IDENTITY,
    START,
    TICKET,
    World,
    closes_in,
    connected,
    event,
    lease_of,
    lease_offer,
    lease_token,
    messages_in,
    result,
    welcome_in,
)
from tests.storage.memory import MemoryStore

RUN_ID = RunId(IDENTITY.run_id)


def restored(world: World) -> Run:
    """Return the world's run as a new process loads it."""
    store = MemoryStore()
    store.create_run(CONFIG)
    store.commit([(RUN_ID, tuple(world.written))])
    return restore(*store.load_run(RUN_ID))


def test_a_run_is_the_same_after_a_restart_but_for_what_was_live() -> None:
    world = connected("turn.start", "turn.stop", "runner.drain")
    for seq in range(1, 300):
        world.say(1, event(seq))
    world.say(1, result(world.run.durable.open_commands[0].command))
    world.say(1, event(7))
    world.issue(Secret("another"))

    again = restored(world)

    assert again == Run(CONFIG, Revision(0), world.driver.committed.durable, LiveRun())


def test_a_new_run_is_stored_as_nothing() -> None:
    store = MemoryStore()
    store.create_run(CONFIG)

    assert restore(*store.load_run(RUN_ID)) == new_run(CONFIG)


def test_a_lease_outlives_the_process_and_is_bounded_by_the_local_clock_again() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    again = World(restored(world))
    again.pass_time(10_000)

    welcome = welcome_in(again.reconnect(2, lease))

    assert welcome.connection_lease_id == lease.lease_id
    again.pass_time(20_000, wall_ms=0)
    assert closes_in(again.say(2, event(1)))[0].code is ErrorCode.CREDENTIAL_EXPIRED


def test_the_local_bound_of_an_old_lease_is_its_ttl_when_the_wall_clock_was_set_back() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    again = World(restored(world))
    again.pass_time(0, wall_ms=-3_600_000)
    again.reconnect(2, lease)

    assert again.run.live.deadlines == {
        lease_offer(lease).credential_id: START.mono_ms + CONFIG.lease_ttl_ms
    }


def test_a_latch_and_a_revocation_outlive_the_process() -> None:
    world = connected()
    world.say(1, event(1))
    world.say(1, event(1, "other"))
    world.feed(RevokeRequested(world.request()))

    again = restored(world)

    assert again.durable.integrity_fault == "event_identity_conflict"
    assert again.durable.revocation_epoch == 1
    assert again.durable.lease is not None
    assert again.durable.lease.revoked


def test_a_redelivery_is_judged_after_a_restart_as_before() -> None:
    world = connected()
    lease = lease_of(1, welcome_in(world.sent))
    for seq in (1, 2):
        world.say(1, event(seq))
    again = World(restored(world))
    again.reconnect(2, lease)

    assert len(messages_in(again.say(2, event(1)))) == 1
    assert closes_in(again.say(2, event(2, "other")))[0].code is (ErrorCode.EVENT_IDENTITY_CONFLICT)


def test_the_row_follows_every_counter() -> None:
    world = connected("turn.start")
    world.say(1, event(1))
    world.feed(ConnectionLost(ConnectionHandle(1)))

    row = run_row(world.run.durable)

    assert (row.acked_source_seq, row.last_controller_seq, row.connection_count) == (
        SourceSeq(1),
        1,
        1,
    )


def test_no_token_or_key_is_shown_when_state_and_actions_are_printed() -> None:
    world = connected("turn.start")

    shown = repr((world.run, world.sent, world.written))

    for secret in (TICKET, lease_token(1)):
        text = str(secret.reveal(), "utf-8")
        assert text not in shown
        assert auth_key(secret).reveal().hex() not in shown
    assert repr(bytes(auth_key(TICKET).reveal())) not in shown


def test_a_configuration_is_refused_when_it_cannot_be_spoken() -> None:
    changes: tuple[dict[str, object], ...] = (
        {"runner_digest": "sha256:AB"},
        {"runner_version": ""},
        {"lease_ttl_ms": 0},
        {"protocol_max": 3},
        {"identity": msgspec.structs.replace(IDENTITY, run_id="a run")},
        {"identity": msgspec.structs.replace(IDENTITY, item_id="")},
    )
    for wrong in changes:
        with pytest.raises(ValueError):
            msgspec.structs.replace(CONFIG, **wrong)
