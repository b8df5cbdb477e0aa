"""The checker holds for a true record and names each falsehood that is put into a copy of it."""

import asyncio
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.demo import checker
from tests.demo.checker import Facts
from tests.demo.folder import make_folder
from tests.demo.lies import LIES, WHOLE
from tests.demo.scenario import Scenario, Site, facts

pytestmark = pytest.mark.process

FILES: Final = 24
TIME_LIMIT_S: Final = 120


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What a true run left behind."""
    site = Site(tmp_path_factory.mktemp("demo"), FILES)
    make_folder(site.folder, FILES)
    told: list[str] = []
    scenario = Scenario(site, told.append)

    async def perform() -> None:
        async with asyncio.timeout(TIME_LIMIT_S):
            await scenario.perform()

    try:
        asyncio.run(perform())
    except BaseException as error:
        error.add_note("\n".join(told))
        raise
    return facts(site, scenario.witness)


@pytest.fixture
def copy(record: Facts, tmp_path: Path) -> Facts:
    """The record once more, to be tampered with; without constraints that forbid lies."""
    root = str(tmp_path / "copy")
    shutil.copytree(record.root, root)
    moved = dataclasses.replace(
        record,
        root=root,
        store=record.store.replace(record.root, root),
        runner_state=record.runner_state.replace(record.root, root),
        folder=record.folder.replace(record.root, root),
        checkpoint=record.checkpoint.replace(record.root, root),
    )
    lie(
        moved,
        "CREATE TABLE loose AS SELECT * FROM events",
        "DROP TABLE events",
        "ALTER TABLE loose RENAME TO events",
    )
    return moved


def lie(copy: Facts, *statements: str) -> None:
    """Change the stored rows."""
    connection = sqlite3.connect(copy.store)
    with connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, "the lie changed nothing"
    connection.close()


def false_figures(given: Facts) -> set[str]:
    report = checker.check(given)
    false = {figure["name"] for figure in report["figures"] if not figure["holds"]}
    assert report["holds"] == (not false)
    assert bool(report["faults"]) == bool(false)
    return false


def test_checker_holds_for_a_run_that_lost_its_socket_and_its_runner(record: Facts) -> None:
    assert checker.check(record)["faults"] == []


def test_checker_holds_for_an_untouched_copy(copy: Facts) -> None:
    assert false_figures(copy) == set()


@pytest.mark.parametrize("name", LIES)
def test_checker_names_what_is_false_when_rows_are_altered(name: str, copy: Facts) -> None:
    statements, expected = LIES[name]
    lie(copy, *statements)

    assert false_figures(copy) == expected


def _change_file(copy: Facts) -> None:
    path = Path(copy.folder, "-rf")
    path.write_bytes(path.read_bytes() + b"!")


def _change_state(copy: Facts, change: Callable[[dict[str, Any]], object]) -> None:
    path = Path(copy.runner_state)
    state = json.loads(path.read_text())
    change(state["content"])
    path.write_text(json.dumps(state))


def _repeat_work(copy: Facts) -> None:
    path = Path(copy.checkpoint)
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")


FILE_LIES: Final[dict[str, tuple[Callable[[Facts], object], set[str]]]] = {
    "a file is another": (_change_file, {WHOLE, "files with another hash"}),
    "a file is new": (
        lambda copy: Path(copy.folder, "new").touch(),
        {WHOLE, "files missing", "files the agent worked on once"},
    ),
    "a file was worked on twice": (_repeat_work, {"files the agent worked on once"}),
    "the runner produced more": (
        lambda copy: _change_state(copy, lambda state: state.update(nextSourceSeq=1_000)),
        {"events stored", "events lost"},
    ),
    "the runner holds an event": (
        lambda copy: _change_state(copy, lambda state: state.update(outbox=[{}])),
        {"events the runner still holds"},
    ),
    "a ticket is in a file": (
        lambda copy: Path(copy.root, "log").write_text(f"ticket={copy.secrets[0]}"),
        {"files that hold a ticket"},
    ),
    "a ticket's random bytes are in a file": (
        lambda copy: Path(copy.root, "raw").write_bytes(
            bytes.fromhex(copy.secrets[1].rpartition("_")[2])
        ),
        {"files that hold a ticket"},
    ),
    "the database is torn": (
        lambda copy: os.truncate(copy.store, 5_000),
        {"state is readable"},
    ),
    "the runner's state is gone": (
        lambda copy: os.unlink(copy.runner_state),
        {"state is readable"},
    ),
}


@pytest.mark.parametrize("name", FILE_LIES)
def test_checker_names_what_is_false_when_files_are_altered(name: str, copy: Facts) -> None:
    tamper, expected = FILE_LIES[name]
    tamper(copy)

    assert false_figures(copy) == expected


@pytest.fixture
def sleeper() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> "subprocess.Popen[bytes]":
        started.append(
            subprocess.Popen(["sleep", "3600"], start_new_session=True, env=env, cwd=cwd)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_checker_finds_a_process_that_has_the_run_in_its_environment(
    record: Facts, sleeper: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    sleeper(env={**os.environ, "RUNNERD_RUN_ID": record.run_id})

    assert false_figures(record) == {"processes left behind"}


def test_checker_finds_a_process_in_the_session_of_a_runner(
    record: Facts, sleeper: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    process = sleeper()
    pids = [record.runner_pids[0], process.pid]

    assert false_figures(dataclasses.replace(record, runner_pids=pids)) == {"processes left behind"}


def test_checker_finds_a_process_that_works_in_the_demo_s_folder(
    record: Facts, sleeper: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    sleeper(cwd=record.folder)

    assert false_figures(record) == {"processes left behind"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"runner_statuses": [0, 0]}, "runner exits"),
        ({"runner_statuses": [-9, 75]}, "runner exits"),
        ({"runner_pids": [1]}, "runner processes"),
        ({"secrets": []}, "tickets known to the demo"),
    ],
)
def test_checker_names_what_the_demo_itself_saw_and_should_not_have(
    change: dict[str, Any], expected: str, record: Facts
) -> None:
    assert expected in false_figures(dataclasses.replace(record, **change))


def test_checker_runs_without_anything_installed_and_says_false_with_its_status(
    record: Facts,
) -> None:
    for given, status in ((record, 0), (dataclasses.replace(record, secrets=["x"]), 1)):
        done = subprocess.run(
            [sys.executable, "-I", "-S", checker.__file__],
            input=json.dumps(dataclasses.asdict(given)).encode(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (status, b"")
        assert json.loads(done.stdout)["holds"] == (status == 0)
