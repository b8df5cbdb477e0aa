"""What both ends hold in memory after few and after many events.

It decides when is looked. It refuses to guess what the memory is used for.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.ours import our_controller
from tests.bench.runner import agent_run
from tests.bench.site import Measurement, Site

RUNNER = Figure(
    name="memory-runner",
    what="memory of runnerd after many events, over after few (RSS; both in the notes)",
    unit="KiB resident",
    goal=Goal("<=", 1.1),
)
CONTROLLER = Figure(
    name="memory-controller",
    what="memory of our controller after many events of one run, over after few (RSS)",
    unit="KiB resident",
    goal=Goal("<=", 1.1),
)


class Footprint(msgspec.Struct, frozen=True):
    """Of one process, in KiB."""

    rss: int
    pss: int
    private: int

    def __str__(self) -> str:
        return f"RSS {self.rss}, PSS {self.pss}, private {self.private} KiB"


def footprint(pid: int) -> Footprint:
    """Return what the kernel counts; raises OSError where it does not say."""
    fields = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )

    def kib(name: str) -> int:
        return int(fields[name].split()[0])

    return Footprint(kib("Rss"), kib("Pss"), kib("Private_Clean") + kib("Private_Dirty"))


async def memory(site: Site) -> Mapping[str, Outcome]:
    """Look at both ends twice in the life of one run, and repeat with other processes."""
    looks: list[tuple[Footprint, Footprint, Footprint, Footprint]] = []
    for number in range(site.size.memory_rounds):
        looks.append(await _look(site))
        runner, controller = looks[-1][2:]
        site.tell(f"round {number + 1}: runner {runner}; controller {controller}")
    return {
        RUNNER.name: _outcome(site, [(first, last) for first, _, last, _ in looks]),
        CONTROLLER.name: _outcome(site, [(first, last) for _, first, _, last in looks]),
    }


async def _look(site: Site) -> tuple[Footprint, Footprint, Footprint, Footprint]:
    directory = site.fresh_folder()
    async with our_controller(directory / "ours") as ours, agent_run(ours, directory) as run:
        await run.print_lines(site.size.little - run.events)
        little = footprint(run.pid), footprint(ours.pid)
        await run.print_lines(site.size.much - run.events)
        return *little, footprint(run.pid), footprint(ours.pid)


def _outcome(site: Site, looks: list[tuple[Footprint, Footprint]]) -> Measured:
    first, last = looks[-1]
    return Measured(
        ours=tuple(float(much.rss) for _, much in looks),
        base=tuple(float(little.rss) for little, _ in looks),
        notes=(f"after {site.size.little}: {first}", f"after {site.size.much}: {last}"),
    )


MEASUREMENTS = (Measurement((RUNNER, CONTROLLER), memory),)
