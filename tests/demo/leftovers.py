"""Ends the programs of a demo that failed; a demo that went to its end must need none of this.

It decides which process is a program of the run. It refuses to know how the run went.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_WAIT_MS: Final = 10_000


def end_programs(run_id: str) -> None:
    """Kill every process that was started as a program of this run, and see it gone."""
    for pid in _programs(run_id):
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                # The number may have passed to another process since it was looked up.
                if pid in set(_programs(run_id)):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    ended = select.poll()
                    ended.register(descriptor, select.POLLIN)
                    ended.poll(_WAIT_MS)
            finally:
                os.close(descriptor)


def _programs(run_id: str) -> Iterator[int]:
    mark = f"RUNNERD_RUN_ID={run_id}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
