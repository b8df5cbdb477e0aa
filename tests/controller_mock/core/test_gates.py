"""Nothing that claims a durable fact leaves before that fact is committed (D2, D3)."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from controller_mock.core.actions import (
    Action,
    Change,
    CountDelivery,
    PutCommand,
    PutCredential,
    PutEvent,
    PutResult,
    PutRun,
    Reply,
    SendControl,
)
from controller_mock.core.inputs import Input, RevokeRequested
from controller_mock.core.state import Run, Step
from controller_mock.core.step import step
from protocol.base.clock import Now
from protocol.base.revision import Gated, Revision, Transition
from protocol.envelope import (
    Ack,
    CommandResultAck,
    Deliver,
    LeaseRenewed,
    Revoke,
    Welcome,
)
from protocol.ids import SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import (
    START,
    TICKET,
    World,
    challenge_in,
    connected,
    event,
    messages_in,
    renewal,
    result,
    ticket_offer,
)

CLAIMS = frozenset(
    {"Ack", "CommandResultAck", "Deliver", "LeaseRenewed", "Reply", "Revoke", "Welcome"}
)


def _unproven(written: list[Change], action: Action) -> str | None:
    """Return the name of a claim that the committed changes do not bear out."""
    if isinstance(action, Reply):
        queued = {change.controller_seq for change in written if isinstance(change, PutCommand)}
        good = action.controller_seq is None or action.controller_seq in queued
        return None if good else "Reply"
    if not isinstance(action, SendControl):
        return None
    match message := action.message:
        case Ack():
            good = message.acked_source_seq <= _last(written, PutEvent)
        case Welcome():
            leases = [c for c in written if isinstance(c, PutCredential) and c.kind == "lease"]
            good = any(c.lease_id == message.connection_lease_id for c in leases)
        case LeaseRenewed():
            good = message.connection_lease_expires_at_unix_ms in {
                c.expires_at_unix_ms for c in written if isinstance(c, PutCredential)
            }
        case Deliver():
            counted = [c for c in written if c == CountDelivery(message.command.controller_seq)]
            good = message.delivery <= len(counted)
        case CommandResultAck():
            good = message.controller_seq in {
                c.controller_seq for c in written if isinstance(c, PutResult)
            }
        case Revoke():
            rows = [c for c in written if isinstance(c, PutRun)]
            good = message.revocation_epoch in {row.revocation_epoch for row in rows}
        case _:
            good = True
    return None if good else type(message).__name__


def _last(written: list[Change], kind: type[PutEvent]) -> int:
    return max((change.source_seq for change in written if isinstance(change, kind)), default=0)


class _Watched(World):
    """A world in which everything that may leave does so at once, before any write."""

    def __init__(self, with_step: Callable[[Run, Input, Now], Step]) -> None:
        super().__init__(with_step=with_step)
        self.unproven: set[str] = set()

    def drain(self) -> list[Action]:
        left = super().drain()
        found = (_unproven(self.written, action) for action in left)
        self.unproven.update(name for name in found if name is not None)
        return left


def _live_through_everything(world: _Watched) -> set[str]:
    """Make every claim that there is, with a drain after each input, and return false ones."""
    world.issue(TICKET)
    offer = ticket_offer()
    frame = challenge_in(world.hello(1, offer))
    world.feed(world.answer(1, offer, TICKET, frame))
    world.feed(world.said(1, event(1)))
    world.feed(world.said(1, event(2)))
    world.feed(world.requested())
    world.feed(world.said(1, result(world.run.durable.open_commands[0].command)))
    world.pass_time(1_000)
    world.feed(renewal(1, START.unix_ms + 30_000))
    world.feed(world.requested("runner.shutdown"))
    world.feed(world.said(1, result(world.run.durable.open_commands[0].command)))
    world.feed(RevokeRequested(world.request()))
    return world.unproven


def _opened(run: Run, stimulus: Input, now: Now) -> Step:
    """Return what `step` returns, with every gate open."""
    found = step(run, stimulus, now)
    actions = tuple(Gated(gated.action) for gated in found.actions)
    return Transition(found.state, actions, found.writes)


def _one_too_early(run: Run, stimulus: Input, now: Now) -> Step:
    """Return what `step` returns, gated on the revision before."""
    found = step(run, stimulus, now)
    actions = tuple(
        Gated(gated.action, Revision(max(0, gated.after - 1))) for gated in found.actions
    )
    return Transition(found.state, actions, found.writes)


def test_every_claim_is_committed_before_it_leaves() -> None:
    world = _Watched(step)

    assert _live_through_everything(world) == set()

    sent = {type(message).__name__ for message in messages_in(world.sent)}
    assert sent >= CLAIMS - {"Reply"}


def test_the_check_names_every_claim_when_the_gates_are_taken_out() -> None:
    assert _live_through_everything(_Watched(_opened)) == CLAIMS


def test_the_check_names_the_ack_when_its_gate_is_one_revision_too_early() -> None:
    assert "Ack" in _live_through_everything(_Watched(_one_too_early))


def test_an_ack_names_what_is_committed_when_more_was_received_meanwhile() -> None:
    world = connected()
    for seq in (1, 2, 3):
        world.driver.feed(world.said(1, event(seq)), world.now)
    write = world.driver.next_write()
    assert write is not None
    for seq in (4, 5, 6):
        world.driver.feed(world.said(1, event(seq)), world.now)
    assert world.drain() == []

    world.driver.wrote()

    assert messages_in(world.drain()) == [Ack(SourceSeq(seq)) for seq in (1, 2, 3)]
    assert messages_in(world.settle()) == [Ack(SourceSeq(seq)) for seq in (4, 5, 6)]


def test_nothing_leaves_when_the_write_fails() -> None:
    world = connected()
    world.driver.feed(world.said(1, event(1)), world.now)
    world.driver.feed(world.requested(), world.now)
    assert world.driver.next_write() is not None

    dropped = world.driver.write_failed()

    assert world.drain() == []
    assert {type(action) for action in dropped} == {SendControl, Reply}


DURABLE_CHANGES: Final[tuple[Callable[[World], Input], ...]] = (
    lambda world: world.said(1, event(1)),
    lambda world: world.requested(),
    lambda world: RevokeRequested(world.request()),
)


@pytest.mark.parametrize("stimulus_of", DURABLE_CHANGES, ids=["event", "command", "revoke"])
def test_only_a_durable_change_raises_the_revision(
    stimulus_of: Callable[[World], Input],
) -> None:
    world = connected()

    found = step(world.run, stimulus_of(world), world.now)

    assert found.state.revision == world.run.revision + 1
    assert found.writes != ()


def test_no_revision_is_raised_when_nothing_durable_changes() -> None:
    world = connected()
    world.issue(Secret("another"))
    before = world.run

    world.hello(2, ticket_offer(Secret("another")))
    world.say(1, event(9))

    assert world.run.revision == before.revision
    assert msgspec.structs.asdict(world.run)["durable"] == before.durable
