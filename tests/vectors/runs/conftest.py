"""Gives each test one case of the folder that `--run-vectors` names."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

ROW: Final = "_row"


def load(directory: Path, group: str) -> list[dict[str, Any]]:
    """Return the cases of a group; the file may be missing in a folder that has fewer."""
    path = directory / f"{group}.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines if line]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once per case: an argument `<group>_row` takes those of `<group>.jsonl`."""
    directory = _folder(metafunc.config)
    for argument in metafunc.fixturenames:
        if argument.endswith(ROW):
            cases = load(directory, argument.removesuffix(ROW))
            metafunc.parametrize(argument, cases, ids=[case["id"] for case in cases])


@pytest.fixture(scope="session")
def run_vectors(pytestconfig: pytest.Config) -> Path:
    """The folder of the vectors."""
    return _folder(pytestconfig)


def _folder(config: pytest.Config) -> Path:
    directory = config.getoption("--run-vectors")
    assert isinstance(directory, Path)
    return directory
