"""Twenty runs at once in one folder, half of their processes killed (issue: durable runs)."""

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.effect_facts import Verdict
from runnerd.runs.projection import ProjectionStatus, project_run
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.records import Durability, OperationState
from runnerd.runs.resume import prepare_run_resume
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.run_log import LogFormat
from runnerd.runs.run_store import RunStore
from tests.runnerd.runs import run_worker
from tests.runnerd.runs.logs import NOW, store_in

pytestmark = pytest.mark.process

RUNS = [f"run-{number}" for number in range(20)]
STEPS = [f"s{number}" for number in range(12)]
DONE = "done\n"
LEAST_LINES = 4 + 6 * len(STEPS)
"""That an attempt says before it is done."""


def start(folder: Path, run_id: str) -> "subprocess.Popen[str]":
    arguments = [str(folder / "runs"), run_id, str(folder / "ledger"), str(len(STEPS))]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runnerd.runs.run_worker", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def attempts(
    folder: Path, run_ids: Iterable[str], killed: set[str], draws: random.Random
) -> dict[str, list[str]]:
    """Make one attempt at each run, all at once, and return what each has said."""
    with ExitStack() as stack:
        workers = {run_id: stack.enter_context(start(folder, run_id)) for run_id in run_ids}
        said: dict[str, list[str]] = {run_id: [] for run_id in workers}
        for run_id in sorted(killed):
            output = workers[run_id].stdout
            assert output is not None
            # It goes on while it is heard, so it dies somewhere behind this line.
            said[run_id] += [output.readline() for _ in range(draws.randrange(LEAST_LINES))]
            workers[run_id].kill()
        for run_id, worker in workers.items():
            assert worker.stdout is not None
            said[run_id] += worker.stdout.readlines()
    return said


def written(folder: Path) -> dict[str, list[str]]:
    """Return what the outside knows: the steps of each run, in order."""
    found: dict[str, list[str]] = {run_id: [] for run_id in RUNS}
    for line in (folder / "ledger").read_text().splitlines():
        run_id, step = line.split()
        found[run_id].append(step)
    return found


def check_truth(folder: Path, store: RunStore, said: dict[str, list[str]]) -> None:
    """Compare every log with what its process said and with the outside."""
    outside = written(folder)
    for run_id, lines in said.items():
        log = store.read(run_id)
        # What a process had said is there, and at most the record that it was at.
        last = max((int(line.split()[1]) for line in lines if "record" in line), default=0)
        assert last <= len(log.records)
        assert not last or len(log.records) <= last + 1
        if not log.records:
            continue
        assert log.end.log_format is LogFormat.CHAINED
        found = project_run(log.records)
        is_over = found.operation is not None and found.operation.state is OperationState.COMPLETED
        assert is_over or (DONE not in lines and found.status is ProjectionStatus.INTERRUPTED)
        assert outside[run_id] == STEPS or not is_over

        completed = set(collect_facts(log.records).calls.completed_steps)
        decision = prepare_run_resume(log.records, config_fingerprint=run_worker.CONFIG)
        in_doubt = {each.step_id for each in decision.effects if each.verdict is Verdict.PAUSE}
        # What is not known to be done is either not done or in doubt, and then nothing goes on.
        assert completed <= set(outside[run_id]) <= completed | in_doubt
        assert (decision.plan is None) is (is_over or bool(in_doubt))


def decide_by_ledger(folder: Path, store: RunStore, run_id: str) -> None:
    """Say of each effect in doubt what the outside says of it."""
    lines = written(folder)[run_id]
    while True:
        run = store.open_run(run_id)
        facts = collect_facts(run.records())
        decision = prepare_run_resume(run.records(), config_fingerprint=run_worker.CONFIG)
        in_doubt = [each for each in decision.effects if each.verdict is Verdict.PAUSE]
        if not in_doubt:
            run.close()
            return
        effect = in_doubt[0]
        is_done = effect.step_id in lines
        record = reconcile_effect(
            facts,
            effect.effect_id,
            DecidedOutcome.COMMITTED if is_done else DecidedOutcome.NOT_DONE,
            decided_by=Decider(kind=DeciderKind.PERSON, name="the test"),
            evidence=evidence_of((folder / "ledger").read_bytes()),
            decided_at=NOW,
        )
        run.append(record, Durability.CRITICAL)
        run.close()


def test_every_chain_verifies_and_tells_the_truth_when_half_of_the_processes_are_killed(
    tmp_path: Path,
) -> None:
    draws = random.Random(7)
    killed = set(draws.sample(RUNS, len(RUNS) // 2))
    (tmp_path / "ledger").touch()
    store = store_in(tmp_path / "runs")

    said = attempts(tmp_path, RUNS, killed, draws)

    check_truth(tmp_path, store, said)
    assert {run_id for run_id in RUNS if DONE in said[run_id]} >= set(RUNS) - killed
    assert any(DONE not in said[run_id] for run_id in killed)

    # A third round finds every run at its end, and no line twice in the ledger.
    for round_kills in (set(draws.sample(sorted(killed), len(killed) // 2)), set[str]()):
        left = [run_id for run_id in RUNS if DONE not in said[run_id]]
        for run_id in left:
            decide_by_ledger(tmp_path, store, run_id)
        again = attempts(tmp_path, left, round_kills & set(left), draws)
        check_truth(tmp_path, store, again)
        said |= again
    assert written(tmp_path) == dict.fromkeys(RUNS, STEPS)
    assert all(
        project_run(store.scan(run_id)).status is ProjectionStatus.FINISHED for run_id in RUNS
    )
    store.close()
