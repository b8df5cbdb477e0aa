from controller_mock.core.state import new_run
from controller_mock.deadlines import Deadlines
from controller_mock.run_slot import RunSlot
from protocol.base.clock import MonoMs
from tests.controller_mock.served import run_config


def slots(count: int) -> list[RunSlot]:
    return [RunSlot(new_run(run_config(f"run-{n}"))) for n in range(count)]


async def test_runs_are_due_in_the_order_of_their_deadlines() -> None:
    deadlines = Deadlines()
    first, second, third = slots(3)
    for slot, at in ((first, 30), (second, 10), (third, 20)):
        deadlines.set(slot, MonoMs(at))

    assert deadlines.earliest() == 10
    assert deadlines.take_due(MonoMs(20)) == [second, third]
    assert (deadlines.earliest(), second.deadline) == (30, None)


async def test_replaced_and_withdrawn_deadlines_never_come() -> None:
    deadlines = Deadlines()
    moved, withdrawn = slots(2)
    deadlines.set(moved, MonoMs(10))
    deadlines.set(withdrawn, MonoMs(11))

    deadlines.set(moved, MonoMs(50))
    deadlines.set(withdrawn, None)

    assert deadlines.earliest() == 50
    assert deadlines.take_due(MonoMs(49)) == []
    assert deadlines.take_due(MonoMs(50)) == [moved]
    assert deadlines.earliest() is None


async def test_deadline_that_moves_away_and_back_comes_once() -> None:
    deadlines = Deadlines()
    [slot] = slots(1)
    for at in (10, 20, 10):
        deadlines.set(slot, MonoMs(at))

    assert deadlines.take_due(MonoMs(100)) == [slot]
    assert deadlines.take_due(MonoMs(100)) == []
