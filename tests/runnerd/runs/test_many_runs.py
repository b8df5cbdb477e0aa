"""Twenty runs at once in one folder, half of their processes killed (issue: durable runs)."""

import os
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from runnerd.runs.run_log import LogFormat
from tests.runnerd.runs.logs import record, store_in

pytestmark = pytest.mark.process

RUNS = 20
WRITER = """
import sys
from pathlib import Path
from runnerd.runs.records import Durability
from tests.runnerd.runs.logs import record, store_in
run_id = sys.argv[2]
run = store_in(Path(sys.argv[1])).open_run(run_id)
sequence = 0
while sequence < int(sys.argv[3]):
    sequence += 1
    critical = sequence % 3 == 1
    durability = Durability.CRITICAL if critical else Durability.ORDINARY
    run.append(record(sequence, {"text": "x" * (sequence * 37 % 5000)}, run_id=run_id), durability)
    print(sequence, flush=True)
run.close()
print("done", flush=True)
"""


def start(folder: Path, run_id: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), run_id, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_every_chain_verifies_when_half_of_the_writers_are_killed(tmp_path: Path) -> None:
    draws = random.Random(7)
    killed = set(draws.sample(range(RUNS), RUNS // 2))
    said: dict[str, int] = {}
    with ExitStack() as stack:
        writers = {
            f"run-{number}": stack.enter_context(
                start(tmp_path, f"run-{number}", 10_000 if number in killed else 60)
            )
            for number in range(RUNS)
        }
        heard: dict[str, list[str]] = {run_id: [] for run_id in writers}
        for number in killed:
            run_id = f"run-{number}"
            output = writers[run_id].stdout
            assert output is not None
            heard[run_id] += [output.readline() for _ in range(draws.randrange(1, 60))]
            writers[run_id].kill()
        for run_id, writer in writers.items():
            assert writer.stdout is not None
            heard[run_id] += writer.stdout.readlines()
            said[run_id] = max(int(line) for line in heard[run_id] if line != "done\n")

    store = store_in(tmp_path)
    assert len(store.list_runs()) == RUNS
    for number in range(RUNS):
        run_id = f"run-{number}"
        run = store.open_run(run_id)
        log = store.read(run_id)
        assert log.end.log_format is LogFormat.CHAINED
        assert log.end.is_torn is False
        assert len(log.records) == run.facts.last_sequence
        # What a killed process had said is there, and at most the record that it was at.
        extra = len(log.records) - said[run_id]
        assert extra in ((0, 1) if number in killed else (0,))
        assert all(
            found == record(place, {"text": "x" * (place * 37 % 5000)}, run_id=run_id)
            for place, found in enumerate(log.records, start=1)
        )
        run.close()
    store.close()
