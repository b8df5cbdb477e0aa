"""What every store on a disk must do: survive its process, exclude another, fail by name."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller_mock.core.state import restore
from controller_mock.storage.store import Store
from protocol.errors import ErrorCode, PrpError
from tests.controller_mock.core.world import CONFIG, digest_of
from tests.storage.changes import RUN, events
from tests.storage.child import BATCH, BODY, write_until_full
from tests.storage.kinds import DURABLE, StoreKind
from tests.storage.test_contract import eventful, in_any_order

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


@pytest.fixture(params=DURABLE, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    found: StoreKind = request.param
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def child(kind: StoreKind, place: Path, role: str) -> "subprocess.Popen[str]":
    """Start a process that owns the store at a place."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.storage.child", kind.name, str(place), role],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    """Return the next fact that the process reports."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: "subprocess.Popen[str]") -> None:
    """End a process without any clean-up of its own, and read nothing more from it."""
    process.kill()
    process.communicate(timeout=TIMEOUT_S)


def check_history(store: Store, at_least: int) -> int:
    """Return how many events the store has: whole commits, each event intact."""
    found = store.events(RUN, 0, 1_000_000)
    assert len(found) >= at_least
    assert len(found) % BATCH == 0
    assert [event.source_seq for event in found] == list(range(1, len(found) + 1))
    assert all(bytes(event.body) == BODY for event in found)
    assert [event.digest for event in found] == [
        digest_of(seq).hex() for seq in range(1, len(found) + 1)
    ]
    assert store.load_run(RUN)[1].row.acked_source_seq == len(found)
    return len(found)


def test_everything_is_there_when_the_place_is_opened_again(kind: StoreKind, place: Path) -> None:
    world = eventful()
    store = kind.open(place)
    store.create_run(CONFIG)
    store.commit([(RUN, tuple(world.written))])
    seen = (store.events(RUN, 0, 100), store.commands(RUN), store.credentials(RUN))
    store.close()

    store = kind.open(place)

    assert in_any_order(restore(*store.load_run(RUN)).durable) == in_any_order(world.run.durable)
    assert (store.events(RUN, 0, 100), store.commands(RUN), store.credentials(RUN)) == seen
    with pytest.raises(PrpError) as caught:
        store.create_run(CONFIG)
    assert caught.value.code is ErrorCode.RUN_EXISTS
    store.close()
    store.close()


def test_a_place_has_one_owner_in_a_process(kind: StoreKind, place: Path) -> None:
    store = kind.open(place)

    with pytest.raises(PrpError) as caught:
        kind.open(place)

    assert caught.value.code is ErrorCode.STATE_LOCKED
    store.create_run(CONFIG)
    store.close()
    kind.open(place).close()


def test_a_place_has_one_owner_among_processes(kind: StoreKind, place: Path) -> None:
    holder = child(kind, place, "hold")
    assert line_of(holder) == "opened"
    second = child(kind, place, "hold")
    assert second.communicate(timeout=TIMEOUT_S)[0].split() == ["state_locked"]
    with pytest.raises(PrpError) as caught:
        kind.open(place)
    assert caught.value.code is ErrorCode.STATE_LOCKED

    kill(holder)

    store = kind.open(place)
    assert store.run_ids() == [RUN]
    store.close()


def test_every_reported_commit_is_there_when_the_writer_was_killed(
    kind: StoreKind, place: Path
) -> None:
    reported = 0
    for commits in (1, 3, 40, 2, 120):
        writer = child(kind, place, "write")
        assert line_of(writer) == "opened"
        for _ in range(commits):
            reported = int(line_of(writer))
        kill(writer)

        store = kind.open(place)
        reported = check_history(store, at_least=reported)
        store.close()


def test_only_the_owner_can_reach_the_files(kind: StoreKind, place: Path) -> None:
    previous = os.umask(0)
    try:
        store = kind.open(place)
        store.create_run(CONFIG)
        store.commit([(RUN, events([1]))])
        modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in place.rglob("*")}
        store.close()
    finally:
        os.umask(previous)

    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}


def test_a_place_that_others_could_reach_is_tightened(kind: StoreKind, place: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o755)

    kind.open(place).close()

    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_place_with_a_store_of_ours_is_tightened(kind: StoreKind, place: Path) -> None:
    kind.open(place).close()
    place.chmod(0o755)

    kind.open(place).close()

    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_place_that_holds_what_others_put_there_is_refused_and_left_alone(
    kind: StoreKind, place: Path
) -> None:
    (place / "photographs").mkdir(parents=True)
    place.chmod(0o755)

    with pytest.raises(PrpError) as caught:
        kind.open(place)

    assert caught.value.code is ErrorCode.STATE_UNSAFE
    assert stat.S_IMODE(place.stat().st_mode) == 0o755
    assert os.listdir(place) == ["photographs"]


def test_a_place_that_is_a_symlink_is_refused(kind: StoreKind, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(PrpError) as caught:
        kind.open(tmp_path / "link")

    assert caught.value.code is ErrorCode.STATE_UNSAFE
    assert list((tmp_path / "real").iterdir()) == []


def test_a_full_disk_has_a_code_and_keeps_what_was_committed(kind: StoreKind, place: Path) -> None:
    writer = child(kind, place, "limited")
    assert line_of(writer) == "opened"

    code, _, last = line_of(writer).partition(" ")

    kill(writer)
    assert code == "storage_write_failed"
    assert int(last) > BATCH
    store = kind.open(place)
    assert check_history(store, at_least=int(last)) == int(last)
    store.commit([(RUN, events(range(int(last) + 1, int(last) + BATCH + 1), body=BODY))])
    check_history(store, at_least=int(last) + BATCH)
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; only root can make one."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(mounted)],
        check=False,
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("a file system of its own cannot be mounted here")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_store_goes_on_in_the_same_process_when_there_is_room_again(
    kind: StoreKind, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    store = kind.open(small_disk / "data")
    store.create_run(CONFIG)
    code, _, last = write_until_full(store).partition(" ")
    assert code == "storage_write_failed"
    seq = int(last)
    assert check_history(store, at_least=seq) == seq

    ballast.unlink()
    store.commit([(RUN, events(range(seq + 1, seq + BATCH + 1), body=BODY))])

    check_history(store, at_least=seq + BATCH)
    store.close()
    store = kind.open(small_disk / "data")
    assert check_history(store, at_least=seq + BATCH) == seq + BATCH
    store.close()


def test_readers_see_whole_commits_while_others_are_made(kind: StoreKind, place: Path) -> None:
    store = kind.open(place)
    store.create_run(CONFIG)
    faults: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                acked = store.load_run(RUN)[1].row.acked_source_seq
                found = [event.source_seq for event in store.events(RUN, 0, 1_000)]
                assert acked % BATCH == len(found) % BATCH == 0
                assert found == list(range(1, len(found) + 1))
                assert len(found) >= acked
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            faults.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(1, 40 * BATCH, BATCH):
        store.commit([(RUN, events(range(start, start + BATCH), body=BODY))])
    done.set()
    for reader in readers:
        reader.join()

    assert faults == []
    store.close()
