"""Every call of every save is struck once; a start then finds the old or the new state.

Source: faults S01-S10, S19, 5.12.
"""

import errno

import pytest

from tests.crash import sweep
from tests.crash.saves import BODIES, Machine, real_file
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
errnos = pytest.mark.parametrize(
    "number",
    [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.EINTR],
    ids=lambda number: errno.errorcode[number],
)


@modes
@pytest.mark.parametrize("uses_recover", [False, True], ids=["read", "recover"])
def test_save_leaves_old_or_new_state_when_process_dies_at_any_call(
    mode: Mode, uses_recover: bool
) -> None:
    machine = Machine(real_file, mode, uses_recover)

    assert list(sweep.process_deaths(machine)) == []


@modes
@pytest.mark.parametrize("uses_recover", [False, True], ids=["read", "recover"])
def test_save_leaves_old_or_new_state_when_power_is_lost_at_any_call(
    mode: Mode, uses_recover: bool
) -> None:
    machine = Machine(real_file, mode, uses_recover)

    assert list(sweep.power_losses(machine)) == []


@modes
def test_save_leaves_old_or_new_state_when_recovery_dies_as_well(mode: Mode) -> None:
    machine = Machine(real_file, mode, bodies=BODIES[1:2])

    assert list(sweep.death_pairs(machine)) == []


@errnos
@pytest.mark.parametrize("loses_power", [False, True], ids=["running", "power_lost"])
def test_save_keeps_its_promises_when_any_call_fails_once(number: int, loses_power: bool) -> None:
    machine = Machine(real_file)

    assert list(sweep.errors(machine, number, loses_power=loses_power)) == []


@errnos
def test_save_keeps_its_promises_when_every_call_from_one_on_fails(number: int) -> None:
    assert list(sweep.lasting_errors(Machine(real_file), number)) == []


@modes
def test_save_keeps_its_promises_when_reads_and_writes_are_short(mode: Mode) -> None:
    assert list(sweep.short_transfers(Machine(real_file, mode), errno.ENOSPC)) == []
