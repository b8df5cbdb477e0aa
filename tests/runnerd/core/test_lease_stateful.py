"""Any order of time, clock steps, renewals and reconnects, against two numbers (R10, I24)."""

from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.envelope import Ack, LeaseRenewed
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch, SourceSeq
from protocol.limits import RENEWAL_RETRY_MS_MAX
from runnerd.core.actions import Action, CloseConnection, Exit, SendRenewal
from runnerd.core.inputs import ConnectionLost, TimePassed
from tests.effort import cases
from tests.runnerd.core.world import LEASE_MS, SETTINGS, WALL, World

PATIENT: Final = msgspec.structs.replace(SETTINGS, reconnect_grace_ms=None)
PAUSES_MS: Final = st.sampled_from((1, 100, 2_500, 4_999, 5_000, 5_001, 14_999, 15_000, 15_001))
STEPS_MS: Final = st.sampled_from((-3_600_000, -20_000, -1, 1, 2_000, 9_000, 29_999, 3_600_000))


class Stepped(World):
    """A world whose wall clock is wrong by an amount that may change."""

    def __init__(self) -> None:
        self.error_ms = 0
        super().__init__(settings=PATIENT)

    @property
    def now(self) -> Now:
        return Now(UnixMs(WALL + self.mono + self.error_ms), MonoMs(self.mono))


class Lease(RuleBasedStateMachine):
    """The model: when the authority ends by either clock, and what was asked for last.

    The controller's clock is right; the runner's wall clock is what is stepped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = Stepped()
        self.ends_mono = 0
        self.ends_wall = 0
        self.asked: int | None = None
        """The expiry that the outstanding renewal observed."""
        self.asked_at = 0
        self.answered: LeaseRenewed | None = None
        self.is_over = False
        self.welcome(LEASE_MS)

    @property
    def is_connected(self) -> bool:
        return self.world.runner.live.connection is not None and not self.is_over

    @property
    def controller_ms(self) -> int:
        return WALL + self.world.mono

    def welcome(self, lease_ms: int) -> None:
        """Connect; what the controller grants is counted from its own clock."""
        expiry = self.controller_ms + lease_ms if not self.ends_wall else self.ends_wall
        connected = self.world.welcome(bootstrap=self.world.runner.live.lease is None)
        granted = msgspec.structs.replace(
            connected.welcome, connection_lease_expires_at_unix_ms=expiry
        )
        facts = msgspec.structs.replace(
            connected, welcome=granted, sent_at_unix_ms=self.controller_ms
        )
        self.ends_wall, self.ends_mono = expiry, self.world.mono + expiry - self.controller_ms
        # What was asked on another connection is not outstanding on this one.
        self.asked = self.answered = None
        self.sees(self.world.feed(facts))

    def sees(self, actions: list[Action]) -> None:
        """Judge what left, and note a renewal."""
        now = self.world.now
        over = now.mono_ms >= self.ends_mono or now.unix_ms >= self.ends_wall
        self.is_over = self.is_over or over
        for action in actions:
            if isinstance(action, SendRenewal):
                assert not over
                observed = action.renewal.connection_lease_expires_at_unix_ms
                assert observed == self.ends_wall
                if self.asked == observed:
                    assert now.mono_ms > self.asked_at
                    spacing = min(RENEWAL_RETRY_MS_MAX, (self.ends_mono - self.asked_at) // 2)
                    assert now.mono_ms - self.asked_at >= min(spacing, RENEWAL_RETRY_MS_MAX)
                self.asked, self.asked_at = observed, now.mono_ms

    def renewed(self, expiry: int, previous: int, epoch: int = 0) -> LeaseRenewed:
        return LeaseRenewed(
            previous_expires_at_unix_ms=previous,
            connection_lease_expires_at_unix_ms=expiry,
            connection_lease_revocation_epoch=RevocationEpoch(epoch),
        )

    def told(self, answer: LeaseRenewed) -> list[Action]:
        received = self.world.received(answer)
        sent = msgspec.structs.replace(received, sent_at_unix_ms=self.controller_ms)
        left = self.world.feed(sent)
        self.sees(left)
        return left

    def closed(self, left: list[Action]) -> None:
        assert [a.code for a in left if isinstance(a, CloseConnection)] == [
            ErrorCode.LEASE_RENEWAL_UNSOLICITED
        ]
        self.lose()

    @precondition(lambda self: not self.is_over)
    @rule(pause_ms=PAUSES_MS)
    def let_time_pass(self, pause_ms: int) -> None:
        self.world.mono += pause_ms
        self.sees(self.world.feed(TimePassed()))

    @precondition(lambda self: not self.is_over)
    @rule(step_ms=STEPS_MS)
    def step_the_wall_clock(self, step_ms: int) -> None:
        self.world.error_ms += step_ms
        self.sees(self.world.feed(TimePassed()))

    @precondition(lambda self: self.is_connected and self.asked == self.ends_wall)
    @rule(extension_ms=st.sampled_from((LEASE_MS, LEASE_MS // 2)))
    def answer(self, extension_ms: int) -> None:
        expiry = max(self.ends_wall, self.controller_ms + extension_ms)
        answer = self.renewed(expiry, self.ends_wall)
        before = self.world.now

        self.told(answer)

        if not self.is_over or before.mono_ms < self.ends_mono:
            self.ends_wall = expiry
            self.ends_mono = self.world.mono + expiry - self.controller_ms
            self.answered, self.asked = answer, None
            # A wall clock that is ahead may end even the new lease at once.
            self.is_over = self.is_over or self.world.now.unix_ms >= self.ends_wall

    @precondition(lambda self: self.is_connected and self.answered is not None)
    @rule()
    def answer_again(self) -> None:
        assert self.answered is not None
        lease = self.world.runner.live.lease

        self.told(self.answered)

        assert self.is_connected
        assert self.world.runner.live.lease == lease

    @precondition(lambda self: self.is_connected and self.asked is None)
    @rule()
    def answer_unasked(self) -> None:
        self.closed(self.told(self.renewed(self.ends_wall + 1_000, self.ends_wall)))

    @precondition(lambda self: self.is_connected and self.asked is not None)
    @rule(lie=st.sampled_from(("previous", "epoch", "shorter")))
    def answer_something_else(self, lie: str) -> None:
        honest = self.renewed(self.ends_wall + 1_000, self.ends_wall)
        changes: dict[str, dict[str, object]] = {
            "previous": {"previous_expires_at_unix_ms": self.ends_wall - 1},
            "epoch": {"connection_lease_revocation_epoch": RevocationEpoch(7)},
            "shorter": {"connection_lease_expires_at_unix_ms": self.ends_wall - 1},
        }
        self.closed(self.told(msgspec.structs.replace(honest, **changes[lie])))

    @precondition(lambda self: self.is_connected)
    @rule()
    def lose(self) -> None:
        connection = self.world.binding.connection_id
        self.sees(self.world.feed(ConnectionLost(connection, ErrorCode.CONNECTION_LOST)))

    @precondition(lambda self: not self.is_connected and not self.is_over)
    @rule()
    def reconnect(self) -> None:
        self.welcome(LEASE_MS)

    @precondition(lambda self: self.is_over)
    @rule()
    def say_something_too_late(self) -> None:
        before = self.world.durable
        self.world.control(Ack(SourceSeq(0)))
        assert self.world.durable.acked_source_seq == before.acked_source_seq

    @invariant()
    def the_lease_is_in_force_exactly_while_both_clocks_say_so(self) -> None:
        lease = self.world.runner.live.lease
        if self.is_over:
            assert lease is None
            assert self.world.exits() == [Exit(ErrorCode.LEASE_EXPIRED_REQUIRES_BOOTSTRAP)]
        else:
            assert lease is not None
            assert lease.expires_at_unix_ms == self.ends_wall
            assert lease.deadline_mono_ms == self.ends_mono


TestLease = Lease.TestCase
TestLease.settings = settings(max_examples=cases(40), stateful_step_count=25, deadline=None)
