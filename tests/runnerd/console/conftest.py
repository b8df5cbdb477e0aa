"""A folder with one run that waits for a person."""

from pathlib import Path

import pytest

from tests.runnerd.console.kept_runs import kept, left


@pytest.fixture
def doubtful(tmp_path: Path) -> Path:
    """A folder of runs whose one run has an effect in doubt."""
    return kept(tmp_path / "runs", left("started").records)
