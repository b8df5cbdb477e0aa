"""What the command line says when a command cannot even begin."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from controller_mock.storage.sqlite import open_store
from tests.controller_mock.console.support import console

pytestmark = pytest.mark.process

PLANTED = """
import sys
from controller_mock.console import inspect
from controller_mock.console.command_line import perform

def report_all(data):
    raise ValueError("bootstrap_secret")

inspect.report_all = report_all
sys.exit(perform(sys.argv[1:]))
"""

STREAMS_OF_THE_CONTROLLER = """
import json, os, pathlib, sys
runner = pathlib.Path("/proc", str(os.getppid()), "stat").read_text()
controller = pathlib.Path("/proc", runner.rpartition(")")[2].split()[1], "fd")
names = [os.readlink(controller / str(number)) for number in range(3)]
pathlib.Path(sys.argv[1]).write_text(json.dumps(names))
"""


@pytest.mark.parametrize(
    ("stand_in", "status", "words"),
    [
        ("raise KeyboardInterrupt", 2, b""),
        (
            "raise ModuleNotFoundError(name='msgspec')",
            70,
            b"controller-mock: internal_fault: msgspec cannot be imported;"
            b" install what the package depends on\n",
        ),
        (
            "raise OSError(24, 'Too many open files')",
            70,
            b"controller-mock: internal_fault: a module (OSError) cannot be imported;"
            b" install what the package depends on\n",
        ),
    ],
)
async def test_start_that_cannot_load_its_modules_is_no_traceback(
    tmp_path: Path, stand_in: str, status: int, words: bytes
) -> None:
    (tmp_path / "msgspec.py").write_text(stand_in)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "controller_mock", "inspect"),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    _, err = await process.communicate()

    assert (process.returncode, err) == (status, words)


async def test_place_without_data_is_named_in_one_line_with_a_remedy(tmp_path: Path) -> None:
    place = tmp_path / "nothing"

    async with console("inspect", "--data", str(place)) as shown:
        assert await shown.status() == 65

        assert shown.err.decode() == (
            f"controller-mock: state_missing: {place}: no such directory;"
            " nothing was stored there yet; check --data\n"
        )


async def test_folder_that_others_use_is_named_and_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "photographs"
    place.mkdir()
    (place / "cat.jpeg").touch()
    place.chmod(0o755)

    async with console("run", "--data", str(place), "--", "true") as run:
        assert await run.status() == 73

        assert str(place).encode() in run.err
        assert b"use a --data that is empty" in run.err
        assert place.stat().st_mode & 0o777 == 0o755
        assert os.listdir(place) == ["cat.jpeg"]


async def test_fault_of_ours_is_a_code_with_its_place_and_not_its_words() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PLANTED, "inspect"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 70
    assert err.decode() == (
        "controller-mock: internal_fault: ValueError at <string>:7;"
        " report it, with what --verbose adds; what is stored is whole\n"
    )


async def test_folder_that_is_gone_is_a_code(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = (sys.executable, "-P", "-m", "controller_mock", "inspect", "--data", "data")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *command),
        cwd=gone,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 64
    assert err == b"controller-mock: usage_invalid: the folder you are in is gone\n"


@pytest.mark.parametrize(
    ("closing", "closed"),
    [("<&-", {0}), (">&-", {1}), ("2>&-", {2}), ("<&- >&- 2>&-", {0, 1, 2})],
)
async def test_closed_stream_is_an_empty_one_and_never_a_file_of_the_store(
    tmp_path: Path, closing: str, closed: set[int]
) -> None:
    data, seen = tmp_path / "data", tmp_path / "seen"
    command = (sys.executable, "-P", "-m", "controller_mock", "run", "--data", str(data), "--")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" {closing}', "sh", *command),
        *(sys.executable, "-c", STREAMS_OF_THE_CONTROLLER, str(seen)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    await process.communicate()

    assert process.returncode == 0
    names = json.loads(seen.read_text())
    assert {number for number in range(3) if names[number] == os.devnull} == closed
    assert all(number in closed or name.startswith("pipe:") for number, name in enumerate(names))


async def test_fault_is_not_told_on_standard_output_when_standard_error_is_closed(
    tmp_path: Path,
) -> None:
    command = (sys.executable, "-P", "-m", "controller_mock", "inspect", "--data")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'exec "$@" 2>&-', "sh", *command, str(tmp_path / "data")),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()

    assert (process.returncode, out) == (65, b"")


async def test_output_that_no_disk_takes_is_a_code(tmp_path: Path) -> None:
    open_store(tmp_path / "data").close()
    command = (sys.executable, "-P", "-m", "controller_mock", "inspect", "--data")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", '"$@" >/dev/full', "sh", *command, str(tmp_path / "data")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 74
    assert b"storage_write_failed: standard output: No space left on device; make room" in err


async def test_run_says_when_no_disk_takes_what_its_program_prints(tmp_path: Path) -> None:
    command = (sys.executable, "-P", "-m", "controller_mock", "run", "--data")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", '"$@" >/dev/full', "sh", *command, str(tmp_path / "data")),
        *("--", "sh", "-c", "echo one; echo two"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert process.returncode == 0
    assert err.count(b"controller-mock: standard output: No space left on device; ") == 1
