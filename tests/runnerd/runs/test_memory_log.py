"""A log in memory decides the same conflicts as one on a disk, and keeps nothing."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.journal import RunAppender
from runnerd.runs.memory_log import MemoryLog
from runnerd.runs.records import Durability, RunRecord
from runnerd.runs.run_writer import Boundary
from tests.runnerd.runs.logs import RUN, record, store_in

STEPS: tuple[tuple[RunRecord, str], ...] = (
    (record(2), "run_state_conflict"),
    (record(1), "ok"),
    (record(1), "ok"),
    (record(1, {"n": 9}), "run_state_conflict"),
    (record(2, {"event": {}}), "run_state_corrupt"),
    (record(2, run_id="other"), "run_state_corrupt"),
    (record(2), "ok"),
    (record(1), "ok"),
    (record(0), "run_state_conflict"),
    (record(4), "run_state_conflict"),
    (record(3), "ok"),
)


def answers(log: RunAppender) -> list[str]:
    found: list[str] = []
    for given, _ in STEPS:
        try:
            log.append(given, Durability.ORDINARY)
        except PrpError as error:
            found.append(error.code.value)
        else:
            found.append("ok")
    return found


def test_log_in_memory_answers_as_one_on_a_disk(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = store.open_run(RUN)
    memory = MemoryLog(RUN)

    assert answers(run) == answers(memory) == [answer for _, answer in STEPS]
    assert tuple(run.records()) == memory.records
    assert run.facts == memory.facts
    run.close()
    store.close()


def test_log_in_memory_makes_nothing_critical() -> None:
    log = MemoryLog(RUN)

    with pytest.raises(PrpError) as caught:
        log.append(record(1), Durability.CRITICAL)

    assert caught.value.code is ErrorCode.DURABILITY_UNSUPPORTED
    assert log.records == ()
    assert log.append(record(1), Durability.ORDINARY).boundary is Boundary.PROCESS_MEMORY
