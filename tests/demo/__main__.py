"""`./dev demo`: a real run that loses its socket and its runner, then an independent check.

It decides what a person sees of it and the exit status. It refuses to judge the run itself.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from protocol.errors import PrpError
from tests.demo import checker
from tests.demo.folder import FILES_MIN, make_folder
from tests.demo.scenario import DemoFailed, Scenario, Site, facts

FILES: Final = 2_000
FILES_MAX: Final = 100_000
TIMEOUT_S: Final = 300
_LAST_WORD_S: Final = 30

EXIT_HOLDS: Final = 0
EXIT_FALSE: Final = 1
EXIT_USAGE: Final = 64
EXIT_FAILED: Final = 70
EXIT_INTERRUPTED: Final = 130


def main(argv: Sequence[str]) -> int:
    """Run the demo and return 0 if every figure is as it should be."""
    arguments = _arguments(argv)
    root = _root(arguments.data)
    if root is None:
        print(f"demo: {arguments.data} is not an empty folder", file=sys.stderr)
        return EXIT_USAGE
    tell = Teller()
    _arm(arguments.timeout)
    site = Site(root, arguments.files)
    tell(f"making a folder of {site.files} files in {site.folder}")
    make_folder(site.folder, site.files)
    scenario = Scenario(site, tell)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    # Like Ctrl-C: what was started is ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status, fault = _performed(scenario, arguments.timeout)
    if fault is None:
        tell("checking what is on disk against sha256sum")
        report = _checked(scenario, site)
    else:
        report = {"holds": False, "figures": [], "faults": [fault]}
    report |= {"state": str(root), "seconds": tell.seconds()}
    print(json.dumps(report) if arguments.json else _table(report))
    return status if report["holds"] or status != EXIT_HOLDS else EXIT_FALSE


def _performed(scenario: Scenario, timeout_s: int) -> tuple[int, str | None]:
    """Go through the run and return the status so far, with what went wrong if it is not 0."""
    try:
        asyncio.run(_bounded(scenario, timeout_s))
    except TimeoutError:
        return EXIT_FAILED, f"not done after {timeout_s} seconds"
    except (DemoFailed, PrpError) as error:
        return EXIT_FAILED, str(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED, "interrupted"
    return EXIT_HOLDS, None


class Teller:
    """Tells a person what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return round(time.monotonic() - self._start, 1)

    def __call__(self, words: str) -> None:
        print(f"{self.seconds():7.1f}s  {words}", file=sys.stderr, flush=True)


async def _bounded(scenario: Scenario, timeout_s: int) -> None:
    async with asyncio.timeout(timeout_s):
        await scenario.perform()


def _checked(scenario: Scenario, site: Site) -> dict[str, Any]:
    known = dataclasses.asdict(facts(site, scenario.witness))
    # -I -S: not even by accident could it import anything of the project.
    done = subprocess.run(
        [sys.executable, "-I", "-S", checker.__file__],
        input=json.dumps(known).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode not in (EXIT_HOLDS, EXIT_FALSE):
        words = f"the checker itself ended with {done.returncode}"
        return {"holds": False, "figures": [], "faults": [words]}
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _table(report: dict[str, Any]) -> str:
    lines: list[str] = []
    for figure in report["figures"]:
        mark = "ok   " if figure["holds"] else "FALSE"
        value: list[object] | str | float | bool | None = figure["value"]
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        expected = "" if figure["holds"] else f"   (should be {figure['goal']})"
        lines.append(f"  {mark}  {figure['name']:<40} {shown}{expected}")
    lines += [f"  fault: {fault}" for fault in report["faults"]]
    verdict = "every figure holds" if report["holds"] else "NOT every figure holds"
    lines.append(f"{verdict}, after {report['seconds']} s; the state lies in {report['state']}")
    return "\n".join(lines)


def _arm(timeout_s: int) -> None:
    """End the process even if its own cleaning up hangs."""

    def give_up() -> None:
        print(f"demo: still not ended {_LAST_WORD_S} s after its time limit", file=sys.stderr)
        os._exit(EXIT_FAILED)

    timer = threading.Timer(timeout_s + _LAST_WORD_S, give_up)
    timer.daemon = True
    timer.start()


def _root(wanted: Path | None) -> Path | None:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="runnerd-demo-"))
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        return None
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted.resolve()


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--files", type=_count, default=FILES, metavar="N", help="default 2000")
    parser.add_argument(
        "--data", "--keep", type=Path, metavar="DIR", help="where the state lies; absent or empty"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one object")
    parser.add_argument(
        "--timeout",
        type=int,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="give the run up after so long (default: %(default)s)",
    )
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or not FILES_MIN <= int(text[:20]) <= FILES_MAX:
        words = f"must be a whole number from {FILES_MIN} to {FILES_MAX}"
        raise argparse.ArgumentTypeError(words)
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
