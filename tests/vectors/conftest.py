"""Gives each vector test one case of the folder that `--prp-vectors` names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

CASE: Final = "_case"
TRANSCRIPTS: Final = (
    "transcript_pyclient_ts_v1",
    "transcript_rust_ts_plain",
    "transcript_rust_ts_provider_warm",
)


def load(directory: Path, name: str) -> Any:
    """Return the JSON document ``name`` of a vector folder."""
    return json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once per case of its data.

    An argument `<name>_case` takes the cases of `<name>.json`; `recorded_connection` takes
    the connections of all transcripts.
    """
    directory = _folder(metafunc.config)
    for argument in metafunc.fixturenames:
        if argument.endswith(CASE):
            cases = load(directory, argument.removesuffix(CASE))["cases"]
            metafunc.parametrize(argument, cases, ids=_names(cases))
        elif argument == "recorded_connection":
            recorded = dict(_connections(directory))
            metafunc.parametrize(argument, recorded.values(), ids=recorded)


def _folder(config: pytest.Config) -> Path:
    directory = config.getoption("--prp-vectors")
    assert isinstance(directory, Path)
    return directory


def _names(cases: list[dict[str, Any]]) -> list[str]:
    return [str(case.get("name", number)) for number, case in enumerate(cases)]


def _connections(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in TRANSCRIPTS:
        for number, connection in enumerate(load(directory, name)["connections"], start=1):
            yield f"{name}-{number}", connection


@pytest.fixture(scope="session")
def prp_vectors(pytestconfig: pytest.Config) -> Path:
    """The folder of the PRP vectors."""
    return _folder(pytestconfig)
