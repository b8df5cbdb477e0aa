"""No false success of a run's log: a crash, a power loss or an error at every disk call."""

import errno

import pytest

from runnerd.runs.run_log import LogFormat
from tests.crash.log_sweep import Start, begin, deaths, errors, lasting_errors, short_transfers
from tests.crash.run_logs import ENDING, LONG, SHORT, LogMachine, LogWorld
from tests.simulator.choices import Tape
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

FULL = LogMachine(plan=ENDING, fills=True)

MACHINES = [
    pytest.param(LogMachine(mode=mode, log_format=log_format, plan=plan), id=name)
    for name, mode, log_format, plan in (
        ("chained", Mode.STRICT, LogFormat.CHAINED, SHORT),
        ("chained_long", Mode.STRICT, LogFormat.CHAINED, LONG),
        ("chained_ext4", Mode.EXT4_LIKE, LogFormat.CHAINED, LONG),
        ("plain", Mode.STRICT, LogFormat.PLAIN, SHORT),
    )
]


@pytest.mark.parametrize("machine", MACHINES)
def test_log_keeps_its_promises_when_the_process_dies(machine: LogMachine) -> None:
    assert list(deaths(machine, loses_power=False)) == []


@pytest.mark.parametrize("machine", MACHINES)
def test_log_keeps_its_promises_when_power_is_lost(machine: LogMachine) -> None:
    assert list(deaths(machine, loses_power=True)) == []


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR])
def test_log_keeps_its_promises_when_a_call_fails(number: int, loses_power: bool) -> None:
    assert list(errors(LogMachine(plan=LONG), number, loses_power=loses_power)) == []


def test_log_keeps_its_promises_when_calls_go_on_failing() -> None:
    assert list(lasting_errors(LogMachine(plan=LONG), errno.EIO)) == []


def test_log_keeps_its_promises_when_transfers_are_short() -> None:
    assert list(short_transfers(LogMachine(plan=LONG), errno.ENOSPC)) == []


def test_run_ends_in_its_room_when_the_disk_is_full_at_its_start() -> None:
    world = LogWorld(FULL, Tape())
    begin(world, Start.LOG)
    found = world.promises.attempted

    world.run_process(ENDING)

    assert world.promises.kept == found + len(ENDING.appends)
    assert world.violations == []


@pytest.mark.parametrize("loses_power", [False, True])
def test_full_disk_keeps_its_promises_when_the_process_dies(loses_power: bool) -> None:
    assert list(deaths(FULL, loses_power=loses_power)) == []


def test_full_disk_keeps_its_promises_when_a_call_fails_as_well() -> None:
    assert list(errors(FULL, errno.EIO, loses_power=True)) == []
    assert list(lasting_errors(FULL, errno.EIO)) == []
    assert list(short_transfers(FULL, errno.ENOSPC)) == []
