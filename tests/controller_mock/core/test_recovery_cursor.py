"""A run from a sparse checkpoint takes over its runner's cursor; one with its history never."""

import msgspec

from controller_mock.core.state import Run, StoredRun, restore, run_row
from protocol.envelope import Resume
from protocol.errors import ErrorCode
from protocol.ids import SourceSeq
from tests.controller_mock.core.world import (
    CONFIG,
    TICKET,
    World,
    challenge_in,
    closes_in,
    connected,
    event,
    ticket_offer,
    welcome_in,
)


def stored(acked: int, *, is_sparse: bool) -> Run:
    before = connected().run.durable
    row = msgspec.structs.replace(run_row(before), acked_source_seq=SourceSeq(acked))
    first = SourceSeq(acked + 1)
    return restore(CONFIG, StoredRun(row=row, first_digest_seq=first, is_sparse=is_sparse))


def bootstrapped(run: Run, runner_acked: int) -> World:
    world = World(run)
    world.issue()
    offer = msgspec.structs.replace(
        ticket_offer(),
        resume=Resume(
            last_controller_command_seq=0,
            next_source_event_seq=runner_acked + 1,
            acked_source_seq=runner_acked,
        ),
    )
    frame = challenge_in(world.hello(1, offer))
    world.feed(world.answer(1, offer, TICKET, frame))
    return world


def test_sparse_run_adopts_the_proven_cursor_and_goes_on_contiguously() -> None:
    world = bootstrapped(stored(2, is_sparse=True), runner_acked=7)

    assert welcome_in(world.sent).acked_source_seq == 7
    assert run_row(world.run.durable) in world.written
    world.say(1, event(8))
    assert world.run.durable.acked_source_seq == 8
    assert [close.code for close in closes_in(world.say(1, event(10)))] == [ErrorCode.EVENT_GAP]


def test_sparse_run_judges_what_came_before_its_checkpoint_as_unknown() -> None:
    world = bootstrapped(stored(2, is_sparse=True), runner_acked=7)

    [close] = closes_in(world.say(1, event(7)))
    assert close.code is ErrorCode.EVENT_WINDOW_EXCEEDED


def test_sparse_run_keeps_its_own_cursor_when_it_knows_more() -> None:
    world = bootstrapped(stored(9, is_sparse=True), runner_acked=7)

    assert welcome_in(world.sent).acked_source_seq == 9


def test_run_with_its_whole_history_adopts_nothing_so_that_the_runner_refuses_it() -> None:
    world = bootstrapped(stored(2, is_sparse=False), runner_acked=7)

    assert welcome_in(world.sent).acked_source_seq == 2


def test_cursor_is_not_adopted_before_the_proof() -> None:
    world = World(stored(2, is_sparse=True))
    world.issue()
    offer = msgspec.structs.replace(
        ticket_offer(),
        resume=Resume(last_controller_command_seq=0, next_source_event_seq=8, acked_source_seq=7),
    )

    world.hello(1, offer)

    assert world.run.durable.acked_source_seq == 2
