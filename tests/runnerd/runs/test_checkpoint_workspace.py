"""Paths of a workspace: links are followed, and none leads out, before and after the capture."""

import os
from pathlib import Path

import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.errors import ErrorCode
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.workspaces import NOW, WRITE, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.file()
    (site.workspace / "sub").mkdir()
    (site.workspace / "out").symlink_to(site.outside)
    (site.workspace / "file_out").symlink_to(site.outside / "theirs.txt")
    (site.workspace / "up").symlink_to("..")
    (site.workspace / "loop").symlink_to("loop")
    os.mkfifo(site.workspace / "fifo")
    (site.outside / "theirs.txt").write_text("theirs")
    return site


@pytest.mark.parametrize(
    "path",
    [
        "../outside/theirs.txt",
        "sub/../../outside/theirs.txt",
        "out/theirs.txt",
        "out/new.txt",
        "file_out",
        "up/outside/theirs.txt",
        "/etc/passwd",
        "/",
        ".",
        "sub/..",
        "up/workspace",
        "loop",
        "loop/notes.txt",
        "notes.txt/below",
        "absent/../notes.txt",
        "a\0b",
        "fifo",
        "sub",
        "n" * 256,
    ],
)
def test_path_that_is_no_file_of_the_workspace_blocks_the_tool(site: Site, path: str) -> None:
    with refused(ErrorCode.CHECKPOINT_FAILED):
        site.checkpoints.capture(WRITE, {"path": path}, timestamp=NOW)

    assert (site.outside / "theirs.txt").read_text() == "theirs"


def test_store_inside_the_workspace_is_no_place_for_a_tool(site: Site) -> None:
    site.store = site.workspace / ".state"
    inside = site.opened()
    [record] = inside.capture(WRITE, {"path": "notes.txt"}, timestamp=NOW)
    (site.workspace / "sub" / "way").symlink_to("../.state")

    for path in (record.snapshot_file, ".state/new", "sub/way/run-a/new", ".state"):
        with refused(ErrorCode.CHECKPOINT_FAILED):
            inside.capture(WRITE, {"path": path}, timestamp=NOW)


def test_link_inside_the_workspace_is_followed_and_stays(site: Site) -> None:
    (site.workspace / "sub" / "sign").symlink_to("../notes.txt")
    record = site.saved("sub/sign")

    site.checkpoints.restore(site.changed(record))

    assert record.target_path == str(site.workspace / "notes.txt")
    assert (site.workspace / "sub" / "sign").is_symlink()
    assert (site.workspace / "notes.txt").read_text() == "old"


def test_two_ways_to_one_file_are_one_checkpoint(site: Site) -> None:
    (site.workspace / "sign").symlink_to("notes.txt")
    paths = {
        "a": "notes.txt",
        "b": "sign",
        "c": "./sub/../notes.txt",
        "d": str(site.workspace / "notes.txt"),
        "e": "up/workspace/notes.txt",
    }

    records = site.checkpoints.capture(WRITE, dict(paths), timestamp=NOW, path_fields=list(paths))

    assert len(records) == 1


def test_workspace_that_is_reached_over_a_link_is_the_same(site: Site, tmp_path: Path) -> None:
    (tmp_path / "sign").symlink_to("workspace")
    record = site.saved()
    site.workspace = tmp_path / "sign"

    site.opened().restore(site.changed(record))

    assert (site.workspace / "notes.txt").read_text() == "old"


@pytest.mark.parametrize("is_outside", [True, False])
def test_link_that_took_the_place_of_a_directory_is_not_followed(
    site: Site, tmp_path: Path, is_outside: bool
) -> None:
    site.file("sub/theirs.txt")
    record = site.changed(site.saved("sub/theirs.txt"))
    other = site.outside if is_outside else site.workspace / "other"
    (site.workspace / "sub").rename(site.workspace / "other")
    (site.outside / "theirs.txt").write_text("new")
    (site.workspace / "sub").symlink_to(other)

    code = ErrorCode.CHECKPOINT_FAILED if is_outside else ErrorCode.CHECKPOINT_CONFLICT
    with refused(code):
        site.checkpoints.restore(record)

    assert (other / "theirs.txt").read_text() == "new"


def test_link_that_took_the_place_of_the_file_is_not_followed(site: Site) -> None:
    record = site.changed(site.saved())
    (site.workspace / "notes.txt").unlink()
    (site.outside / "theirs.txt").write_text("new")
    (site.workspace / "notes.txt").symlink_to(site.outside / "theirs.txt")

    with refused(ErrorCode.CHECKPOINT_FAILED):
        site.checkpoints.restore(record)

    assert (site.outside / "theirs.txt").read_text() == "new"


def test_other_names_of_a_file_keep_what_the_tool_left(site: Site) -> None:
    (site.workspace / "second").hardlink_to(site.workspace / "notes.txt")
    record = site.changed(site.saved())

    site.checkpoints.restore(record)

    assert (site.workspace / "notes.txt").read_text() == "old"
    assert (site.workspace / "second").read_text() == "new"


def test_file_that_cannot_be_read_blocks_the_tool(site: Site) -> None:
    class Failing(PosixFilesystem):
        def read(self, descriptor: int, size_max: int) -> bytes:
            raise PermissionError(13, "no")

    site.fs = Failing()

    with refused(ErrorCode.CHECKPOINT_FAILED):
        site.opened().capture(WRITE, {"path": "notes.txt"}, timestamp=NOW)


def test_workspace_that_is_gone_blocks_the_tool(site: Site, tmp_path: Path) -> None:
    for workspace in (tmp_path / "absent", tmp_path / "workspace" / "notes.txt", Path("relative")):
        site.workspace = workspace
        with refused(ErrorCode.CHECKPOINT_FAILED):
            site.opened().capture(WRITE, {"path": "notes.txt"}, timestamp=NOW)
