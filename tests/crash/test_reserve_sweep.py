"""Every call of every save into the reserve is struck once, on a disk that is full.

Source: faults S05-S07, S12, S13, R15, 5.12.
"""

import errno

import pytest

from tests.crash import sweep
from tests.crash.saves import BODIES, Machine, reserved_file
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


@modes
def test_rewrite_in_the_reserve_leaves_old_or_new_state_when_process_dies_at_any_call(
    mode: Mode,
) -> None:
    assert list(sweep.process_deaths(Machine(reserved_file, mode, bodies=BODIES[1:2]))) == []


@modes
def test_rewrite_in_the_reserve_leaves_old_or_new_state_when_power_is_lost_at_any_call(
    mode: Mode,
) -> None:
    assert list(sweep.power_losses(Machine(reserved_file, mode, bodies=BODIES[1:2]))) == []


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ENOSPC, errno.EDQUOT], ids=lambda number: errno.errorcode[number]
)
@pytest.mark.parametrize("loses_power", [False, True], ids=["running", "power_lost"])
def test_rewrite_in_the_reserve_keeps_its_promises_when_any_call_fails_once(
    number: int, loses_power: bool
) -> None:
    machine = Machine(reserved_file, bodies=BODIES[1:2])

    assert list(sweep.errors(machine, number, loses_power=loses_power)) == []


@modes
def test_rewrite_in_the_reserve_keeps_its_promises_when_writes_are_short(mode: Mode) -> None:
    machine = Machine(reserved_file, mode, bodies=BODIES[1:2])

    assert list(sweep.short_transfers(machine, errno.ENOSPC)) == []
