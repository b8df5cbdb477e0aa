"""Tests of how time reaches the core."""

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.limits import SHELL_SLEEP_MS_MAX, STANDING_DEADLINE_MS
from runnerd.core.actions import Action, Dial
from runnerd.core.inputs import Started
from runnerd.core.recovery import start
from runnerd.core.state import Boot
from runnerd.core.step import step
from runnerd.driving import Alarm, RunnerDriver
from tests.runnerd.io.test_dialling import SETTINGS


def at(mono_ms: int) -> Now:
    return Now(UnixMs(1_000_000 + mono_ms), MonoMs(mono_ms))


def started() -> RunnerDriver:
    """Return the driver of a new run whose first order waits for its first write."""
    boot = Boot(state_id="0" * 32, jitter_seed=1, now=at(0))
    driver: RunnerDriver = RunnerDriver(start(SETTINGS, None, boot), step)
    driver.feed(Started(), at(0))
    return driver


def actions(driver: RunnerDriver) -> list[Action]:
    found: list[Action] = []
    while (action := driver.next_action()) is not None:
        found.append(action)
    return found


def test_sleep_is_never_longer_than_a_suspended_machine_may_oversleep() -> None:
    driver = started()
    assert driver.next_write() is not None
    driver.wrote()
    assert [type(action) for action in actions(driver)] == [Dial]

    assert Alarm(driver).sleep_ms(at(0)) == SHELL_SLEEP_MS_MAX


def test_deadline_that_has_come_is_told_at_once_and_then_in_measure() -> None:
    driver = started()
    alarm = Alarm(driver)
    late = at(SETTINGS.bootstrap_deadline_ms)
    assert alarm.sleep_ms(late) == 0

    alarm.tell(late)

    # The end is ordered and waits for a write that nobody makes here.
    assert alarm.sleep_ms(late) in (STANDING_DEADLINE_MS, SHELL_SLEEP_MS_MAX)
