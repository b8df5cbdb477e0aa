"""The first moments of a process: the standard streams that it was started without."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

FILLED = """
import os, sys
from runnerd.startup import fill_standard_descriptors
closed = [int(number) for number in sys.argv[1]]
print_to = os.dup(1)
for number in closed:
    os.close(number)
fill_standard_descriptors()
names = [os.readlink(f"/proc/self/fd/{number}") for number in closed]
handed_on = [os.get_inheritable(number) for number in closed]
os.write(print_to, repr((names, handed_on)).encode())
"""


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "12", "02", "012"])
def test_missing_streams_are_empty_ones_that_programs_inherit(closed: str) -> None:
    shown = subprocess.run(
        (sys.executable, "-c", FILLED, closed), stdin=subprocess.DEVNULL, capture_output=True
    )

    count = len(closed)
    assert shown.stdout.decode() == repr(([os.devnull] * count, [True] * count))
