"""Batches: a failing seed is printed when it fails, whatever ends the batch."""

import os
import signal
import subprocess
import sys

import pytest

from tests.simulator import batch
from tests.simulator.draws import Draws
from tests.simulator.profile import Profile
from tests.simulator.report import ROOT, say_failed
from tests.simulator.stacks import STACKS
from tests.simulator.verdict import Outcome, Violation

FAILING = 3
LIMIT_S = 300.0
"""So that a batch that nothing ends does not hold up the others."""


def run_failing(
    seed: int,
    recording: object = None,
    disabled: object = (),
    steps_max: int = 0,
    needed: object = (),
) -> Outcome:
    """Fail at one seed; the seed behind it ends whoever waits for the batch."""
    outcome = Outcome("short", Draws(seed), Profile({}))
    if seed == FAILING:
        outcome.violation = Violation("I99", "planted")
    if seed == FAILING + 1:
        # An interrupt is ignored by what a shell runs in the background.
        os.kill(os.getppid(), signal.SIGTERM)
    return outcome


def test_failure_is_told_with_its_seed_before_the_chunk_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(STACKS, "short", run_failing)
    told: list[tuple[str, int, str]] = []

    def failed(stack: str, seed: int, words: str) -> None:
        told.append((stack, seed, words))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.run_chunk("short", range(100), failed=failed)

    assert told == [("short", FAILING, "I99 planted")]


def test_failing_seed_is_printed_with_a_replay_line_when_the_batch_is_interrupted() -> None:
    script = (
        "from tests.simulator import __main__ as cli, stacks, test_batch\n"
        "stacks.STACKS['short'] = test_batch.run_failing\n"
        "raise SystemExit(cli.main(['--stack', 'short', '--seeds', '0..99999999']))\n"
    )

    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )

    assert run.returncode == 130
    assert "FAIL I99 planted  stack=short  seed=3\n" in run.stdout
    assert "./dev simulate --stack short --seed 3\n" in run.stdout
    assert "short: " in run.stdout.splitlines()[-2]
    assert run.stderr == ""


def test_failure_is_printed_in_one_piece(capfd: pytest.CaptureFixture[str]) -> None:
    say_failed("full", 7, "I1 event 3 is lost")

    assert capfd.readouterr().out == (
        "FAIL I1 event 3 is lost  stack=full  seed=7\n"
        "  replay:    ./dev simulate --stack full --seed 7\n"
    )
