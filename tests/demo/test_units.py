"""The unit files say what the programs understand."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from controller_mock.io.runner_process import TICKET_VARIABLE
from protocol.errors import ExitStatus
from runnerd.flags import VALUE_FLAGS
from runnerd.io.ticket_source import CREDENTIAL_NAME

ROOT: Final = Path(__file__).parents[2]
UNIT: Final = (ROOT / "deploy" / "systemd" / "runnerd@.service").read_text()
INSTALLED: Final = "/opt/runnerd/"
RESTARTABLE: Final = {
    ExitStatus.UNAVAILABLE,
    ExitStatus.INTERNAL,
    ExitStatus.IO,
    ExitStatus.RESUMABLE,
}


def setting(name: str) -> str:
    found = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    assert len(found) == 1
    return str(found[0])


@pytest.mark.process
def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    here = UNIT.replace(INSTALLED, f"{ROOT}/")
    (tmp_path / "runnerd@.service").write_text(here)

    done = subprocess.run(
        [program, "verify", "--man=no", "runnerd@.service"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert here != UNIT
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_starts_again_exactly_after_what_a_fresh_ticket_can_mend() -> None:
    prevented = {int(status) for status in setting("RestartPreventExitStatus").split()}

    assert (
        prevented == {status for status in ExitStatus if status >= ExitStatus.USAGE} - RESTARTABLE
    )


def test_unit_gives_the_ticket_under_the_name_that_the_runner_looks_for() -> None:
    assert setting("LoadCredential").split(":")[0] == CREDENTIAL_NAME
    assert TICKET_VARIABLE not in UNIT


def test_unit_uses_only_flags_that_the_runner_knows() -> None:
    assert set(re.findall(r"--[a-z-]+", setting("ExecStart"))) <= VALUE_FLAGS
