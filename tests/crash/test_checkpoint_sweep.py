"""No false success of checkpoint and restore: a fault at every disk call (M07, weak point 11)."""

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from runnerd.runs import checkpoint, checkpoint_workspace, run_file
from tests.crash.checkpoint_world import CheckpointWorld, Plan
from tests.crash.planted import Patch, load_with
from tests.crash.planted_logs import FILE_PATCHES
from tests.crash.stories import MakeWorld, calm, deaths, errors, lasting_errors, short_transfers
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

STORIES = [
    pytest.param(partial(CheckpointWorld, plan), id=name)
    for name, plan in (
        ("existing", Plan()),
        ("existing_ext4", Plan(mode=Mode.EXT4_LIKE)),
        ("new", Plan(before=None)),
    )
]
stories = pytest.mark.parametrize("make", STORIES)


@stories
@pytest.mark.parametrize("loses_power", [False, True])
def test_file_is_old_or_new_when_the_process_dies(make: MakeWorld, loses_power: bool) -> None:
    assert list(calm(make)) == []
    assert list(deaths(make, loses_power=loses_power)) == []


@stories
@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EINTR])
def test_restore_tells_the_truth_when_a_call_fails(
    make: MakeWorld, number: int, loses_power: bool
) -> None:
    assert list(errors(make, number, loses_power=loses_power)) == []


@stories
def test_restore_tells_the_truth_when_calls_go_on_failing(make: MakeWorld) -> None:
    assert list(lasting_errors(make, errno.EIO)) == []


@stories
def test_restore_tells_the_truth_when_transfers_are_short(make: MakeWorld) -> None:
    assert list(short_transfers(make, errno.ENOSPC)) == []


def every_violation() -> Iterator[str]:
    make = partial(CheckpointWorld, Plan())
    yield from deaths(make, loses_power=True)
    yield from errors(make, errno.EIO, loses_power=True)
    yield from short_transfers(make, errno.ENOSPC)


@pytest.mark.parametrize(
    "patch",
    [patch for patch in FILE_PATCHES if patch.module is run_file],
    ids=lambda patch: patch.name,
)
def test_sweep_fails_when_a_bug_is_planted(
    patch: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = load_with(patch, tmp_path)
    for module in (checkpoint, checkpoint_workspace):
        monkeypatch.setattr(module, "RunFolder", planted.RunFolder)

    first = next(every_violation(), "no violation")

    assert first.startswith(patch.dies_by)
