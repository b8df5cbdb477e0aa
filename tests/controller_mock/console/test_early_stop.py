"""A request to stop that arrives while `controller-mock` is still being loaded."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.import_signal import signalled_at

pytestmark = pytest.mark.process

MOMENTS = (
    "controller_mock.console",
    "signal",
    "anyio",
    "controller_mock.console.command_line",
    "controller_mock.storage.sqlite",
)


def ended(
    arguments: Sequence[str], module: str, number: signal.Signals, directory: Path
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        (sys.executable, "-P", "-m", "controller_mock", *arguments),
        env=os.environ | signalled_at(module, number, directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", MOMENTS)
def test_stop_in_any_moment_of_a_start_leaves_no_run_behind(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    data = tmp_path / "data"

    run = ended(("run", "--data", str(data), "--", "true"), module, number, tmp_path)

    assert (run.returncode, run.stdout, run.stderr) == (2, b"", b"")
    assert not data.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_before_anything_is_served_is_the_end_of_serving(
    tmp_path: Path, number: signal.Signals
) -> None:
    served = ended(("serve", "--data", str(tmp_path / "data")), "anyio", number, tmp_path)

    assert (served.returncode, served.stdout, served.stderr) == (0, b"", b"")
