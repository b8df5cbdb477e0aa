"""`runnerd inspect` beside a real daemon, and after it was killed."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from protocol.secrets import Secret
from tests.process.daemon import STATE_FILE, daemon, flags
from tests.process.test_life import FRESH_TICKET, connected, event_types, with_turn

pytestmark = pytest.mark.process


Report = dict[str, Any]


def inspect(directory: Path) -> Report:
    with daemon(["inspect", "--state-dir", str(directory), "--json"], ticket=None) as looking:
        assert looking.wait() == 0
        report: Report = json.loads(looking.stdout)
        return report


def harness_alive(report: Report) -> object:
    turn: dict[str, object] = report["state"]["turn"]
    return turn["process"]


def test_inspect_beside_a_running_daemon_disturbs_nothing_and_foresees_its_restart(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "state"
    authority = with_turn("echo one; while :; do sleep 1; done")
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "output")

        beside = inspect(directory)

        assert beside["daemon"]["status"] == "running"
        assert beside["daemon"]["pid"] == run.pid
        assert beside["now"] == "state_locked"
        assert harness_alive(beside) == "running"
        assert run.process.poll() is None

        run.signal(signal.SIGKILL)
        run.process.wait()
        bytes_before = (directory / STATE_FILE).read_bytes()
        after = inspect(directory)

        assert after["daemon"]["status"] == "not_running"
        assert after["now"] is None
        assert (directory / STATE_FILE).read_bytes() == bytes_before
        foreseen: list[str] = after["restart"]["newEvents"]
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False
            known = len(authority.events)
        with daemon(flags(server.url, directory), ticket=FRESH_TICKET) as again:
            server.wait_until(
                lambda: set(foreseen) <= set(event_types(authority)[known:]), "what was foreseen"
            )
            again.signal(signal.SIGTERM)
            assert again.wait() == 75
