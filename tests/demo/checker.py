"""Compares what a demo run left on disk with the folder itself.

It decides whether a run kept its promises, from files and the process table alone. It
refuses to import anything of the project, and to believe what the run said of itself.

Facts come as one JSON object on standard input, figures leave as one on standard output:

    the members of `Facts`  ->  {"holds", "figures": [{"name", "value", "goal", "holds"}],
                                 "faults": [text]}
"""

import collections
import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

COMMANDS: Final = ["run.prepare", "session.open", "turn.start", "turn.start", "runner.shutdown"]
SIGKILLED: Final = -9
_Json: TypeAlias = dict[str, Any] | list[Any] | str | float | bool | None
_BATCH: Final = 500
_FAULTS_SHOWN_MAX: Final = 20


@dataclass(frozen=True)
class Facts:
    """What the demo knows that no file says."""

    root: str
    """Everything that the demo made lies below it."""
    store: str
    runner_state: str
    folder: str
    checkpoint: str
    run_id: str
    runner_pids: list[int]
    runner_statuses: list[int]
    """Exit status of each runner process, or minus its signal, in order."""
    secrets: list[str]


@dataclass
class Report:
    """The figures and, for those that do not hold, what is wrong."""

    figures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    faults: list[str] = field(default_factory=list[str])

    def add(self, name: str, value: object, goal: object, faults: Iterable[str] = ()) -> None:
        """Record a figure; it holds if it is what it should be."""
        self._put(name, value, goal, value == goal, faults)

    def add_at_least(self, name: str, value: int, least: int) -> None:
        """Record a figure that has a lower bound."""
        self._put(name, value, f"at least {least}", value >= least, ())

    def _put(
        self, name: str, value: object, goal: object, holds: bool, faults: Iterable[str]
    ) -> None:
        self.figures.append({"name": name, "value": value, "goal": goal, "holds": holds})
        if not holds:
            self.faults += list(faults) or [f"{name}: {value!r} instead of {goal!r}"]

    def as_json(self) -> dict[str, Any]:
        """Return the report as it is printed."""
        return {
            "holds": all(figure["holds"] for figure in self.figures),
            "figures": self.figures,
            "faults": self.faults[:_FAULTS_SHOWN_MAX],
        }


@dataclass(frozen=True)
class Event:
    """A row of the store and what its body says."""

    seq: int
    id: str
    type: str
    body: dict[str, Any]

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of its body."""
        payload: _Json = self.body.get("payload")
        return payload if isinstance(payload, dict) else {}

    @property
    def line_numbers(self) -> range:
        """The output lines that it stands for; what is merged bears its last line's number."""
        if self.type != "item.delta":
            return range(0)
        last = self.payload["lineNumber"] + 1
        return range(last - str(self.payload["text"]).count("\n"), last)


def check(facts: Facts) -> dict[str, Any]:
    """Return the report of a finished run; the store is only read."""
    report = Report()
    try:
        with contextlib.closing(open_store(facts.store)) as store:
            run = _row(store, "SELECT * FROM runs WHERE run_id = ?", facts.run_id)
            events = _events(store, facts.run_id)
            commands = _rows(
                store,
                "SELECT * FROM commands WHERE run_id = ? ORDER BY controller_seq",
                facts.run_id,
            )
            tickets = _row(
                store,
                "SELECT count(*) AS used FROM credentials"
                " WHERE run_id = ? AND kind = 'bootstrap' AND used",
                facts.run_id,
            )["used"]
        with open(facts.runner_state, encoding="utf-8") as file:
            runner = json.load(file)["content"]
        _check_files(report, facts, events)
        _check_events(report, events, produced=runner["nextSourceSeq"] - 1)
        report.add("events the runner still holds", len(runner["outbox"]), 0)
        _check_facts(report, events)
        _check_commands(report, commands)
        _check_processes(report, facts, tickets, run["connection_count"])
        _check_secrets(report, facts)
    except (sqlite3.Error, OSError, ValueError, LookupError, TypeError) as error:
        report.add("state is readable", False, True, [f"{type(error).__name__}: {error}"])
    return report.as_json()


# --- the folder ---------------------------------------------------------------------------


def sha256sums(folder: str) -> dict[bytes, str]:
    """Return path and hash of every regular file, by the program `sha256sum` where there is one."""
    root = os.fsencode(folder)
    names: list[bytes] = [
        os.path.relpath(os.path.join(directory, name), root)
        for directory, _, found in os.walk(root)
        for name in found
        if not os.path.islink(os.path.join(directory, name))
    ]
    if shutil.which("sha256sum") is None:
        return {name: _sha256(os.path.join(root, name)) for name in names}
    sums: dict[bytes, str] = {}
    for start in range(0, len(names), _BATCH):
        command = [b"sha256sum", b"--zero", b"--", *names[start : start + _BATCH]]
        printed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        for line in printed.split(b"\0")[:-1]:
            sums[line[66:]] = line[:64].decode("ascii")
    return sums


def _sha256(path: bytes) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(report: Report, facts: Facts, events: list[Event]) -> None:
    sums = sha256sums(facts.folder)
    lines = [line for event in events if event.type == "item.delta" for line in _lines_of(event)]
    reported = collections.Counter(path for path, _ in lines)
    altered = sorted({path for path, found in lines if path in sums and found != sums[path]})
    missing = sorted(path for path in sums if not reported[path])
    repeated = sorted(path for path, count in reported.items() if count > 1)
    foreign = sorted(path for path in reported if path not in sums)
    exact = len(sums) - len({*altered, *missing, *repeated})
    report.add("files reported exactly once", exact, len(sums))
    report.add("files missing", len(missing), 0, _named("missing", missing))
    report.add("files reported twice", len(repeated), 0, _named("reported twice", repeated))
    report.add("files with another hash", len(altered), 0, _named("another hash", altered))
    report.add("lines about no file", len(foreign), 0, _named("no such file", foreign))
    with open(facts.checkpoint, encoding="ascii") as file:
        worked = collections.Counter(line.split("  ", 1)[1] for line in file)
    report.add("files the agent worked on once", list(worked.values()).count(1), len(sums))


def _lines_of(event: Event) -> Iterator[tuple[bytes, str]]:
    """Yield path and hash of each line; an event may stand for several."""
    text = event.payload.get("text")
    if not isinstance(text, str) or not text.endswith("\n"):
        yield f"event {event.seq}".encode(), ""
        return
    for line in text[:-1].split("\n"):
        if line[64:66] != "  ":
            yield f"event {event.seq}".encode(), ""
        else:
            yield os.fsencode(json.loads(line[66:])), line[:64]


def _named(words: str, paths: list[bytes]) -> list[str]:
    return [f"{words}: {os.fsdecode(path)!r}" for path in paths[:_FAULTS_SHOWN_MAX]]


# --- the store ----------------------------------------------------------------------------


def open_store(path: str) -> sqlite3.Connection:
    """Open the database so that not even SQLite itself writes to it."""
    log = f"{path}-wal"
    is_quiet = not os.path.exists(log) or os.path.getsize(log) == 0
    mode = "mode=ro&immutable=1" if is_quiet else "mode=ro"
    store = sqlite3.connect(f"file:{urllib.parse.quote(path)}?{mode}", uri=True)
    store.row_factory = sqlite3.Row
    return store


def _rows(store: sqlite3.Connection, query: str, *values: object) -> list[sqlite3.Row]:
    return store.execute(query, values).fetchall()


def _row(store: sqlite3.Connection, query: str, *values: object) -> sqlite3.Row:
    rows = _rows(store, query, *values)
    if len(rows) != 1:
        raise LookupError(f"{len(rows)} rows instead of one")
    return rows[0]


def _events(store: sqlite3.Connection, run_id: str) -> list[Event]:
    rows = _rows(store, "SELECT * FROM events WHERE run_id = ? ORDER BY source_seq", run_id)
    return [
        Event(
            row["source_seq"],
            row["source_event_id"],
            row["event_type"],
            json.loads(row["body"]),
        )
        for row in rows
    ]


def _check_events(report: Report, events: list[Event], produced: int) -> None:
    seqs = [event.seq for event in events]
    report.add("events stored", len(events), produced)
    report.add("sequence is contiguous from 1", seqs == list(range(1, len(seqs) + 1)), True)
    numbers = [number for event in events for number in event.line_numbers]
    is_whole = numbers == list(range(1, len(numbers) + 1))
    report.add("output lines are contiguous from 1", is_whole, True)
    report.add("events lost", len(set(range(1, max([produced, *seqs]) + 1)) - set(seqs)), 0)
    report.add("events duplicated", sum(1 for _ in _duplicates(events)), 0)
    report.add("bodies that contradict their row", sum(1 for _ in _contradictions(events)), 0)


def _duplicates(events: list[Event]) -> Iterator[Event]:
    seen: set[tuple[str, object]] = set()
    for event in events:
        names: set[tuple[str, object]] = {("seq", event.seq), ("id", event.id)}
        names.update(("line", number) for number in event.line_numbers)
        if names & seen:
            yield event
        seen |= names


def _contradictions(events: list[Event]) -> Iterator[Event]:
    for event in events:
        body = event.body
        said = (body.get("sourceSeq"), body.get("sourceEventId"), body.get("eventType"))
        if said != (event.seq, event.id, event.type):
            yield event


def _check_facts(report: Report, events: list[Event]) -> None:
    counts = collections.Counter(event.type for event in events)
    ends = [
        event.payload.get("runTerminalState") for event in events if event.type == "run.terminal"
    ]
    report.add("run.terminal events", counts["run.terminal"], 1)
    report.add("outcome of the run", ends, ["succeeded"])
    report.add("turns interrupted", counts["turn.interrupted"], 1)
    report.add("turns completed", counts["turn.completed"], 1)
    report.add("restarts reported by the runner", counts["runner.reconciled"], 1)


def _check_commands(report: Report, commands: list[sqlite3.Row]) -> None:
    completed = [row for row in commands if row["status"] == "completed"]
    report.add("commands", [row["type"] for row in commands], COMMANDS)
    report.add("commands completed", len(completed), len(commands))
    effects = [
        json.loads(row["result"]).get("result", {}).get("logicalEffectCount") for row in completed
    ]
    report.add("logical effects per completed command", sorted({str(n) for n in effects}), ["1"])


# --- processes and secrets ----------------------------------------------------------------


def _check_processes(report: Report, facts: Facts, tickets: int, connections: int) -> None:
    report.add("runner processes", len(set(facts.runner_pids)), 2)
    report.add("tickets used", tickets, 2)
    report.add("runner exits", facts.runner_statuses, [SIGKILLED, 0])
    report.add_at_least("connections authenticated", connections, 3)
    left = [f"process {pid} is left: {words}" for pid, words in processes_left(facts)]
    report.add("processes left behind", len(left), 0, left)


def processes_left(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield each live process that names the run, is in a runner's session or uses its files."""
    mine = _ancestry()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in mine:
            continue
        state, session = _state_and_session(name)
        # A zombie runs no more: what is left of it is a number for its parent.
        if state in ("", "Z", "X"):
            continue
        told = _peek(f"/proc/{name}/cmdline") + b"\0" + _peek(f"/proc/{name}/environ")
        if facts.run_id.encode() in told:
            yield int(name), "it names the run"
        elif session in facts.runner_pids:
            yield int(name), "it is in the session of a runner"
        elif any(path.startswith(facts.root + "/") for path in _files_of(name)):
            yield int(name), "it has a file of the demo open"


def _ancestry() -> set[int]:
    pids, pid = set[int](), os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        fields = _peek(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if fields else 0
    return pids


def _state_and_session(pid: str) -> tuple[str, int]:
    fields = _peek(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[3])) if fields else ("", 0)


def _files_of(pid: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield os.readlink(f"/proc/{pid}/cwd")
        for name in os.listdir(f"/proc/{pid}/fd"):
            yield os.readlink(f"/proc/{pid}/fd/{name}")


def _peek(path: str) -> bytes:
    """Return a file of the process table; nothing if the process is gone or another user's."""
    with contextlib.suppress(OSError):
        return _read(path)
    return b""


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _check_secrets(report: Report, facts: Facts) -> None:
    needles = [form for secret in facts.secrets for form in _forms(secret)]
    found = [
        f"a secret is in {path}"
        for directory, _, names in os.walk(facts.root)
        for path in (os.path.join(directory, name) for name in names)
        if os.path.isfile(path) and any(needle in _read(path) for needle in needles)
    ]
    report.add("tickets known to the demo", len(facts.secrets), 2)
    report.add("files that hold a ticket", len(found), 0, found)


def _forms(secret: str) -> list[bytes]:
    """Return the text, its random part, and the bytes behind it if that is hex."""
    random = secret.rpartition("_")[2]
    forms = [secret.encode(), random.encode()]
    with contextlib.suppress(ValueError):
        forms.append(bytes.fromhex(random))
    return forms


def main() -> int:
    """Read facts, print the report; status 1 if a figure does not hold."""
    report = check(Facts(**json.load(sys.stdin)))
    print(json.dumps(report))
    return 0 if report["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
