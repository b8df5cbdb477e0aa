"""``./dev faults``: which tests cover which fault, and the tests of some of them.

It decides what is printed. It refuses to know the table.
"""

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from tests.faults.coverage import IDS, TESTED, TESTS, Cover, Fault, Lane, faults, problems

EXIT_USAGE = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or run tests; 0 if the table is true and the tests pass."""
    parser = argparse.ArgumentParser(
        prog="./dev faults", description="Which tests cover which fault of the catalogue."
    )
    parser.add_argument("--coverage", action="store_true", help="the table, and what is open")
    parser.add_argument("--json", action="store_true", help="the table as one JSON object")
    parser.add_argument("ids", nargs="*", metavar="ID", help="run the tests of these ids")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.ids if name not in IDS]:
        print(f"faults: no fault is called {', '.join(unknown)}", file=sys.stderr)
        return EXIT_USAGE
    if asked.ids and not (asked.coverage or asked.json):
        return _run(asked.ids)
    if not asked.coverage and not asked.json:
        parser.print_help()
        return EXIT_USAGE
    wanted = [fault for fault in faults() if not asked.ids or fault.id in asked.ids]
    wrong = list(problems(faults()))
    if asked.json:
        print(as_json(wanted, wrong))
    else:
        print("\n".join(lines(wanted)))
        print("\n".join(f"WRONG {each}" for each in wrong))
    return 1 if wrong else 0


def lines(table: Sequence[Fault]) -> Iterator[str]:
    """Yield the table for a person."""
    section = ""
    for fault in table:
        if fault.section != section:
            section = fault.section
            yield f"\n{section}"
        lanes = (
            f"{part}: {' '.join(fault.lanes(part)) or ('open' if part in fault.open else '-')}"
            for part in fault.parts
        )
        yield f"\n{fault.id}  {fault.words}"
        yield f"    [{'; '.join(lanes)}]"
        yield from (f"    {cover.lane:<7} {_shown(cover)}" for cover in fault.covers)
        yield from (f"    OPEN    {part}: {why}" for part, why in fault.open.items())
    yield from _sums(table)


def _shown(cover: Cover) -> str:
    return cover.node if cover.lane in TESTED else cover.name


def _sums(table: Sequence[Fault]) -> Iterator[str]:
    counted = Counter(cover.lane for fault in table for cover in fault.covers)
    tests = {cover.node for fault in table for cover in fault.covers if cover.lane in TESTED}
    yield "\n" + ", ".join(f"{lane} {counted[lane]}" for lane in Lane)
    yield f"{len(table)} ids, {len(tests)} tests"
    still = [(fault.id, part, why) for fault in table for part, why in fault.open.items()]
    yield f"still open: {len(still)}"
    yield from (f"    {name:<18} {part:<11} {why}" for name, part, why in still)


def as_json(table: Sequence[Fault], wrong: Sequence[str]) -> str:
    """Return the table as one JSON object."""
    found = [
        {
            "id": fault.id,
            "section": fault.section,
            "what": fault.words,
            "lanes": {part: fault.lanes(part) for part in fault.parts},
            "covers": [{"lane": cover.lane, "name": _shown(cover)} for cover in fault.covers],
            "open": fault.open,
        }
        for fault in table
    ]
    told = {"faults": found, "wrong": wrong}
    return msgspec.json.format(msgspec.json.encode(told)).decode()


def _run(ids: Sequence[str]) -> int:
    """Run the tests of some ids, each once."""
    nodes = dict.fromkeys(
        cover.node
        for fault in faults()
        if fault.id in ids
        for cover in fault.covers
        if cover.lane in TESTED
    )
    return subprocess.run([sys.executable, "-m", "pytest", *nodes], cwd=TESTS.parent).returncode


if __name__ == "__main__":
    sys.exit(main())
