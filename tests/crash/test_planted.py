"""The crash check must notice each planted bug, and by the invariant that the bug breaks."""

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.base import atomic_file
from protocol.base.atomic_file import AtomicFile
from protocol.base.ports import Entropy, Filesystem
from tests.crash import sweep
from tests.crash.planted import PATCHES, Patch, load_with
from tests.crash.saves import Factory, Machine, new_file, real_file

pytestmark = pytest.mark.crash


def every_violation(make_file: Factory) -> Iterator[str]:
    machine = Machine(make_file)
    yield from sweep.power_losses(machine)
    yield from sweep.process_deaths(Machine(make_file, uses_recover=False))
    yield from sweep.errors(machine, errno.EIO, loses_power=False)
    yield from sweep.short_transfers(machine, errno.ENOSPC)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_crash_check_fails_when_a_bug_is_planted(
    patch: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = load_with(patch, tmp_path)

    def make_file(fs: Filesystem, entropy: Entropy) -> AtomicFile:
        made: AtomicFile = new_file(planted.AtomicFile, fs, entropy)
        return made

    if patch.module is not atomic_file:
        monkeypatch.setattr(atomic_file, "open_private_directory", planted.open_private_directory)
        make_file = real_file

    first = next(every_violation(make_file), "no violation")

    assert first.startswith(patch.dies_by)


def test_crash_check_passes_when_nothing_is_planted() -> None:
    assert list(itertools.islice(every_violation(real_file), 3)) == []
