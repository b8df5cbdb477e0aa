"""The demo's agent prints every line exactly once, whatever kill came between."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.demo import agent

pytestmark = pytest.mark.process

AGENT: Final = Path(agent.__file__)
NAMES: Final = (
    b"a plain name",
    b"sub/\xff not text",
    b"sub/two\nlines",
    b"sub/back\\slash",
    b'sub/deeper/"quoted"',
    b"sub/deeper/\xe2\x82\xac",
    b"zero length",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    for name in NAMES:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"" if name == b"zero length" else name * 3)
    os.symlink("a plain name", root / "link")
    return root


@pytest.fixture
def expected(folder: Path) -> list[str]:
    hashes = [
        subprocess.run(
            ["sha256sum"],
            input=Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).read_bytes(),
            capture_output=True,
            check=True,
        ).stdout.split()[0]
        for name in sorted(NAMES)
    ]
    return [
        f"{value.decode()}  {agent.quote(name)}"
        for value, name in zip(hashes, sorted(NAMES), strict=True)
    ]


def start(folder: Path, checkpoint: Path, accepted: int, *extra: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-I", str(AGENT), str(folder), str(checkpoint), *extra],
        stdout=subprocess.PIPE,
        env={**os.environ, agent.ACCEPTED_VARIABLE: str(accepted)},
    )


def finish(folder: Path, checkpoint: Path, accepted: int) -> list[str]:
    process = start(folder, checkpoint, accepted)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == agent.EXIT_DONE
    return output.decode("ascii").splitlines()


def killed_after(lines: int, folder: Path, checkpoint: Path) -> list[str]:
    """Kill an agent that has printed so many lines, and return these."""
    fifo = checkpoint.with_suffix(".fifo")
    os.mkfifo(fifo)
    process = start(folder, checkpoint, 0, "--hold", str(lines + 1), str(fifo))
    assert process.stdout is not None
    printed = [process.stdout.readline().decode("ascii").rstrip("\n") for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (-signal.SIGKILL, b"")
    fifo.unlink()
    return printed


def test_agent_prints_what_sha256sum_says_of_every_regular_file(
    folder: Path, tmp_path: Path, expected: list[str]
) -> None:
    assert finish(folder, tmp_path / "checkpoint", 0) == expected


@pytest.mark.parametrize("lines", range(len(NAMES)))
def test_agent_goes_on_after_the_accepted_lines_when_killed(
    lines: int, folder: Path, tmp_path: Path, expected: list[str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    printed = killed_after(lines, folder, checkpoint)

    for accepted in range(lines + 1):
        left = tmp_path / f"left.{accepted}"
        if checkpoint.exists():
            shutil.copyfile(checkpoint, left)
        resumed = finish(folder, left, accepted)
        assert printed[:accepted] + resumed == expected
        assert left.read_text().splitlines() == expected


def test_agent_drops_a_torn_line_when_the_kill_came_during_an_append(
    folder: Path, tmp_path: Path, expected: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    whole = "".join(f"{line}\n" for line in expected).encode("ascii")
    checkpoint = tmp_path / "checkpoint"
    for cut in range(0, len(whole) + 1, 11):
        checkpoint.write_bytes(whole[:cut])

        assert agent.main([str(folder), str(checkpoint)]) == agent.EXIT_DONE

        assert capfd.readouterr().out.splitlines() == expected
        assert checkpoint.read_bytes() == whole


def test_agent_has_recorded_a_line_before_it_prints_it(
    folder: Path, tmp_path: Path, expected: list[str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-I", str(AGENT), str(folder), str(checkpoint)], stdout=writer
    )
    os.close(writer)

    assert process.wait(timeout=60) == agent.EXIT_IO

    assert checkpoint.read_text().splitlines() == expected[:1]


def test_agent_refuses_to_run_when_another_has_the_checkpoint(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with agent.Checkpoint(tmp_path / "checkpoint"):
        status = agent.main([str(folder), str(tmp_path / "checkpoint")])

    assert (status, capfd.readouterr().out) == (agent.EXIT_ALREADY_RUNNING, "")
    assert (tmp_path / "checkpoint").read_bytes() == b""


def test_agent_prints_nothing_when_accepted_lines_are_not_in_its_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(agent.ACCEPTED_VARIABLE, "1")

    status = agent.main([str(folder), str(tmp_path / "checkpoint")])

    assert (status, capfd.readouterr().out) == (agent.EXIT_CHECKPOINT_LOST, "")


def test_agent_refuses_a_checkpoint_inside_the_folder(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert agent.main([str(folder), str(folder / "checkpoint")]) == agent.EXIT_USAGE

    assert not (folder / "checkpoint").exists()
    assert capfd.readouterr().out == ""
