"""Tests of `runnerd inspect`: what it says, how it refuses, and that it touches nothing."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from protocol.base.posix_fs import LOCK_FILE_NAME, LockOwner, PosixFilesystem, SystemEntropy
from protocol.base.proven_content import enclose
from protocol.envelope import Deliver
from protocol.errors import PrpError
from runnerd.core.inputs import HarnessSpawned
from runnerd.core.state import STATE_SCHEMA, Durable
from runnerd.harness.proc import boot_id, read_process
from runnerd.inspecting import run_inspect
from runnerd.io.state_file import STATE_FILE_NAME, StateFile
from tests.runnerd.core.world import BIRTH, SETTINGS, World


def stored(directory: Path, durable: Durable) -> Path:
    store = StateFile(PosixFilesystem(), SystemEntropy(), str(directory), SETTINGS)
    store.open()
    store.replace(durable)
    store.close()
    # The record names this process, which lives; a daemon ends with its lock.
    (directory / LOCK_FILE_NAME).unlink()
    return directory


def with_turn() -> World:
    world = World()
    world.connect()
    world.prepare()
    world.control(Deliver(world.command("turn.start")))
    return world


def shown(capfd: pytest.CaptureFixture[str], directory: Path) -> dict[str, object]:
    assert run_inspect(["--state-dir", str(directory), "--json"]) == 0
    report: dict[str, object] = json.loads(capfd.readouterr().out)
    return report


def part(report: dict[str, object], name: str) -> dict[str, object]:
    return msgspec.convert(report[name], dict[str, object])


def looks(directory: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Return everything of a directory that a change would show in."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino, mode(path))
        for path in directory.iterdir()
    } | {".": (b"", directory.stat().st_mtime_ns, directory.stat().st_ino, mode(directory))}


def mode(path: Path) -> int:
    return path.stat().st_mode


def test_inspect_shows_the_state_and_what_a_restart_would_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = with_turn()
    directory = stored(tmp_path / "state", world.durable)

    report = shown(capfd, directory)

    state = part(report, "state")
    newest = world.durable.next_source_seq - 1
    assert part(state, "cursors") == {"produced": newest, "acked": 0, "offered": newest}
    outbox = part(state, "outbox")
    assert outbox["events"] == len(world.durable.outbox)
    assert outbox["bytes"] == world.runner.live.outbox_bytes
    assert part(outbox, "byPriority") == {"p0": 2, "p1": 2}
    assert part(state, "commands")["pending"] == ["3 turn.start cmd_3"]
    assert part(state, "turn")["process"] == "unknown"
    assert part(report, "restart")["outlook"] == "resumes"
    assert part(report, "restart")["indeterminateCommands"] == ["cmd_3"]
    assert (report["now"], part(report, "daemon")["status"]) == (None, "not_running")


def test_inspect_tells_whether_the_recorded_process_lives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = with_turn()
    own = read_process(os.getpid(), boot_id())
    assert own is not None
    world.feed(HarnessSpawned(world.durable.generation, own.birth))
    alive = stored(tmp_path / "alive", world.durable)
    world = with_turn()
    world.feed(HarnessSpawned(world.durable.generation, BIRTH))
    gone = stored(tmp_path / "gone", world.durable)

    lives = [
        part(part(shown(capfd, directory), "state"), "turn")["process"]
        for directory in (alive, gone)
    ]

    assert lives == ["running", "not_running"]


def test_inspect_leaves_every_byte_mode_and_time_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = stored(tmp_path / "state", with_turn().durable)
    directory.chmod(0o755)
    (directory / f".runner-state.json.{'0' * 32}.tmp").write_bytes(b"left over")
    before = looks(directory)

    shown(capfd, directory)
    run_inspect(["--state-dir", str(directory)])

    assert looks(directory) == before


def test_inspect_of_an_empty_directory_creates_nothing_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = shown(capfd, tmp_path)

    assert report["state"] is None
    assert part(report, "restart")["outlook"] == "begins_new"
    assert list(tmp_path.iterdir()) == []


def test_inspect_works_while_the_lock_is_held_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = StateFile(PosixFilesystem(), SystemEntropy(), str(tmp_path), SETTINGS)
    store.open()
    store.replace(with_turn().durable)
    before = looks(tmp_path)

    report = shown(capfd, tmp_path)

    assert part(report, "daemon")["status"] == "running"
    assert part(report, "daemon")["pid"] == os.getpid()
    assert report["now"] == "state_locked"
    assert looks(tmp_path) == before
    store.close()


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (b"", "unknown"),
        (b"{", "unknown"),
        (b'{"pid":0,"startTicks":1,"bootId":"b"}\n', "unknown"),
        (b'{"pid":1}\n', "unknown"),
        (b'{"pid":1,"startTicks":1,"bootId":"b","host":"of another machine"}\n', "unknown"),
        (b'{"pid":1,"startTicks":1,"bootId":"of another boot"}\n', "not_running"),
    ],
)
def test_owner_is_judged_by_birth_and_never_guessed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], record: bytes, status: str
) -> None:
    lock = tmp_path / LOCK_FILE_NAME
    lock.write_bytes(record)
    lock.chmod(0o600)

    assert part(shown(capfd, tmp_path), "daemon")["status"] == status


def test_owner_with_another_start_is_another_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / LOCK_FILE_NAME
    record = LockOwner(pid=os.getpid(), start_ticks=1, boot_id=boot_id())
    lock.write_text(
        json.dumps({"pid": record.pid, "startTicks": record.start_ticks, "bootId": record.boot_id})
    )
    lock.chmod(0o600)

    assert part(shown(capfd, tmp_path), "daemon")["status"] == "not_running"


@pytest.mark.parametrize(
    ("content", "code", "status"),
    [
        (b"", "state_corrupt", 65),
        (b"{}", "state_foreign", 65),
        (enclose("another.state.v1", b"{}"), "state_foreign", 65),
        (enclose(STATE_SCHEMA.removesuffix("1") + "9", b"{}"), "state_version_unsupported", 65),
        (enclose(STATE_SCHEMA, b"{}"), "state_corrupt", 65),
        (enclose(STATE_SCHEMA, b"[" * 5000), "state_corrupt", 65),
    ],
)
def test_state_that_a_start_refuses_is_named_with_status_and_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, code: str, status: int
) -> None:
    file = tmp_path / STATE_FILE_NAME
    file.write_bytes(content)
    file.chmod(0o600)
    before = looks(tmp_path)

    assert run_inspect(["--state-dir", str(tmp_path), "--json"]) == status

    output = capfd.readouterr()
    refused = json.loads(output.out)["refused"]
    assert (refused["code"], refused["exitStatus"]) == (code, status)
    assert refused["remedy"]
    assert output.err.startswith(f"runnerd: {code}: ")
    assert looks(tmp_path) == before


def test_state_that_others_may_read_is_refused_as_a_start_refuses_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = stored(tmp_path / "state", with_turn().durable)
    (directory / STATE_FILE_NAME).chmod(0o644)

    assert run_inspect(["--state-dir", str(directory)]) == 73
    assert capfd.readouterr().err.startswith("runnerd: state_unsafe: ")


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("way", ["shared", "symlink"])
def test_directory_that_a_start_refuses_is_refused_with_its_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], way: str, has_state: bool
) -> None:
    directory = tmp_path / "state"
    if has_state:
        stored(directory, with_turn().durable)
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    (directory / "photo").touch()
    if way == "symlink":
        (directory / "photo").unlink()
        (tmp_path / "link").symlink_to(directory)
        directory = tmp_path / "link"
    before = looks(directory)

    assert run_inspect(["--state-dir", str(directory)]) == 73

    told = capfd.readouterr().err
    assert looks(directory) == before
    with pytest.raises(PrpError) as start:
        StateFile(PosixFilesystem(), SystemEntropy(), str(directory), SETTINGS).open()
    assert told.startswith(f"runnerd: state_unsafe: {start.value.message}; ")


def test_text_of_a_state_cannot_move_the_cursor_of_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = with_turn()
    odd = msgspec.structs.replace(world.durable, diagnostics=("\x1b[2Jgone\r\n",))
    directory = stored(tmp_path / "state", odd)

    assert run_inspect(["--state-dir", str(directory)]) == 0

    output = capfd.readouterr().out
    assert "?[2Jgone" in output
    assert all(character.isprintable() or character == "\n" for character in output)


@pytest.mark.parametrize(
    "arguments",
    [[], ["--json"], ["--state-dir"], ["--state-dir", ""], ["--state-dir", "d", "--run-id", "r"]],
)
def test_inspect_refuses_arguments_that_it_does_not_take(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_inspect(arguments) == 64
    assert "runnerd: usage_invalid: " in capfd.readouterr().err


def test_directory_that_is_not_there_is_named_missing_and_not_made(tmp_path: Path) -> None:
    assert run_inspect(["--state-dir", str(tmp_path / "absent")]) == 65
    assert not (tmp_path / "absent").exists()
