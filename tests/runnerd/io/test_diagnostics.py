"""Tests of the file that a dead daemon leaves behind."""

import os
from pathlib import Path

import pytest

from protocol.base.posix_fs import SystemEntropy
from protocol.limits import DIAGNOSTICS_FILE_BYTES_MAX
from runnerd.io.diagnostics import FILE_NAME, leave_last_words


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "words"
    path.mkdir(mode=0o700)
    return path


def test_last_words_replace_the_earlier_ones_privately(directory: Path) -> None:
    (directory / FILE_NAME).write_text("earlier")
    (directory / FILE_NAME).chmod(0o644)

    assert leave_last_words(str(directory), "later\n", SystemEntropy())

    assert (directory / FILE_NAME).read_text() == "later\n"
    assert (directory / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert os.listdir(directory) == [FILE_NAME]


def test_last_words_are_redacted_and_bounded(directory: Path) -> None:
    text = "password=hunter2 " + "x" * (2 * DIAGNOSTICS_FILE_BYTES_MAX)

    assert leave_last_words(str(directory), text, SystemEntropy())

    left = (directory / FILE_NAME).read_bytes()
    assert b"hunter2" not in left
    assert len(left) == DIAGNOSTICS_FILE_BYTES_MAX


def test_symlink_under_the_name_is_replaced_not_followed(directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (directory / FILE_NAME).symlink_to(target)

    assert leave_last_words(str(directory), "words", SystemEntropy())

    assert target.read_text() == "untouched"
    assert not (directory / FILE_NAME).is_symlink()


def test_directory_that_went_away_costs_the_words_and_nothing_else(directory: Path) -> None:
    assert not leave_last_words(str(directory / "absent"), "words", SystemEntropy())

    directory.rmdir()
    directory.write_text("a file now")

    assert not leave_last_words(str(directory), "words", SystemEntropy())
    assert directory.read_text() == "a file now"
