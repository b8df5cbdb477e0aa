"""What planning the resumption of a long run costs, in time and in memory.

It decides which logs are compared. It refuses to plan: that is the product, from the disk.
"""

import hashlib
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from runnerd.runs.resume import prepare_run_resume
from runnerd.runs.run_file import run_file_name
from runnerd.runs.run_store import RunStore
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.site import Measurement, Site
from tests.runnerd.runs.long_run import OPEN_CALLS, STEPS, write_long_log
from tests.runnerd.runs.run_script import CONFIG, RUN

LONG: Final = 100_000
SHORT: Final = 10_000

WORK: Final = Figure(
    name="resume-plan",
    what=f"planning the resumption of a log of {LONG:,} records, over reading, decoding and"
    " hashing its lines",
    unit="seconds",
    goal=Goal("<=", 15),
)
FLAT: Final = Figure(
    name="resume-plan-flat",
    what=f"a record in planning a log of {LONG:,}, over one in planning a log of {SHORT:,}",
    unit="seconds per record",
    goal=Goal("<=", 1.2),
)
MEMORY: Final = Figure(
    name="resume-plan-memory",
    what=f"peak memory of a process that plans a log of {LONG:,} records, over one that plans"
    f" {SHORT:,} (RSS)",
    unit="KiB resident",
    goal=Goal("<=", 1.1),
)

_CHILD: Final = (
    "import sys; from pathlib import Path; from tests.bench.run_plan import plan;"
    "plan(Path(sys.argv[1])); print(Path('/proc/self/status').read_text())"
)


async def planning(site: Site) -> Mapping[str, Outcome]:
    """Plan a long and a short log in turns, here for the time and in children for the memory."""
    long, short = site.fresh_folder(), site.fresh_folder()
    size = write_long_log(long, LONG)
    write_long_log(short, SHORT)
    works: list[float] = []
    bare: list[float] = []
    shorts: list[float] = []
    peaks: list[tuple[float, float]] = []
    for _ in range(site.size.rounds):
        bare.append(_seconds_of_bare(long))
        works.append(_seconds_of_plan(long))
        shorts.append(_seconds_of_plan(short) / SHORT)
        peaks.append((_peak(long), _peak(short)))
    note = f"{LONG} records in {size} bytes, {STEPS} steps, {OPEN_CALLS} open calls"
    return {
        WORK.name: Measured(ours=tuple(works), base=tuple(bare), notes=(note,)),
        FLAT.name: Measured(ours=tuple(work / LONG for work in works), base=tuple(shorts)),
        MEMORY.name: Measured(
            ours=tuple(ours for ours, _ in peaks), base=tuple(base for _, base in peaks)
        ),
    }


def plan(folder: Path) -> None:
    """Plan the resumption of the run in a folder, in one pass over its log."""
    store = RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), str(folder))
    decision = prepare_run_resume(store.scan(RUN), config_fingerprint=CONFIG)
    store.close()
    assert (len(decision.steps), len(decision.effects)) == (STEPS, OPEN_CALLS)


def _seconds_of_plan(folder: Path) -> float:
    start = time.perf_counter()
    plan(folder)
    return time.perf_counter() - start


def _seconds_of_bare(folder: Path) -> float:
    decode = msgspec.json.Decoder().decode
    start = time.perf_counter()
    digest = b""
    with (folder / run_file_name(RUN)).open("rb") as file:
        for line in file:
            decode(line)
            digest = hashlib.sha256(digest + line).digest()
    return time.perf_counter() - start


def _peak(folder: Path) -> float:
    """Return the most that a process of its own held; its parent's memory is not counted."""
    command = [sys.executable, "-c", _CHILD, str(folder)]
    status = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return float(fields["VmHWM"].split()[0])


MEASUREMENTS: Final = (Measurement((WORK, FLAT, MEMORY), planning),)
