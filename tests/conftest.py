"""Options of the whole suite."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from tests.effort import raise_effort

# No test judges time: a busy machine is no fault.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

VECTORS: Final = Path(__file__).parent / "vectors" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the folders of the vectors be other ones than the copies beside the tests."""
    parser.addoption(
        "--prp-vectors",
        metavar="DIR",
        type=Path,
        default=VECTORS / "prp",
        help="folder of the PRP test vectors (default: %(default)s)",
    )
    parser.addoption(
        "--run-vectors",
        metavar="DIR",
        type=Path,
        default=VECTORS / "runs",
        help="folder of the test vectors for durable runs (default: %(default)s)",
    )
    parser.addoption(
        "--effort",
        metavar="N",
        type=int,
        default=1,
        help="try N times as many random cases as usual (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the effort before any test is read: it is fixed where a test is defined."""
    effort = config.getoption("--effort")
    assert isinstance(effort, int)
    raise_effort(effort)
