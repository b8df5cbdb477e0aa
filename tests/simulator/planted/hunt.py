"""The hunt for planted bugs: a copy of the tree, one bug in it, and histories until it shows.

It decides whether a bug was killed: in time, and by an invariant that it breaks. It refuses
to run the copy in this process.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulator.planted import found_bugs, link_bugs, run_bugs, runner_bugs
from tests.simulator.planted.bug import Bug, Stale

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = ("protocol", "runnerd", "controller_mock", "tests")
BUDGET_S: Final = 60.0
"""Processor time of each worker: a busy machine makes no bug live longer."""
WAITS_MAX: Final = 10
"""How much longer than its budget a hunt may take."""
BUGS: Final[tuple[Bug, ...]] = (
    *runner_bugs.BUGS,
    *link_bugs.BUGS,
    *run_bugs.BUGS,
    *found_bugs.BUGS,
)
ELSEWHERE: Final = link_bugs.ELSEWHERE


@dataclass(frozen=True)
class Verdict:
    """What became of one bug."""

    bug: Bug
    first: str
    """The first failure: the number of an invariant and words, empty if there was none."""
    seconds: float
    histories: int = 0

    @property
    def is_killed(self) -> bool:
        """True if the first failure names an invariant that the bug breaks."""
        return self.first.split(" ")[0] in self.bug.dies_by

    def __str__(self) -> str:
        fate = "killed" if self.is_killed else "NOT KILLED"
        expected = "/".join(self.bug.dies_by)
        return (
            f"{self.bug.number:5} {fate:10} {self.seconds:5.1f} s  expected {expected:8}"
            f" {self.first or 'nothing was noticed'}  ({self.bug.words})"
        )


def hunt(bug: Bug, budget_s: float = BUDGET_S, workers: int | None = None) -> Verdict:
    """Plant a bug in a copy and look for it."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        root = Path(folder)
        try:
            copy_with(bug, root)
        except Stale as stale:
            return Verdict(bug, f"stale: {stale}", time.monotonic() - began_s)
        first = _run(bug, root, budget_s, workers)
    return Verdict(bug, first, time.monotonic() - began_s)


def copy_with(bug: Bug, root: Path) -> None:
    """Copy the product and the tests, and put the bug in; raises Stale if it does not fit."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".*")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    for edit in bug.edits:
        edit.apply(root)


def _run(bug: Bug, root: Path, budget_s: float, workers: int | None) -> str:
    command = [sys.executable, "-m", "tests.simulator", "--hunt", "--stack", _stack(bug)]
    command += ["--minutes", str(budget_s / 60), *(f"--need={family}" for family in bug.needs)]
    command += ["--build-check"] if bug.stack == "traces" else []
    command += [] if workers is None else ["--workers", str(workers)]
    environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    # Killed well after its own budget: a bug may also make a history endless.
    try:
        found = subprocess.run(
            command,
            cwd=root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=WAITS_MAX * budget_s + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if found.returncode not in (0, 1):
        return f"broken: {found.stderr.strip()[-200:]}"
    return found.stdout.strip()


def _stack(bug: Bug) -> str:
    return "short" if bug.stack == "traces" else bug.stack


def chosen(numbers: Sequence[str]) -> list[Bug]:
    """Return the bugs of these numbers with all variants, or all bugs."""
    if not numbers:
        return list(BUGS)
    return [bug for bug in BUGS if any(bug.number.startswith(number) for number in numbers)]


def hunt_all(bugs: Iterable[Bug], budget_s: float = BUDGET_S) -> list[Verdict]:
    """Hunt one bug after the other and print each verdict as it comes."""
    verdicts: list[Verdict] = []
    for bug in bugs:
        verdict = hunt(bug, budget_s)
        print(verdict, flush=True)
        verdicts.append(verdict)
    return verdicts
