"""Tapes of failures that are mended: none of them breaks an invariant any more."""

from pathlib import Path

import pytest

from tests.simulator.stacks import replay
from tests.simulator.tape import read

TAPES = sorted(Path(__file__).with_name("tapes").glob("*.json"))


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_history_that_once_failed_goes_well(path: Path) -> None:
    outcome = replay(read(path))

    assert outcome.violation is None


def test_there_are_tapes() -> None:
    assert TAPES
