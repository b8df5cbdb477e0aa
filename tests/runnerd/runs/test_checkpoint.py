"""Checkpoints on the real disk: what is saved, what is put back, and what is refused."""

import os
from pathlib import Path

import msgspec
import pytest

from protocol.base.posix_fs import PosixFilesystem
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from runnerd.runs.checkpoint_records import FileState, sha256_of
from tests.runnerd.runs.refusals import refused
from tests.runnerd.runs.workspaces import NOW, WRITE, Site, declared


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_restore_brings_back_bytes_and_mode(site: Site) -> None:
    file = site.file(content=b"#!/bin/sh\n\xff\x00", mode=0o751)
    record = site.saved()
    file.chmod(0o600)

    site.checkpoints.restore(site.changed(record))

    assert file.read_bytes() == b"#!/bin/sh\n\xff\x00"
    assert file.stat().st_mode & 0o7777 == 0o751
    assert os.listdir(site.workspace) == ["notes.txt"]


def test_content_lies_in_a_private_store_and_not_in_the_record(site: Site) -> None:
    site.file(content=b"a secret of the workspace")

    record = site.changed(site.saved())

    snapshot = Path(record.snapshot_file)
    assert snapshot.parent == site.store / "run-a"
    assert [path.stat().st_mode & 0o777 for path in (snapshot, snapshot.parent)] == [0o600, 0o700]
    assert os.listdir(snapshot.parent) == [snapshot.name]
    assert b"secret" not in msgspec.json.encode(record)


def test_mark_makes_a_new_snapshot_and_writes_into_none(site: Site) -> None:
    site.file(content="before")
    record = site.saved()
    snapshot = Path(record.snapshot_file)
    with snapshot.open("rb") as first:
        before = first.read()

        site.changed(record)

        first.seek(0)
        assert first.read() == before
    assert snapshot.read_bytes() != before


def test_restore_is_refused_when_it_was_done_already(site: Site) -> None:
    file = site.file()
    record = site.changed(site.saved())
    site.checkpoints.restore(record)

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(record)

    assert file.read_text() == "old"


def test_restore_is_refused_when_someone_changed_the_file_later(site: Site) -> None:
    file = site.file()
    record = site.changed(site.saved())
    file.write_text("of a person")

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(record)
    site.checkpoints.restore(record, FileState(existed=True, sha256=sha256_of(b"of a person")))

    assert file.read_text() == "old"


def test_restore_is_refused_when_nobody_knows_what_the_tool_left(site: Site) -> None:
    file = site.file()
    record = site.saved()
    file.write_text("new")

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(record)
    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(record, FileState(existed=True))

    assert file.read_text() == "new"


class Interrupting(PosixFilesystem):
    """A disk on which somebody writes the target while its replacement is written."""

    def __init__(self) -> None:
        self.target: Path | None = None

    def change_mode(self, descriptor: int, mode: int) -> None:
        super().change_mode(descriptor, mode)
        if self.target is not None:
            self.target.write_text("at this moment")


def test_restore_is_refused_when_the_file_changes_during_it(tmp_path: Path) -> None:
    fs = Interrupting()
    site = Site(tmp_path, fs)
    file = site.file()
    record = site.changed(site.saved())
    fs.target = file

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(record)

    assert file.read_text() == "at this moment"
    assert os.listdir(site.workspace) == ["notes.txt"]


def test_new_file_is_removed_and_nothing_else_of_its_directory(site: Site) -> None:
    (site.workspace / "made").mkdir()
    record = site.saved("made/new.txt")
    site.file("made/other.txt")

    site.checkpoints.restore(site.changed(record))

    assert os.listdir(site.workspace / "made") == ["other.txt"]


def test_file_in_a_directory_that_the_tool_makes_is_removed_again(site: Site) -> None:
    record = site.saved("deep/er/new.txt")
    (site.workspace / "deep" / "er").mkdir(parents=True)

    site.checkpoints.restore(site.changed(record))

    assert os.listdir(site.workspace / "deep" / "er") == []


def test_removed_file_is_put_back(site: Site) -> None:
    file = site.file(mode=0o640)
    record = site.saved()
    file.unlink()

    applied = site.checkpoints.mark_applied(record)
    difference = site.checkpoints.diff(applied)
    site.checkpoints.restore(applied)

    assert (applied.after_existed, applied.after_sha256) == (False, msgspec.UNSET)
    assert (difference.changed, difference.before_text, difference.after_text) == (
        True,
        "old",
        msgspec.UNSET,
    )
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("old", 0o640)


def test_removed_file_whose_directory_is_gone_is_a_conflict(site: Site) -> None:
    (site.workspace / "sub").mkdir()
    file = site.file("sub/notes.txt")
    record = site.saved("sub/notes.txt")
    file.unlink()
    file.parent.rmdir()
    applied = site.checkpoints.mark_applied(record)

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.restore(applied)


def test_after_state_is_kept_when_it_is_marked_again_and_never_replaced(site: Site) -> None:
    file = site.file()
    record = site.saved()
    applied = site.changed(record)

    again = site.checkpoints.mark_applied(record)
    file.write_text("of a person")
    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.checkpoints.mark_applied(record)

    assert again == applied == site.checkpoints.load(record.checkpoint_id)


def test_file_that_the_tool_made_too_large_to_save_can_be_put_back(tmp_path: Path) -> None:
    site = Site(tmp_path, file_bytes_max=16)
    file = site.file()
    applied = site.changed(site.saved(), "x" * 100_000)

    with refused(ErrorCode.CHECKPOINT_TOO_LARGE):
        site.checkpoints.diff(applied)
    site.checkpoints.restore(applied)

    assert file.read_text() == "old"


def test_file_of_exactly_the_bound_is_saved_and_one_byte_more_blocks(tmp_path: Path) -> None:
    site = Site(tmp_path, file_bytes_max=16)
    file = site.file(content=b"x" * 16)
    site.saved()

    file.write_text("x" * 17)
    with refused(ErrorCode.CHECKPOINT_TOO_LARGE):
        site.saved()


def test_diff_of_bytes_that_are_no_text_tells_digests_alone(site: Site) -> None:
    site.file(content=b"\xff\xfe")
    difference = site.checkpoints.diff(site.changed(site.saved()))

    assert difference.changed
    assert difference.before_sha256 == sha256_of(b"\xff\xfe")
    assert difference.after_sha256 == sha256_of(b"new")
    assert (difference.before_text, difference.after_text) == (msgspec.UNSET, msgspec.UNSET)


def test_target_with_the_longest_name_is_put_back(site: Site) -> None:
    file = site.file("n" * 255)
    applied = site.changed(site.saved("n" * 255))

    site.checkpoints.restore(applied)

    assert file.read_text() == "old"


def test_tool_that_changes_nothing_leaves_no_record_and_no_store(site: Site) -> None:
    reading = declared(effect="none", replay="safe", checkpoint="none")

    assert site.checkpoints.capture(reading, {"path": "../.."}, timestamp=NOW) == ()
    assert not site.store.exists()


def test_tool_that_cannot_be_undone_leaves_a_durable_record_that_says_so(site: Site) -> None:
    shell = declared(effect="process", checkpoint="unsupported")

    [record] = site.checkpoints.capture(shell, {"path": "notes.txt"}, timestamp=NOW)

    assert not record.reversible
    assert record.reason
    assert site.opened().load(record.checkpoint_id) == record
    assert site.checkpoints.mark_applied(record) == record
    with refused(ErrorCode.CHECKPOINT_NOT_REVERSIBLE):
        site.checkpoints.restore(record)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": ""}, {"path": " "}, {"path": None}, {"path": ["a"]}, {"file": "a"}],
)
def test_call_without_a_path_blocks_the_tool(site: Site, arguments: dict[str, JsonValue]) -> None:
    with refused(ErrorCode.CHECKPOINT_FAILED):
        site.checkpoints.capture(WRITE, arguments, timestamp=NOW)


def test_call_with_too_many_paths_blocks_the_tool(site: Site) -> None:
    paths = {f"path{number}": f"file{number}" for number in range(65)}

    with refused(ErrorCode.CHECKPOINT_FAILED):
        site.checkpoints.capture(WRITE, dict(paths), timestamp=NOW, path_fields=list(paths))


def test_id_that_exists_is_refused_and_its_snapshot_stands(tmp_path: Path) -> None:
    site = Site(tmp_path, new_id=lambda: "one")
    site.file()
    first = site.saved()

    with refused(ErrorCode.CHECKPOINT_CONFLICT):
        site.saved()

    assert site.checkpoints.load("one") == first


@pytest.mark.parametrize("checkpoint_id", ["", "..", "a/b", "a\n", "ü", "a" * 161, "\0"])
def test_id_that_is_no_plain_name_is_refused(tmp_path: Path, checkpoint_id: str) -> None:
    site = Site(tmp_path, new_id=lambda: checkpoint_id)
    site.file()

    with refused(ErrorCode.INVALID_CHECKPOINT_ID):
        site.saved()
    with refused(ErrorCode.INVALID_CHECKPOINT_ID):
        site.checkpoints.load(checkpoint_id)


def test_snapshot_that_is_gone_is_not_found_by_id_and_corrupt_by_record(site: Site) -> None:
    site.file()
    record = site.changed(site.saved())
    Path(record.snapshot_file).unlink()

    with refused(ErrorCode.CHECKPOINT_NOT_FOUND):
        site.checkpoints.load(record.checkpoint_id)
    for action in (site.checkpoints.restore, site.checkpoints.diff, site.checkpoints.mark_applied):
        with refused(ErrorCode.CHECKPOINT_CORRUPT):
            action(record)


def test_snapshot_with_any_changed_byte_is_refused_and_the_file_stands(site: Site) -> None:
    file = site.file()
    record = site.changed(site.saved())
    snapshot = Path(record.snapshot_file)
    data = snapshot.read_bytes()

    for place in range(len(data)):
        snapshot.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with refused(ErrorCode.CHECKPOINT_CORRUPT):
            site.checkpoints.restore(record)
    for cut in (b"", data[:-1], data + b" "):
        snapshot.write_bytes(cut)
        with refused(ErrorCode.CHECKPOINT_CORRUPT):
            site.checkpoints.restore(record)

    assert file.read_text() == "new"


def test_record_that_was_changed_is_not_that_of_the_snapshot(site: Site) -> None:
    site.file()
    other = site.file("other.txt")
    record = site.changed(site.saved())

    for changes in ({"target_path": str(other)}, {"after_sha256": "0" * 64}, {"tool": "x"}):
        with refused(ErrorCode.CHECKPOINT_CORRUPT):
            site.checkpoints.restore(msgspec.structs.replace(record, **changes))


def test_store_that_others_may_reach_is_not_believed(site: Site) -> None:
    site.file()
    record = site.changed(site.saved())
    Path(record.snapshot_file).chmod(0o644)

    with refused(ErrorCode.STATE_UNSAFE):
        site.checkpoints.restore(record)


def test_store_that_was_moved_still_restores(site: Site) -> None:
    file = site.file()
    record = site.changed(site.saved())
    site.checkpoints.close()
    site.store = site.store.rename(site.store.with_name("moved"))

    site.opened().restore(record)

    assert file.read_text() == "old"
