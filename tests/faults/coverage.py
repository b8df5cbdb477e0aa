"""The table of faults and their tests: how it is read, and what would make it untrue.

It decides which ids there are and when one counts as covered. It refuses to judge a test: whoever
adds a line has read that the test injects the fault, sees it injected and asserts the outcome.
"""

import ast
import enum
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.simulator.registry import sometimes_of

TESTS: Final = Path(__file__).resolve().parents[1]
TABLE: Final = Path(__file__).with_name("coverage.txt")


class Part(enum.StrEnum):
    """Who has to bear a fault."""

    RUNNER = "runner"
    CONTROLLER = "controller"
    RUNS = "runs"


class Lane(enum.StrEnum):
    """How a fault is brought about."""

    SIM = "sim"
    """Histories of the simulator; the fact says that a batch has seen it."""
    SWEEP = "sweep"
    """At every place where it can strike, one after the other."""
    REAL = "real"
    """Real processes, files, sockets, signals."""
    SCRIPT = "script"
    """One process, in which the test plays whatever surrounds the product."""
    REVIEW = "review"
    """No test can decide; a person has read it."""


TESTED: Final = (Lane.SWEEP, Lane.REAL, Lane.SCRIPT)


class Cover(msgspec.Struct, frozen=True):
    """One line of the table."""

    lane: Lane
    name: str
    """``FILE::NAME`` of a test, ``STACK: FACT`` of the simulator, or words of a reviewer."""

    @property
    def node(self) -> str:
        """The test as pytest names it, from the root of the repository."""
        file, _, name = self.name.partition("::")
        return f"tests/{file}::{name if name[:1].isupper() else f'test_{name}'}"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One id of the catalogue."""

    id: str
    section: str
    words: str
    parts: tuple[Part, ...]
    covers: tuple[Cover, ...]
    open: Mapping[Part, str]

    def lanes(self, part: Part) -> tuple[Lane, ...]:
        """Return the lanes in which a part is shown to bear it, in the order of `Lane`."""
        found = {cover.lane for cover in self.covers if part in parts_of(cover)}
        return tuple(lane for lane in Lane if lane in found)


def _numbered(letter: str, last: int) -> tuple[str, ...]:
    return tuple(f"{letter}{number:02}" for number in range(1, last + 1))


IDS: Final[tuple[str, ...]] = (
    *("none", "socket-drop", "lost-ack", "duplicate-command", "runner-restart"),
    *("harness-restart", "malformed-input", "lease-expiry", "storage-pressure", "drain", "revoke"),
    *_numbered("S", 20),
    *(*_numbered("P", 9), *_numbered("T", 4), *_numbered("U", 3)),
    *_numbered("W", 15),
    *(*_numbered("K", 12), *_numbered("A", 10)),
    *_numbered("H", 11),
    *(*_numbered("M", 8), *_numbered("V", 5)),
    *(*_numbered("L", 11), *_numbered("J", 2), *_numbered("O", 1), *_numbered("G", 7)),
)
"""Faults 4.1 to 4.7, then the rows of the runner's own state machines."""

_BOTH: Final = (Part.RUNNER, Part.CONTROLLER)
_PLACES: Final[tuple[tuple[str, tuple[Part, ...]], ...]] = (
    ("controller_mock/console/test_live_run.py", _BOTH),
    ("controller_mock/", (Part.CONTROLLER,)),
    ("storage/", (Part.CONTROLLER,)),
    ("runnerd/runs/", (Part.RUNS,)),
    ("runnerd/harness/test_recorder.py", (Part.RUNS,)),
    ("crash/test_run_log_sweep.py", (Part.RUNS,)),
    ("crash/test_session_sweep.py", (Part.RUNS,)),
    ("crash/test_checkpoint_sweep.py", (Part.RUNS,)),
    ("process/test_sessions.py", (Part.RUNS,)),
    ("process/test_tools.py", _BOTH),
    ("process/test_owner_epoch.py", _BOTH),
    ("protocol/base/", (Part.RUNNER,)),
    ("protocol/", _BOTH),
    ("simulator/", _BOTH),
    ("soak/", _BOTH),
    ("fuzz/", tuple(Part)),
)


def parts_of(cover: Cover) -> tuple[Part, ...]:
    """Return who bears the fault in a test of this file, or in this stack."""
    match cover.lane:
        case Lane.REVIEW:
            return tuple(Part)
        case Lane.SIM:
            return _BOTH if cover.name.startswith("full: ") else (Part.RUNNER,)
        case _:
            found = (parts for place, parts in _PLACES if cover.name.startswith(place))
            return next(found, (Part.RUNNER,))


# --- reading ------------------------------------------------------------------------------------


def read_table(text: str) -> tuple[Fault, ...]:
    """Read the table; ValueError names the first line that is none of it."""
    section = ""
    head: tuple[str, str, tuple[Part, ...]] | None = None
    found: list[Fault] = []
    covers: list[Cover] = []
    missing: dict[Part, str] = {}

    def finish() -> None:
        if head is not None:
            name, words, parts = head
            found.append(
                Fault(
                    id=name,
                    section=section,
                    words=words,
                    parts=parts,
                    covers=tuple(covers),
                    open=dict(missing),
                )
            )
        covers.clear()
        missing.clear()

    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            if line.startswith("== "):
                finish()
                head, section = None, line.removeprefix("== ")
            elif line.startswith("  "):
                first, _, rest = line.strip().partition(" ")
                if head is None or not rest:
                    raise ValueError("it belongs to no id, or says nothing")
                if first == "open":
                    part, _, why = rest.partition(": ")
                    missing[Part(part)] = why
                else:
                    covers.append(Cover(Lane(first), rest))
            else:
                finish()
                names, _, words = line.partition(" | ")
                name, *parts = names.split()
                head = (name, words, tuple(Part(part) for part in parts))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    finish()
    return tuple(found)


def faults() -> tuple[Fault, ...]:
    """Return the table of this checkout."""
    return read_table(TABLE.read_text())


# --- what would make it untrue ------------------------------------------------------------------


def problems(table: Iterable[Fault]) -> Iterator[str]:
    """Yield what is wrong: an id, a name that is no test, a part that nothing speaks of."""
    table = tuple(table)
    ids = [fault.id for fault in table]
    yield from (f"{name} is no id of the catalogue" for name in ids if name not in IDS)
    yield from (f"{name} has no line" for name in IDS if name not in ids)
    yield from (f"{name} has two lines" for name in sorted(set(ids)) if ids.count(name) > 1)
    for fault in table:
        if not fault.words or not fault.parts:
            yield f"{fault.id} does not say what happens or whom it concerns"
        yield from (
            f"{fault.id} names what is not there: {cover.lane} {cover.name}"
            for cover in fault.covers
            if not is_there(cover)
        )
        for part in fault.parts:
            has_test = any(lane in TESTED for lane in fault.lanes(part))
            if not has_test and not fault.open.get(part):
                yield f"{fault.id} has neither a test nor a reason for the {part}"
        yield from (
            f"{fault.id} is open for the {part}, which it does not concern"
            for part in fault.open
            if part not in fault.parts
        )


def is_there(cover: Cover) -> bool:
    """Tell whether what a line names exists."""
    if cover.lane is Lane.REVIEW:
        return True
    if cover.lane is Lane.SIM:
        stack, _, fact = cover.name.partition(": ")
        return stack in ("short", "full") and fact in sometimes_of(stack)
    file, _, name = cover.node.partition("::")
    return name in _tests_in(TESTS.parent / file)


@functools.cache
def _tests_in(file: Path) -> frozenset[str]:
    """Return the names that pytest would collect at the top of a file."""
    if not file.is_file():
        return frozenset()
    names: set[str] = set()
    for statement in ast.parse(file.read_text()).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case _:
                continue
    return frozenset(name for name in names if name.lower().startswith("test"))
