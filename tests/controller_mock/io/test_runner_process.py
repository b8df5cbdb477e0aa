import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec import structs

from controller_mock.io.orphans import children
from controller_mock.io.runner_process import (
    RunnerCommand,
    RunnerProcess,
    artifact_digest,
    launch,
)
from protocol.errors import ErrorCode, PrpError
from protocol.limits import STDERR_TAIL_BYTES_MAX, STDERR_TAIL_LINES_MAX
from protocol.secrets import Secret
from tests.controller_mock.served import run_config

TICKET = "bootstrap_0123456789abcdef"


def command(script: str) -> RunnerCommand:
    config = run_config()
    return RunnerCommand(
        identity=config.identity,
        runner_version=config.runner_version,
        runner_digest=config.runner_digest,
        connect_url="ws://127.0.0.1:1/path",
        state_dir="state",
        reconnect_grace_ms=1234,
        program=(sys.executable, "-c", script),
    )


def start(script: str) -> RunnerProcess:
    return launch(command(script), Secret(TICKET), {"PATH": os.environ["PATH"]})


def test_command_line_is_the_one_of_the_specification() -> None:
    argv = command("pass").argv()

    assert argv[3:] == (
        *("--connect-url", "ws://127.0.0.1:1/path"),
        *("--state-dir", "state"),
        *("--run-id", "run-1"),
        *("--session-id", "session-run-1"),
        *("--turn-id", "turn-run-1"),
        *("--item-id", "item-run-1"),
        *("--runner-id", "runner-run-1"),
        *("--environment-lease-id", "environment-run-1"),
        *("--runner-version", "1.2.3"),
        *("--runner-digest", f"sha256:{'a' * 64}"),
        *("--reconnect-delay-ms", "250"),
        *("--reconnect-grace-ms", "1234"),
    )


@pytest.mark.process
async def test_ticket_travels_in_the_environment_and_nowhere_else() -> None:
    script = f"""
import os, sys
ticket = os.environ["PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"]
others = [*sys.argv, *(v for n, v in os.environ.items() if "TICKET" not in n)]
sys.exit(40 + (ticket == {TICKET!r}) + any(ticket in text for text in others))
"""
    process = start(script)

    end = await process.wait()

    assert (end.status, end.stderr_tail) == (41, ())


@pytest.mark.process
async def test_runner_leads_a_session_of_its_own_and_reads_nothing() -> None:
    process = start(
        "import os, sys; sys.exit(os.getsid(0) == os.getpid() and not sys.stdin.read())"
    )

    assert (await process.wait()).status == 1


@pytest.mark.process
async def test_end_by_a_signal_is_named_and_leaves_no_zombie() -> None:
    process = start("import signal; signal.pause()")

    process.kill()
    end = await process.wait()

    assert (end.status, end.cause) == (-signal.SIGKILL, "SIGKILL")
    assert process.pid not in children()


@pytest.mark.process
async def test_tail_of_stderr_is_bounded_printable_and_free_of_secrets() -> None:
    process = start(
        "import sys\n"
        "for n in range(200): print(f'line {n}', 'x' * 2000, file=sys.stderr)\n"
        "print('\\x1b[31mred', 'password=hunter2', file=sys.stderr)\n"
        "print('no end of line', end='', file=sys.stderr)\n"
    )

    tail = (await process.wait()).stderr_tail

    assert len(tail) <= STDERR_TAIL_LINES_MAX
    assert sum(len(line.encode()) for line in tail) <= STDERR_TAIL_BYTES_MAX
    assert tail[-1] == "no end of line"
    assert "\x1b" not in tail[-2]
    assert "hunter2" not in tail[-2]
    assert tail[-3].startswith("line 199 ")


@pytest.mark.process
async def test_end_is_noticed_while_a_grandchild_holds_stderr_open() -> None:
    process = start(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, file=sys.stderr)\n"
    )

    end = await process.wait()
    os.kill(int(end.stderr_tail[0]), signal.SIGKILL)

    assert end.status == 0


async def test_program_that_cannot_be_started_has_a_code() -> None:
    missing = structs.replace(command(""), program=("/no/such/runner",))

    with pytest.raises(PrpError) as caught:
        launch(missing, Secret(TICKET), {})

    assert caught.value.code is ErrorCode.RUNNER_START_FAILED
    assert TICKET not in str(caught.value)


def test_artifact_digest_follows_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("one = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    first = artifact_digest(("some_package",))

    (package / "more.py").write_text("")
    second = artifact_digest(("some_package",))

    assert first.startswith("sha256:")
    assert first != second
