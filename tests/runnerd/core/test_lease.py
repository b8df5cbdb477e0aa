"""Lease time: renewal at half life, both clocks, and no extension that was not asked for."""

import msgspec
import pytest

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.envelope import Ack, LeaseRenewed
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch, SourceSeq
from runnerd.core import step
from runnerd.core.actions import CloseConnection, Exit, SendRenewal
from runnerd.core.inputs import TimePassed
from tests.runnerd.core.world import LEASE_MS, World, connected


def renewed(world: World, extension_ms: int = LEASE_MS) -> LeaseRenewed:
    lease = world.runner.live.lease
    assert lease is not None
    return LeaseRenewed(
        previous_expires_at_unix_ms=lease.expires_at_unix_ms,
        connection_lease_expires_at_unix_ms=world.now.unix_ms + extension_ms,
        connection_lease_revocation_epoch=RevocationEpoch(lease.revocation_epoch),
    )


def test_renewal_is_asked_for_at_half_life_and_not_before() -> None:
    world = connected()

    early = world.later(LEASE_MS // 2 - 1, TimePassed())
    due = world.later(1, TimePassed())

    assert early == []
    assert [type(action) for action in due] == [SendRenewal]


def test_unanswered_renewal_is_asked_for_again_within_its_bound() -> None:
    world = connected()
    world.later(LEASE_MS // 2, TimePassed())

    early = world.later(4_999, TimePassed())
    again = world.later(1, TimePassed())

    assert early == []
    assert [type(action) for action in again] == [SendRenewal]


def test_renewed_lease_lives_on_and_is_renewed_at_its_new_half_life() -> None:
    world = connected()
    for _ in range(100):
        asked = world.later(LEASE_MS // 2, TimePassed())
        assert [type(action) for action in asked] == [SendRenewal]
        world.control(renewed(world))

    assert world.exits() == []
    assert world.runner.live.lease is not None


def test_controller_that_offers_no_renewal_is_never_asked() -> None:
    world = World()
    world.connect(renewal_version=None)

    assert world.later(LEASE_MS - 1, TimePassed()) == []


def test_unsolicited_extension_closes_and_changes_nothing() -> None:
    world = connected()
    lease = world.runner.live.lease

    actions = world.control(renewed(world))

    assert actions == [
        CloseConnection(world.binding.connection_id, ErrorCode.LEASE_RENEWAL_UNSOLICITED)
    ]
    assert world.runner.live.lease == lease


@pytest.mark.parametrize(
    "change",
    [
        {"previous_expires_at_unix_ms": 1},
        {"connection_lease_revocation_epoch": RevocationEpoch(9)},
        {"connection_lease_expires_at_unix_ms": 1},
    ],
)
def test_answer_to_another_renewal_closes(change: dict[str, object]) -> None:
    world = connected()
    world.later(LEASE_MS // 2, TimePassed())

    actions = world.control(msgspec.structs.replace(renewed(world), **change))

    assert [action.code for action in actions if isinstance(action, CloseConnection)] == [
        ErrorCode.LEASE_RENEWAL_UNSOLICITED
    ]


def test_nothing_is_applied_at_the_very_moment_of_expiry() -> None:
    world = connected()
    world.prepare()
    world.mono += LEASE_MS

    world.control(Ack(SourceSeq(1)))

    assert world.durable.acked_source_seq == 0
    assert world.exits() == [Exit(ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP)]


def test_wall_clock_that_went_back_does_not_extend_the_lease() -> None:
    world = connected()
    later = Now(UnixMs(0), MonoMs(world.mono + LEASE_MS))

    after = step.step(world.runner, TimePassed(), later)

    assert after.state.live.lease is None


def test_wall_clock_that_jumped_ahead_ends_the_lease_early() -> None:
    world = connected()
    world.prepare()
    lease = world.runner.live.lease
    assert lease is not None
    jumped = Now(UnixMs(lease.expires_at_unix_ms), world.now.mono_ms)

    after = step.step(world.runner, world.received(Ack(SourceSeq(1))), jumped)

    assert after.state.live.lease is None
    assert after.state.durable.acked_source_seq == 0


def test_deadline_is_measured_from_the_controllers_clock() -> None:
    world = World()
    skewed = msgspec.structs.replace(world.welcome(), sent_at_unix_ms=world.now.unix_ms + 20_000)

    world.feed(skewed)

    lease = world.runner.live.lease
    assert lease is not None
    assert lease.deadline_mono_ms == world.mono + LEASE_MS - 20_000


def test_next_deadline_names_the_renewal_and_then_the_expiry() -> None:
    world = connected()

    assert step.next_deadline(world.runner) == world.mono + LEASE_MS // 2
