"""`./dev bench`: measure what was promised, as ratios taken in turns in one run.

It decides which figures are measured, what is printed and the exit status. It refuses to
judge a figure that was missed: that is said, and the exit status is still 0.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench import (
    cost,
    full_outbox,
    latency,
    memory,
    run_log,
    run_plan,
    startup,
    throughput,
    weeks,
)
from tests.bench.figures import Failed, Figure, Measured, Outcome, as_json, table
from tests.bench.site import FULL, LONG, QUICK, Measurement, Site

MEASUREMENTS: Final[tuple[Measurement, ...]] = (
    *throughput.MEASUREMENTS,
    *latency.MEASUREMENTS,
    *startup.MEASUREMENTS,
    *memory.MEASUREMENTS,
    *cost.MEASUREMENTS,
    *run_log.MEASUREMENTS,
    *run_plan.MEASUREMENTS,
    *full_outbox.MEASUREMENTS,
    *weeks.MEASUREMENTS,
)
EXIT_MEASURED: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 64
EXIT_INTERRUPTED: Final = 130


def main(argv: Sequence[str]) -> int:
    """Measure and return 0 unless a measurement broke."""
    arguments = _arguments(argv)
    figures = [figure for each in MEASUREMENTS for figure in each.figures]
    if arguments.list:
        print("\n".join(f"{figure.name:28}{figure.what}" for figure in figures))
        return EXIT_MEASURED
    wanted = _wanted(figures, arguments.only)
    if not wanted:
        print(f"bench: no figure is called {' or '.join(arguments.only)}", file=sys.stderr)
        return EXIT_USAGE
    tell = Teller()
    try:
        outcomes = _measured(wanted, arguments, tell)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    report = [(figure, outcomes[figure.name]) for figure in wanted]
    print(table(report))
    print(f"\n{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} at the end")
    missed = [each.name for each, outcome in report if _is_missed(each, outcome)]
    if missed:
        print(f"missed: {', '.join(missed)}")
    if arguments.json is not None:
        arguments.json.write_bytes(as_json(report) + b"\n")
    failed = any(isinstance(outcome, Failed) for _, outcome in report)
    return EXIT_FAILED if failed else EXIT_MEASURED


class Teller:
    """Tells a person on standard error what is being measured."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, words: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f}s  {words}", file=sys.stderr, flush=True)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=(__doc__ or "").partition("\n")[0]
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="few and small samples")
    size.add_argument("--long", action="store_true", help="the longest history")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only figures whose name holds this; repeat for more",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--list", action="store_true", help="list the figures and exit")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="measure on this folder's disk (default: that of temporary files)",
    )
    return parser.parse_args(argv)


def _wanted(figures: Sequence[Figure], only: Sequence[str]) -> list[Figure]:
    if not only:
        return list(figures)
    return [figure for figure in figures if any(part in figure.name for part in only)]


def _measured(
    wanted: Sequence[Figure], arguments: argparse.Namespace, tell: Teller
) -> Mapping[str, Outcome]:
    names = {figure.name for figure in wanted}
    size = QUICK if arguments.quick else LONG if arguments.long else FULL
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="runnerd-bench-", dir=arguments.dir) as directory:
        site = Site(Path(directory), size, tell)
        for measurement in MEASUREMENTS:
            if names.isdisjoint(figure.name for figure in measurement.figures):
                continue
            tell(", ".join(figure.name for figure in measurement.figures))
            outcomes |= _outcomes(measurement, site)
    return outcomes


def _outcomes(measurement: Measurement, site: Site) -> Mapping[str, Outcome]:
    try:
        return asyncio.run(_measure(measurement, site))
    except Exception as error:  # noqa: BLE001 - a broken measurement must not hide the others
        traceback.print_exc(file=sys.stderr)
        reason = f"{type(error).__name__}: {error}"
        return {figure.name: Failed(reason) for figure in measurement.figures}


async def _measure(measurement: Measurement, site: Site) -> Mapping[str, Outcome]:
    return await measurement.measure(site)


def _is_missed(figure: Figure, outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Measured)
        and figure.goal is not None
        and not figure.goal.holds(outcome.ratio)
    )


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main(sys.argv[1:]))
