"""The check of run logs must notice each planted bug (faults B24 among them)."""

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnerd.runs import run_file, run_store, run_writer
from runnerd.runs.run_log import LogFormat, LogScanner
from tests.crash import log_edits, log_sweep
from tests.crash.planted import Patch, load_with
from tests.crash.planted_logs import FILE_PATCHES, READER_PATCHES
from tests.crash.run_logs import ENDING, LONG, LogMachine

pytestmark = pytest.mark.crash


def every_violation() -> Iterator[str]:
    machine = LogMachine(plan=LONG)
    yield from log_sweep.calm(machine)
    yield from log_sweep.deaths(machine, loses_power=True)
    yield from log_sweep.errors(machine, errno.EIO, loses_power=False)
    yield from log_sweep.short_transfers(machine, errno.ENOSPC)
    full = LogMachine(plan=ENDING, fills=True)
    yield from log_sweep.calm(full)
    yield from log_sweep.deaths(full, loses_power=True)


def every_misread_edit(make_reader: log_edits.MakeReader) -> Iterator[str]:
    for log_format in LogFormat:
        yield from log_edits.violations(make_reader, log_format)


@pytest.mark.parametrize("patch", FILE_PATCHES, ids=lambda patch: patch.name)
def test_sweep_fails_when_a_bug_of_the_writer_is_planted(
    patch: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = load_with(patch, tmp_path)
    if patch.module is run_file:
        monkeypatch.setattr(run_store, "RunFolder", planted.RunFolder)
    else:
        assert patch.module is run_writer
        monkeypatch.setattr(run_store, "RunWriter", planted.RunWriter)

    first = next(every_violation(), "no violation")

    assert first.startswith(patch.dies_by)


@pytest.mark.parametrize("patch", READER_PATCHES, ids=lambda patch: patch.name)
def test_edits_are_misread_when_a_bug_of_the_reader_is_planted(
    patch: Patch, tmp_path: Path
) -> None:
    planted = load_with(patch, tmp_path)

    first = next(every_misread_edit(planted.LogScanner), "no violation")

    assert first.startswith(patch.dies_by)


def test_checks_pass_when_nothing_is_planted() -> None:
    assert list(itertools.islice(every_violation(), 3)) == []
    assert list(itertools.islice(every_misread_edit(LogScanner), 3)) == []
