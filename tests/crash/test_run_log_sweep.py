"""No false success of a run's log: a crash, a power loss or an error at every disk call."""

import errno

import pytest

from runnerd.runs.run_log import LogFormat
from tests.crash.log_sweep import deaths, errors, lasting_errors, short_transfers
from tests.crash.run_logs import LONG, SHORT, LogMachine
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

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
