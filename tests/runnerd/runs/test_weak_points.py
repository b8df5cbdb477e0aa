"""Weak points of the original's run store that ours must not have (durable-runs 10).

Those of other parts are tested where the parts are; `weak_points` names the test of each.
"""

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.records import Durability, RunRecord
from runnerd.runs.run_log import LogFormat
from runnerd.runs.run_store import RunStore
from tests.crash.saves import CountingEntropy
from tests.runnerd.runs.logs import NOW, RUN, record, store_in
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.runnerd.runs.weak_points import WEAK_POINTS
from tests.simulator.choices import Choices, explore
from tests.simulator.disk import Disk
from tests.simulator.disk_process import DiskProcess

FILE = f"{RUN}.jsonl"
CRITICAL = Durability.CRITICAL
formats = pytest.mark.parametrize("log_format", list(LogFormat), ids=lambda kind: kind.value)

ROOT = Path(__file__).parents[3]


def test_each_weak_point_has_its_tests() -> None:
    named = [name for names in WEAK_POINTS.values() for name in names]
    missing = [name for name in named if not is_test(*name.split("::"))]

    assert missing == []
    assert {int(point.split()[0]) for point in WEAK_POINTS} == set(range(1, 12))


def is_test(path: str, name: str) -> bool:
    """Tell whether a module has a test of this name that nothing skips."""
    found = [
        node
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    return len(found) == 1 and not any("skip" in ast.dump(mark) for mark in found[0].decorator_list)


@formats
def test_second_try_is_equal_when_the_payload_holds_one_object_twice(
    tmp_path: Path, log_format: LogFormat
) -> None:
    """2: the original compares the form in memory and calls this a conflict."""
    shared: JsonValue = {"a": 1}
    store = store_in(tmp_path, new_format=log_format)
    store.append(record(1), CRITICAL)

    store.append(record(2, {"one": shared, "other": shared}), CRITICAL)
    store.append(record(2, {"other": {"a": 1}, "one": {"a": 1.0}}), CRITICAL)

    assert len(store.read(RUN).records) == 2
    store.close()


@formats
def test_second_try_is_equal_when_the_payload_holds_a_date(
    tmp_path: Path, log_format: LogFormat
) -> None:
    """2: what counts is the text that is written."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    store = store_in(tmp_path, new_format=log_format)
    store.append(record(1), CRITICAL)
    dated = record(2, payload={"at": moment})  # type: ignore[dict-item]  # no JSON

    store.append(dated, CRITICAL)
    store.append(dated, CRITICAL)

    assert store.read(RUN).records[1].payload == {"at": "2026-01-01T00:00:00Z"}
    store.close()


def test_critical_record_costs_the_same_calls_however_long_the_log_is() -> None:
    """3: the original rewrites the whole file for each."""
    disk = Disk()
    process = DiskProcess(disk)
    store = RunStore(process, CountingEntropy(), MemoryLocks(), "/runs")
    run = store.open_run(RUN)
    run.append(record(1), CRITICAL)
    costs: list[list[str]] = []

    for sequence in range(2, 200):
        before = len(process.calls)
        run.append(record(sequence), CRITICAL)
        costs.append([call.name for call in process.calls[before:]])

    assert costs == [["write", "sync", "status_of"]] * len(costs)
    assert disk.violations == []


def test_first_record_is_durable_by_name_and_later_ones_by_sync() -> None:
    """3: the original never synchronises the folder."""
    process = DiskProcess(Disk())
    run = RunStore(process, CountingEntropy(), MemoryLocks(), "/runs").open_run(RUN)
    before = len(process.calls)

    run.append(record(1), Durability.ORDINARY)

    synced = [call.subject for call in process.calls[before:] if call.name == "sync"]
    assert synced[-1] == "/runs"
    assert len(synced) == 2


def test_critical_record_takes_the_ordinary_ones_before_it_along() -> None:
    """3: the original never synchronises an ordinary record."""
    left = {*explore(records_after_power_loss, exhaustive_max=100, samples=0, seed=0)}

    # The fourth is the critical one; the fifth is ordinary, and nothing came after it.
    assert left == {4, 5}


def records_after_power_loss(choices: Choices) -> int:
    disk = Disk()
    run = RunStore(DiskProcess(disk), CountingEntropy(), MemoryLocks(), "/runs").open_run(RUN)
    for sequence in range(1, 6):
        run.append(record(sequence), CRITICAL if sequence in (1, 4) else Durability.ORDINARY)
    disk.lose_power(choices)
    store = RunStore(DiskProcess(disk), CountingEntropy(), MemoryLocks(), "/runs")
    return len(store.read(RUN).records)


@formats
def test_damaged_text_in_a_complete_record_is_refused(
    tmp_path: Path, log_format: LogFormat
) -> None:
    """5: the original puts a replacement character there and goes on."""
    store = store_in(tmp_path, new_format=log_format)
    store.append(record(1, {"text": "tidy the notes"}), CRITICAL)
    path = tmp_path / FILE
    damaged = path.read_bytes().replace(b"tidy", b"t\xffdy")
    path.write_bytes(damaged)

    for data in (damaged, damaged[:-1]):
        path.write_bytes(data)
        with pytest.raises(PrpError) as caught:
            store.read(RUN)
        assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT
        assert path.read_bytes() == data
    store.close()


def test_numbers_and_blank_lines_survive_mending_and_critical_records(tmp_path: Path) -> None:
    """5: the original writes 1e400 as null, rounds large integers, and drops blank lines."""
    line = (
        f'{{"version":1,"runId":"{RUN}","sequence":1,"timestamp":"{NOW}","kind":"start",'
        '"payload":{"big":12345678901234567890,"huge":1e400}}'
    )
    whole = line.encode() + b"\n\n \r\n"
    path = tmp_path / FILE
    path.write_bytes(whole + b'{"torn')
    store = store_in(tmp_path)

    store.append(record(2), CRITICAL)

    assert path.read_bytes().startswith(whole)
    assert [found.sequence for found in store.read(RUN).records] == [1, 2]
    store.close()


def test_deleted_file_is_noticed_and_not_only_by_its_numbers(tmp_path: Path) -> None:
    """6: a writer whose next record would be the first one is told as well."""
    store = store_in(tmp_path)
    store.append(record(1), CRITICAL)
    (tmp_path / FILE).unlink()

    with pytest.raises(PrpError) as caught:
        store.append(record(1), CRITICAL)

    assert caught.value.code is ErrorCode.RUN_STATE_CONFLICT
    assert not (tmp_path / FILE).exists()
    store.close()


def test_records_are_returned_as_they_stand_and_never_sorted(tmp_path: Path) -> None:
    """8: the original's projection sorts shuffled records."""
    store = store_in(tmp_path, new_format=LogFormat.PLAIN)
    for sequence in range(1, 4):
        store.append(record(sequence), CRITICAL)
    first, second, third = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(first + third + second)

    seen: list[RunRecord] = []
    with pytest.raises(PrpError) as caught:
        seen.extend(store.scan(RUN))

    assert caught.value.code is ErrorCode.RUN_STATE_CORRUPT
    store.close()
