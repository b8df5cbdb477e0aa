"""The README's commands run and its tables say what the code says."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from protocol.errors import COMMAND_STATUSES, EXIT_STATUSES, ErrorCode, ExitStatus
from runnerd.harness.environment import OWN_PREFIX

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
COMMANDS: Final[list[str]] = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
TIME_LIMIT_S: Final = 120

BOUNDED: Final = {
    "./dev demo\n": "./dev demo --files 24\n",
    # The whole suite cannot run inside itself.
    "./dev test\n": "./dev test --collect-only -q tests/demo/test_readme.py\n",
}


def sections(heading: str) -> list[list[str]]:
    """Return the cells of each row of the table under a heading."""
    text = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_readme_s_commands_run_as_they_stand(number: int, tmp_path: Path) -> None:
    command = BOUNDED.get(COMMANDS[number], COMMANDS[number])
    home = tmp_path / "home"
    home.mkdir()
    process = subprocess.Popen(
        ["sh", "-euc", command],
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "TMPDIR": str(tmp_path), "XDG_STATE_HOME": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"not done in time:\n{output.decode('utf-8', 'replace')}")
    assert process.returncode == 0, output.decode("utf-8", "replace")


def test_readme_names_the_two_commands_a_person_starts_with() -> None:
    assert set(BOUNDED) <= set(COMMANDS)


def stated_statuses(heading: str) -> dict[int, list[str]]:
    rows = [row for row in sections(heading) if row[0].isdigit()]
    return {int(row[0]): re.findall(r"`([a-z_]+)`", row[2]) for row in rows}


def codes_of(table: dict[ErrorCode, ExitStatus], status: ExitStatus) -> list[str]:
    return [code.value for code, found in table.items() if found is status]


def test_readme_s_table_of_exit_statuses_is_the_table_of_the_code() -> None:
    assert stated_statuses("Use runnerd under your own supervisor") == {
        int(status): codes_of(EXIT_STATUSES, status) for status in ExitStatus
    }


def test_readme_s_table_of_command_statuses_is_the_table_of_the_code() -> None:
    assert stated_statuses("Recover a run") == {
        int(status): codes_of(COMMAND_STATUSES, status)
        for status in ExitStatus
        if status in COMMAND_STATUSES.values()
    }


def test_readme_s_variables_are_those_that_a_program_gets() -> None:
    rows = sections("Run a program")
    stated = {row[0].strip("`") for row in rows if OWN_PREFIX in row[0]}
    source = (ROOT / "runnerd" / "harness" / "environment.py").read_text()

    assert stated == set(re.findall(r'"(RUNNERD_[A-Z_]+)"', source))


def test_readme_s_messages_are_those_that_a_program_says_and_hears() -> None:
    first = [row[0] for row in sections("Write an agent")]
    hears = first.index("it hears")
    stated = [
        {name for cell in cells for name in re.findall(r"`([a-z_.]+)`", cell)}
        for cells in (first[:hears], first[hears:])
    ]
    core, harness = ROOT / "runnerd" / "core", ROOT / "runnerd" / "harness"
    said = re.findall(
        r'^    "([a-z]+)": \w+,$', (harness / "messages.py").read_text(), re.MULTILINE
    )
    told = "".join(path.read_text() for path in sorted(core.glob("*.py")))
    heard = {
        *re.findall(r'\btell\(\s*\w+,\s*"([a-z_.]+)"', told),
        *re.findall(
            r'^    "[a-z]+": "([a-z.]+)",$', (harness / "jsonl.py").read_text(), re.MULTILINE
        ),
    }

    assert stated == [set(said), heard]


def test_readme_s_folders_exist() -> None:
    stated = [row[0].strip("`") for row in sections("Layout") if row[0].endswith("/`")]

    assert stated
    assert [name for name in stated if not (ROOT / name).is_dir()] == []


DOCUMENTS: Final = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file()),
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_hold_no_place_of_one_machine(path: Path) -> None:
    assert re.findall(r"/(?:root|work|home/[a-z]+)/[^ ]*", path.read_text()) == []
