"""Three weeks of one run: nothing is started twice, nothing expires, nothing grows (T04, R21)."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from protocol.limits import FRAMES_PER_KEY_MAX
from tests.soak.ends import Broken
from tests.soak.weeks import DAY_MS, LEASE_MS, WEEK_MS, WEEKS, Told, Weeks

ROOT = Path(__file__).resolve().parents[2]
KIB_MAX = 1_024


def test_three_weeks_pass_without_a_second_program_or_an_expired_lease() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.weeks"], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    told = msgspec.json.decode(done.stdout, type=Told)
    assert told.virtual_days == WEEKS * 7
    assert told.programs_started == 1
    half_lives = WEEKS * WEEK_MS // (LEASE_MS // 2)
    assert 0.95 * half_lives < told.renewals < 1.1 * half_lives
    assert told.lost_replies > 50
    assert told.keys_outlived >= 6
    assert told.connections > told.lost_replies + told.keys_outlived + 50
    assert 23 < told.oldest_key_hours <= 24
    assert told.frames_per_key_max < FRAMES_PER_KEY_MAX
    assert told.events > WEEKS * 7 * 4
    first, *others = told.kib_after_each_week
    assert max(others) - first < KIB_MAX


class Deaf(Weeks):
    """Weeks in which the controller hears nothing any more, once the turn is started."""

    def _pump(self) -> None:
        if not self.is_deaf:
            super()._pump()

    is_deaf = False


def test_weeks_are_over_when_nobody_renews_the_lease() -> None:
    weeks = Deaf(seed=1)
    weeks.begin()
    weeks.is_deaf = True

    with pytest.raises(Broken, match="lease_expired_requires_bootstrap"):
        weeks.live(DAY_MS)
