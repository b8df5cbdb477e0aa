"""Three simulated weeks of one run, over ten seconds.

It decides that a fresh process lives them each time. It refuses to know what happens in them.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.site import Measurement, Site
from tests.soak.weeks import Told

SECONDS: Final = 10.0
ROUNDS: Final = 3
THREE_WEEKS: Final = Figure(
    name="three-weeks",
    what="three simulated weeks of renewals, quiet, lost replies and reconnects, over ten seconds",
    unit="seconds",
    goal=Goal("<=", 1),
)
_ROOT: Final = Path(__file__).resolve().parents[2]


async def three_weeks(site: Site) -> Mapping[str, Outcome]:
    """Live them a few times."""
    found: list[Told] = []
    for number in range(ROUNDS):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.soak.weeks"), cwd=_ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        found.append(msgspec.json.decode(output, type=Told))
        site.tell(f"round {number + 1}: {found[-1].seconds:.1f} s")
    last = found[-1]
    note = (
        f"{last.renewals} renewals, {last.connections} connections, {last.lost_replies} lost"
        f" replies; KiB after each week: {', '.join(map(str, last.kib_after_each_week))}"
    )
    seconds = tuple(told.seconds for told in found)
    measured = Measured(ours=seconds, base=(SECONDS,) * ROUNDS, notes=(note,))
    return {THREE_WEEKS.name: measured}


MEASUREMENTS: Final = (Measurement((THREE_WEEKS,), three_weeks),)
