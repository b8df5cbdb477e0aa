"""Planning holds what is open, not what was: counted in objects and bytes, not in time."""

import gc
import tracemalloc
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from runnerd.runs.resume import decide_resume, prepare_run_resume
from runnerd.runs.run_facts import RunFacts
from tests.runnerd.runs.logs import store_in
from tests.runnerd.runs.long_run import OPEN_CALLS, STEPS, long_log, write_long_log
from tests.runnerd.runs.run_script import CONFIG, RUN

RECORDS = 100_000
NOT_DATA = (type, ModuleType, FunctionType)


def facts_of(records: int) -> RunFacts:
    facts = RunFacts()
    for record in long_log(records):
        facts.apply(record)
    facts.close()
    return facts


def held_by(root: object) -> int:
    """Return how many objects can be reached from ``root``, texts and numbers included."""
    seen = {id(root): root}
    waiting = [root]
    while waiting:
        for held in gc.get_referents(waiting.pop()):
            if id(held) not in seen and not isinstance(held, NOT_DATA):
                seen[id(held)] = held
                waiting.append(held)
    return len(seen)


def peak_of_planning(folder: Path, records: int) -> int:
    """Return the bytes that were taken at most at one time while a log on the disk was planned."""
    folder.mkdir(mode=0o700)
    write_long_log(folder, records)
    store = store_in(folder)
    tracemalloc.start()
    try:
        decision = prepare_run_resume(store.scan(RUN), config_fingerprint=CONFIG)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        store.close()
    assert len(decision.steps) == STEPS
    return peak


@pytest.fixture(scope="module")
def long_run() -> RunFacts:
    return facts_of(RECORDS)


def test_facts_of_a_long_log_hold_no_more_than_those_of_a_short_one(long_run: RunFacts) -> None:
    short = facts_of(1_000)

    # Numbers above 256 are objects of their own: a few for each step and open call.
    assert held_by(long_run) <= held_by(short) + 5 * (STEPS + OPEN_CALLS)


def test_plan_of_a_long_log_is_whole(long_run: RunFacts) -> None:
    decision = decide_resume(long_run, config_fingerprint=CONFIG)

    assert long_run.record_count == RECORDS + OPEN_CALLS * 3
    assert len(decision.steps) == STEPS
    assert sum(step.settled_effects for step in decision.steps) > 5_000
    assert len(decision.effects) == OPEN_CALLS
    assert len(long_run.calls.effects) == OPEN_CALLS


def test_planning_from_the_disk_takes_no_more_memory_when_the_log_is_longer(
    tmp_path: Path,
) -> None:
    short = peak_of_planning(tmp_path / "short", 6_000)
    long = peak_of_planning(tmp_path / "long", 24_000)

    # Pieces of one size hold more or fewer records, by the length of their lines.
    assert long <= 1.2 * short
