"""No false success of a session, and no lost source: a fault at every disk call (M07, I22)."""

import errno
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from runnerd.runs import run_file
from runnerd.runs.sessions import file_backend, file_lease, files, migration
from tests.crash.planted import Patch, load_with
from tests.crash.planted_logs import FILE_PATCHES
from tests.crash.session_world import HEADER, LEGACY, TORN, Plan, SessionWorld
from tests.crash.stories import MakeWorld, calm, deaths, errors, lasting_errors, short_transfers
from tests.simulator.disk import Mode

pytestmark = pytest.mark.crash

NEW = partial(SessionWorld, Plan(is_linked=False))
MIGRATED = partial(SessionWorld, Plan(legacy=LEGACY, appends=1))
TORN_TAIL = partial(SessionWorld, Plan(version=TORN))
NOT_LINKED = partial(SessionWorld, Plan(version=HEADER, is_linked=False, appends=1))
stories = pytest.mark.parametrize(
    "make", [NEW, MIGRATED, TORN_TAIL, NOT_LINKED], ids=["new", "legacy", "torn", "not_linked"]
)


@stories
@pytest.mark.parametrize("loses_power", [False, True])
def test_session_keeps_its_promises_when_the_process_dies(
    make: MakeWorld, loses_power: bool
) -> None:
    assert list(calm(make)) == []
    assert list(deaths(make, loses_power=loses_power)) == []


@pytest.mark.parametrize(
    "plan",
    [Plan(legacy=LEGACY, mode=Mode.EXT4_LIKE, appends=1), Plan(is_linked=False, size=6000)],
    ids=["legacy_ext4", "long"],
)
def test_session_keeps_its_promises_when_power_is_lost(plan: Plan) -> None:
    assert list(deaths(partial(SessionWorld, plan), loses_power=True)) == []


@stories
@pytest.mark.parametrize(
    ("number", "loses_power"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, True)]
)
def test_session_keeps_its_promises_when_a_call_fails(
    make: MakeWorld, number: int, loses_power: bool
) -> None:
    assert list(errors(make, number, loses_power=loses_power)) == []


@stories
def test_session_keeps_its_promises_when_calls_go_on_failing(make: MakeWorld) -> None:
    assert list(lasting_errors(make, errno.EIO)) == []


@stories
def test_session_keeps_its_promises_when_transfers_are_short(make: MakeWorld) -> None:
    assert list(short_transfers(make, errno.ENOSPC)) == []


PATCHES = (
    *(patch for patch in FILE_PATCHES if patch.module is run_file),
    Patch(
        "public_name_given_before_the_target_is_read_again",
        migration,
        "    files.write_backup(session_id, legacy.source)\n",
        "    begun = encode_session(_marked(_header(session_id, legacy, plan.log, cwd, now),"
        " legacy, is_complete=False), ())\n"
        "    place = plan.place or place_of(_header(session_id, legacy, plan.log, cwd, now))\n"
        "    files.publish_version(place, begun, ErrorCode.SESSION_MIGRATION_FAILED)\n"
        "    files.publish_alias(place, session_id)\n"
        "    files.write_backup(session_id, legacy.source)\n",
        dies_by="I22",
    ),
    Patch(
        "backup_left_out",
        migration,
        "    files.write_backup(session_id, legacy.source)\n",
        "",
        dies_by="I22",
    ),
    Patch(
        "append_not_synchronised",
        file_lease,
        "            self._folder.fs.sync(self._descriptor)\n",
        "",
        dies_by="I22",
    ),
    Patch(
        "failed_append_left_behind",
        file_lease,
        "            self._publish(content)\n",
        "            pass\n",
        dies_by="I22",
    ),
    Patch(
        "public_name_removed_first",
        files,
        "            self.folder.put_in_place(temp, public)\n",
        "            self.folder.discard(public)\n"
        "            self.folder.put_in_place(temp, public)\n",
        dies_by="I22",
    ),
)


def every_violation() -> Iterator[str]:
    for make in (MIGRATED, TORN_TAIL):
        yield from deaths(make, loses_power=True)
        yield from errors(make, errno.EIO, loses_power=True)
        yield from short_transfers(make, errno.ENOSPC)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_sweep_fails_when_a_bug_is_planted(
    patch: Patch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = load_with(patch, tmp_path)
    if patch.module is run_file:
        monkeypatch.setattr(files, "RunFolder", planted.RunFolder)
    elif patch.module is files:
        monkeypatch.setattr(file_backend, "SessionFiles", planted.SessionFiles)
    elif patch.module is migration:
        monkeypatch.setattr(file_backend, "migrate", planted.migrate)
    else:
        monkeypatch.setattr(file_backend, "FileLease", planted.FileLease)

    first = next(every_violation(), "no violation")

    assert first.startswith(patch.dies_by)
