"""A closed store for the tests of its files."""

from pathlib import Path

import pytest

from controller_mock.storage.sqlite import open_store
from tests.controller_mock.core.world import CONFIG
from tests.storage.changes import RUN, events
from tests.storage.test_contract import eventful


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a closed store of some size in it."""
    data = tmp_path / "data"
    store = open_store(data)
    store.create_run(CONFIG)
    store.commit([(RUN, tuple(eventful().written))])
    store.commit([(RUN, events(range(20, 220), body=b'{"text":"' + b"x" * 500 + b'"}'))])
    store.close()
    return data
