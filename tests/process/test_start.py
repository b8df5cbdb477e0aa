"""Tests of the real daemon's start: what it refuses, with which code, and what it leaves alone."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from protocol.base.proven_content import enclose
from runnerd.core.state import STATE_SCHEMA
from tests.process.daemon import STATE_FILE, Daemon, daemon, flags
from tests.runnerd.peer import TICKET, Authority, Tamper
from tests.runnerd.peer_server import serving

pytestmark = pytest.mark.process

NOWHERE = "ws://127.0.0.1:9/connect"


def stored(directory: Path, data: bytes) -> Path:
    """Write a state file as the daemon would have left it."""
    directory.mkdir(mode=0o700)
    path = directory / STATE_FILE
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def ended(*arguments: str, ticket: str | None = TICKET, **environment: str) -> Daemon:
    """Run a daemon that ends by itself."""
    with daemon(arguments, ticket=ticket, **environment) as run:
        run.wait()
        return run


@pytest.fixture(scope="module")
def good_state(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The state file of a run that was stopped while connected."""
    directory = tmp_path_factory.mktemp("good") / "state"
    with serving(Authority()) as server, daemon(flags(server.url, directory)) as run:
        server.wait_until(lambda: server.authority.connections == 1, "a welcome")
        run.signal(signal.SIGTERM)
        assert run.wait() == 75
    return (directory / STATE_FILE).read_bytes()


@pytest.mark.parametrize("flag", ["--help", "-h", "--version", "--build-metadata"])
def test_information_needs_no_ticket(flag: str) -> None:
    run = ended(flag, ticket=None)

    assert run.process.returncode == 0
    assert "runnerd" in run.stdout
    assert run.stderr == ""


def test_missing_dependency_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ModuleNotFoundError(name='msgspec')")

    run = ended(*flags(NOWHERE, tmp_path / "state"), PYTHONPATH=str(tmp_path))

    assert (run.process.returncode, run.code) == (70, "internal_fault")
    assert len(run.stderr.splitlines()) == 1
    assert "msgspec" in run.last_line


def test_folder_that_others_use_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / "cat.jpeg").touch()
    folder.chmod(0o755)

    run = ended(*flags(NOWHERE, folder))

    assert (run.process.returncode, run.code) == (73, "state_unsafe")
    assert "use an empty --state-dir" in run.last_line
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert os.listdir(folder) == ["cat.jpeg"]


def test_state_directory_is_made_private_when_it_holds_only_our_files(tmp_path: Path) -> None:
    path = stored(tmp_path / "state", b"")
    (path.parent / "runner.lock").touch(0o600)
    path.parent.chmod(0o755)

    run = ended(*flags(NOWHERE, path.parent))

    assert run.code == "state_corrupt"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_unknown_flag_ends_with_usage_and_one_line(tmp_path: Path) -> None:
    run = ended(*flags(NOWHERE, tmp_path / "state"), "--bogus", "1")

    assert run.process.returncode == 64
    assert run.stderr == (
        "runnerd: usage_invalid: '--bogus' is not a flag of this program; see runnerd --help\n"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("ticket", [None, "", "  \n"])
def test_missing_or_blank_ticket_ends_before_anything_is_written(
    tmp_path: Path, ticket: str | None
) -> None:
    run = ended(*flags(NOWHERE, tmp_path / "state"), ticket=ticket)

    assert (run.process.returncode, run.code) == (77, "ticket_missing")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "[2001:db8::1]"])
def test_plain_destination_beyond_loopback_ends_before_anything_is_written(
    tmp_path: Path, host: str
) -> None:
    run = ended(*flags(f"ws://{host}:9/connect", tmp_path / "state"))

    assert (run.process.returncode, run.code) == (64, "destination_refused")
    assert not (tmp_path / "state").exists()


def test_second_daemon_on_a_directory_ends_and_the_first_goes_on(tmp_path: Path) -> None:
    with serving(Authority()) as server, daemon(flags(server.url, tmp_path / "state")) as first:
        server.wait_until(lambda: server.authority.connections == 1, "a welcome")
        before = (tmp_path / "state" / STATE_FILE).read_bytes()

        second = ended(*flags(server.url, tmp_path / "state"))

        assert (second.process.returncode, second.code) == (73, "state_locked")
        assert str(first.pid) in second.last_line
        assert (tmp_path / "state" / STATE_FILE).read_bytes() == before
        assert len(server.peers) == 1
        first.signal(signal.SIGTERM)
        assert first.wait() == 75


def altered(good: bytes, name: str) -> bytes:
    content = json.loads(good)["content"]
    match name:
        case "empty":
            return b""
        case "zero-filled":
            return bytes(len(good))
        case "cut":
            return good[:-10]
        case "one bit":
            middle = good.index(b'"stateId":"') + 12
            return good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
        case "garbage":
            return os.urandom(2_000)
        case "tail":
            return good + b"{}"
        case "too new":
            return good.replace(b".py.v1", b".py.v2")
        case "another schema":
            return enclose("somebody.else.v1", b"{}")
        case "no schema":
            return b'{"hello":"world"}'
        case "another run":
            content["identity"]["runId"] = "run_2"
        case "cursor ahead":
            content["ackedSourceSeq"] = 7
        case "unknown member":
            content["surprise"] = 1
        case "wrong type":
            content["lifecycle"] = "asleep"
        case _:
            raise AssertionError(name)
    return enclose(STATE_SCHEMA, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("empty", "state_corrupt"),
        ("zero-filled", "state_corrupt"),
        ("cut", "state_corrupt"),
        ("one bit", "state_corrupt"),
        ("garbage", "state_corrupt"),
        ("tail", "state_corrupt"),
        ("cursor ahead", "state_corrupt"),
        ("unknown member", "state_corrupt"),
        ("wrong type", "state_corrupt"),
        ("too new", "state_version_unsupported"),
        ("another schema", "state_foreign"),
        ("no schema", "state_foreign"),
        ("another run", "state_foreign"),
    ],
)
def test_state_that_cannot_be_believed_ends_the_start_and_is_left_alone(
    tmp_path: Path, good_state: bytes, name: str, code: str
) -> None:
    data = altered(good_state, name)
    path = stored(tmp_path / "state", data)

    with serving(Authority()) as server:
        run = ended(*flags(server.url, tmp_path / "state"))

        assert (run.process.returncode, run.code) == (65, code)
        assert path.read_bytes() == data
        assert len(run.stderr.splitlines()) == 1
        assert server.peers == []


def test_state_that_others_may_read_ends_the_start_and_is_left_alone(
    tmp_path: Path, good_state: bytes
) -> None:
    path = stored(tmp_path / "state", good_state)
    path.chmod(0o644)

    run = ended(*flags(NOWHERE, tmp_path / "state"))

    assert (run.process.returncode, run.code) == (73, "state_unsafe")
    assert path.read_bytes() == good_state


@pytest.mark.parametrize("part", ["directory", "file"])
def test_symlinked_state_ends_the_start(tmp_path: Path, good_state: bytes, part: str) -> None:
    target = stored(tmp_path / "target", good_state)
    if part == "directory":
        (tmp_path / "state").symlink_to(tmp_path / "target")
    else:
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "state" / STATE_FILE).symlink_to(target)

    run = ended(*flags(NOWHERE, tmp_path / "state"))

    assert (run.process.returncode, run.code) == (73, "state_unsafe")
    assert target.read_bytes() == good_state


@pytest.mark.parametrize("lifecycle", ["stopped", "revoked"])
def test_state_that_is_over_ends_well_without_a_connection(
    tmp_path: Path, good_state: bytes, lifecycle: str
) -> None:
    content = json.loads(good_state)["content"] | {"lifecycle": lifecycle}
    stored(tmp_path / "state", enclose(STATE_SCHEMA, json.dumps(content).encode()))

    with serving(Authority()) as server:
        run = ended(*flags(server.url, tmp_path / "state"))

        assert (run.process.returncode, run.stderr) == (0, "")
        assert server.peers == []


def test_ticket_comes_from_a_file_that_is_then_gone(tmp_path: Path) -> None:
    ticket = tmp_path / "ticket"
    ticket.write_text(TICKET + "\n")
    ticket.chmod(0o600)
    with serving(Authority()) as server:
        arguments = [*flags(server.url, tmp_path / "state"), "--ticket-file", str(ticket)]
        with daemon(arguments, ticket=None) as run:
            server.wait_until(lambda: server.authority.connections == 1, "a welcome")

            run.signal(signal.SIGTERM)

            assert run.wait() == 75
        assert not ticket.exists()


def test_diagnostics_directory_keeps_the_last_words(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.mkdir(mode=0o700)
    (words / "runnerd.stderr.log").write_text("earlier")
    arguments = ["--diagnostics-directory", str(words)]
    with serving(Authority()) as server:
        server.tamper = Tamper(response=lambda response: False)
        run = ended(*flags(server.url, tmp_path / "state"), *arguments)

    assert (run.process.returncode, run.code) == (75, "bootstrap_consumed")
    assert [path.name for path in words.iterdir()] == ["runnerd.stderr.log"]
    log = words / "runnerd.stderr.log"
    assert log.read_text().startswith("runnerd: bootstrap_consumed: ")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["absent", "open to others", "file", "symlink"])
def test_diagnostics_directory_is_refused_when_it_is_not_private(tmp_path: Path, kind: str) -> None:
    words = tmp_path / "words"
    if kind == "open to others":
        words.mkdir()
        words.chmod(0o755)
    elif kind == "file":
        words.write_text("")
    elif kind == "symlink":
        (tmp_path / "real").mkdir(mode=0o700)
        words.symlink_to(tmp_path / "real")

    run = ended(*flags(NOWHERE, tmp_path / "state"), "--diagnostics-directory", str(words))

    assert (run.process.returncode, run.code) == (64, "usage_invalid")
    assert "--diagnostics-directory" in run.last_line
