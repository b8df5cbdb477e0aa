"""A sample of every stack: no invariant breaks, and the sample sees what it must."""

from collections import Counter

import pytest

from tests.simulator.__main__ import hashes_agree
from tests.simulator.batch import Batch, run_chunk
from tests.simulator.registry import sometimes_of

SHORT_SEEDS = range(1_500)
FULL_SEEDS = range(200)
RUNS_SEEDS = range(200)
OFTEN_SEEN = {
    "short": {"crash", "power loss", "died in a write", "event sent again", "result replayed"},
    "full": {"crash", "power loss", "bytes lost", "event sent again", "result replayed"},
    "runs": {"host killed", "power loss", "torn tail repaired", "unknown effect reported"},
}


def run(stack: str) -> Batch:
    return run_chunk(stack, {"short": SHORT_SEEDS, "full": FULL_SEEDS, "runs": RUNS_SEEDS}[stack])


@pytest.mark.parametrize("stack", ["short", "full", "runs"])
def test_no_invariant_breaks_in_a_sample_of_histories(stack: str) -> None:
    batch = run(stack)

    assert batch.failures == []
    assert OFTEN_SEEN[stack] <= set(batch.seen)


@pytest.mark.parametrize("stack", ["short", "full", "runs"])
def test_every_fact_that_must_be_seen_has_a_name_of_its_own(stack: str) -> None:
    counted = Counter(sometimes_of(stack))

    assert [fact for fact, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("stack", ["short", "full", "runs"])
def test_traces_are_the_same_in_a_process_that_hashes_otherwise(stack: str) -> None:
    assert hashes_agree(stack, 0, 9)
