"""Tests that ticket and lease token are nowhere where others could find them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.daemon import REPOSITORY, TICKET_VARIABLE, daemon, flags
from tests.process.test_life import event_types, with_turn
from tests.runnerd.peer import LEASE_TOKEN, TICKET
from tests.runnerd.peer_server import serving

pytestmark = pytest.mark.process

SECRETS = (TICKET.encode(), LEASE_TOKEN.encode())

_PROBE = """
import ctypes, os, resource
from runnerd.ticket import capture
captured = capture()
assert captured.token == b"bootstrap_probe" and captured.is_overwritten
assert "bootstrap_probe" not in repr(captured)
assert "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET" not in os.environ
assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0, "PR_GET_DUMPABLE"
print("done", flush=True)
input()
"""


def shown(pid: int, name: str) -> bytes:
    """Return what the kernel shows of a process, nothing if it shows it to nobody."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except PermissionError:
        return b""


def test_captured_ticket_is_gone_from_the_environment_of_a_living_process() -> None:
    environ = {**os.environ, TICKET_VARIABLE: "bootstrap_probe", "ZZ_LAST": "kept"}
    probe = subprocess.Popen(
        [sys.executable, "-c", _PROBE],
        cwd=REPOSITORY,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert probe.stdout is not None
    assert probe.stdout.readline() == "done\n"

    block = shown(probe.pid, "environ")

    assert b"bootstrap_probe" not in block
    assert not block or b"ZZ_LAST=kept" in block, "only the one value was overwritten"
    probe.communicate("\n")
    assert probe.returncode == 0


def test_secrets_are_in_no_file_no_output_no_argument_and_no_environment(tmp_path: Path) -> None:
    authority = with_turn("env; cat /proc/self/environ; read x || sleep 60")
    with serving(authority) as server:
        arguments = [*flags(server.url, tmp_path / "state"), "--log-level", "debug"]
        with daemon(arguments) as run:
            server.wait_until(lambda: "item.delta" in event_types(authority), "output")
            views = {name: shown(run.pid, name) for name in ("environ", "cmdline", "comm", "maps")}
            run.signal(signal.SIGTERM)
            run.wait()

    views["stderr"] = run.stderr.encode()
    views["events"] = b"".join(message.body for message in authority.events)
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            views[path.name] = path.read_bytes()
    for name, view in views.items():
        for secret in SECRETS:
            assert secret not in view, name
    assert b"RUNNERD_LAUNCH" in views["events"], "the harness did print its environment"
