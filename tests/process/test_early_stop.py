"""A request to stop that arrives while the daemon is still being loaded."""

import signal
import stat
from pathlib import Path

import pytest

from tests.import_signal import signalled_at
from tests.process.daemon import STATE_FILE, daemon, flags

pytestmark = pytest.mark.process

NOWHERE = "ws://127.0.0.1:9/connect"
MOMENTS = (
    "runnerd.ticket",
    "resource",
    "runnerd.startup",
    "signal",
    "runnerd.daemon",
    "msgspec",
    "cryptography.hazmat.primitives.ciphers.aead",
    "runnerd.first_contact",
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", MOMENTS)
def test_stop_in_any_moment_of_a_start_ends_it_resumable(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    state = tmp_path / "state"

    with daemon(flags(NOWHERE, state), **signalled_at(module, number, tmp_path)) as run:
        assert (run.wait(), run.code) == (75, "stop_requested"), run.stderr

    assert stat.S_ISREG((state / STATE_FILE).stat().st_mode)


def test_two_stops_within_one_import_are_both_counted(tmp_path: Path) -> None:
    hook = signalled_at("runnerd.startup", signal.SIGINT, tmp_path, times=2)

    with daemon(flags(NOWHERE, tmp_path / "state"), **hook) as run:
        assert (run.wait(), run.code) == (75, "stop_requested"), run.stderr

    assert len(run.facts("stop_requested")) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["runnerd.startup", "runnerd.inspection"])
def test_command_that_only_looks_dies_of_a_signal_as_any_other(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    hook = signalled_at(module, number, tmp_path)

    with daemon(["inspect", "--state-dir", str(tmp_path)], ticket=None, **hook) as run:
        assert run.wait() == -number

    assert (run.stdout, run.stderr) == ("", "")
