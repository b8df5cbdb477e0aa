"""The interpreter's report of imports, cut at the welcome."""

import subprocess
import sys

import pytest

from tests.bench.imports import before_welcome, importing, parse

REPORT = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 |   _io
a line of something else
import time:        20 |         20 |     runnerd.first_contact
import time:        10 |         30 |   runnerd.daemon
import time:        10 |         10 |       asyncio.events
import time:        10 |         20 |     asyncio
import time:        10 |         30 |   anyio
import time:        10 |         30 |   runnerd.shell
"""


def test_imports_end_before_the_first_one_after_the_welcome_and_what_it_imports() -> None:
    modules = before_welcome(parse(REPORT.splitlines()))

    assert modules == ("_io", "runnerd.first_contact", "runnerd.daemon")


def test_report_without_the_welcome_is_refused() -> None:
    with pytest.raises(ValueError, match="never imported"):
        before_welcome(parse(REPORT.splitlines()[:4]))


def test_program_imports_the_modules_and_no_others_of_the_report() -> None:
    program = importing(("json.decoder", "surely.not_there")) + "print(*sys.modules)"

    done = subprocess.run((sys.executable, "-I", "-c", program), capture_output=True, check=True)

    assert done.stdout.startswith(b".")
    loaded = done.stdout[1:].split()
    assert b"json.decoder" in loaded
    assert b"asyncio" not in loaded
