"""What a durable fact of a run costs, over a bare append and sync of the same bytes.

It decides how both are interleaved. It refuses to look into the log.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemEntropy
from protocol.canonical_json import JsonValue
from runnerd.runs.journal import RunJournal
from runnerd.runs.records import Durability, RecordKind
from runnerd.runs.run_log import LogFormat, encode_line, spell_record
from runnerd.runs.run_store import RunStore
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.site import Measurement, Site

CRITICAL_FACT: Final = Figure(
    name="run-log-critical-fact",
    what="a critical fact through the journal, over append and sync of the same bytes",
    unit="seconds per fact",
    goal=Goal("<=", 1.5),
)
RUN: Final = "bench"
NOW: Final = "2026-01-01T00:00:00.000Z"


async def critical_facts(site: Site) -> Mapping[str, Outcome]:
    """Append to one growing log and to one bare file, in turns."""
    folder = site.fresh_folder()
    store = RunStore(PosixFilesystem(), SystemEntropy(), PosixLocks(), str(folder / "runs"))
    run = store.open_run(RUN)
    journal = RunJournal(run)
    journal.append(RecordKind.START, {}, timestamp=NOW, durability=Durability.CRITICAL)
    count = -(-2 * site.size.burst // site.size.rounds)
    ours: list[float] = []
    bare: list[float] = []
    descriptor = _bare_file(folder / "bare")
    for number in range(site.size.rounds):
        payload = _payload(number)
        bare.append(_bare(descriptor, count, run.facts.last_sequence, journal, payload))
        ours.append(_ours(count, journal, payload))
    os.close(descriptor)
    run.close()
    store.close()
    total = count * site.size.rounds
    size = (folder / "runs" / f"{RUN}.jsonl").stat().st_size
    note = f"{total} facts in one log of {size} bytes, in {site.size.rounds} turns"
    return {CRITICAL_FACT.name: Measured(ours=tuple(ours), base=tuple(bare), notes=(note,))}


def _ours(count: int, journal: RunJournal, payload: JsonValue) -> float:
    start = time.perf_counter()
    for _ in range(count):
        journal.append(RecordKind.EVENT, payload, timestamp=NOW, durability=Durability.CRITICAL)
    return (time.perf_counter() - start) / count


def _bare(
    descriptor: int, count: int, sequence: int, journal: RunJournal, payload: JsonValue
) -> float:
    # The journal's own next record, so that both sides write as many bytes.
    record = journal.append(
        RecordKind.EVENT, payload, timestamp=NOW, durability=Durability.CRITICAL
    ).record
    assert record.sequence == sequence + 1
    line = encode_line(spell_record(record), LogFormat.CHAINED, bytes(32)).line
    start = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, line)
        os.fsync(descriptor)
    return (time.perf_counter() - start) / count


def _bare_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _payload(number: int) -> JsonValue:
    return {
        "eventId": f"event-{number}",
        "runId": RUN,
        "sequence": number + 1,
        "timestamp": NOW,
        "event": {
            "type": "effect_receipt",
            "idempotencyKey": f"{RUN}:step-{number}:call-{number}",
            "tool": "write",
            "status": "started",
            "agent": "main",
            "stepId": f"step-{number}",
            "callId": f"call-{number}",
        },
    }


MEASUREMENTS: Final = (Measurement((CRITICAL_FACT,), critical_facts),)
