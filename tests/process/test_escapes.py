"""Tools that leave their program's group and session, and are dead all the same (H04, P05)."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from protocol.secrets import Secret
from tests.process.daemon import Daemon, daemon, flags
from tests.process.test_life import FRESH_TICKET, connected, deliver, event_types, with_turn
from tests.process.test_quiet import program_pid
from tests.runnerd.harness.support import lives
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import PeerServer

pytestmark = pytest.mark.process

# Each prints the number of a process that holds standard output open and would live on.
ESCAPES = {
    "own session": "setsid sh -c 'echo $$; exec sleep 1000' &",
    "double fork": "(setsid sh -c 'echo $$; exec sleep 1000' &) &",
    "deaf": "setsid sh -c 'trap \"\" TERM HUP; echo $$; while :; do sleep 1000; done' &",
    "output closed": "setsid sh -c 'echo $$; exec sleep 1000 >&- 2>&- <&-' &",
}
escapes = pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)


def program(escape: str) -> str:
    return f"{escape} read x || sleep 1000"


def tool_pid(authority: Authority) -> int:
    [text] = [
        msgspec.json.decode(message.event.payload)["text"]
        for message in authority.events
        if message.event.event_type == "item.delta"
    ]
    return int(text)


def with_tool(
    tmp_path: Path,
    escape: str,
    ended: Callable[[PeerServer, Daemon], None],
    event: str,
) -> Daemon:
    """Start a turn with such a tool, end it, and see that the tool is dead when that is told."""
    authority = with_turn(program(escape))
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "the tool's number")
        tool = tool_pid(authority)
        assert lives(tool)
        assert os.getsid(tool) != os.getsid(program_pid(tmp_path))

        ended(server, run)

        server.wait_until(lambda: event in event_types(authority), event)
        assert not lives(tool)
        run.signal(signal.SIGTERM)
        assert run.wait() == 75
    return run


@escapes
def test_tool_in_its_own_session_is_dead_after_a_cancel(tmp_path: Path, escape: str) -> None:
    run = with_tool(
        tmp_path, escape, lambda server, _: deliver(server, 4, "run.cancel"), "run.terminal"
    )

    assert [fact["survivors"] for fact in run.facts("harness_exited")] == [0]


@escapes
def test_tool_in_its_own_session_is_dead_after_its_harness_was_killed(
    tmp_path: Path, escape: str
) -> None:
    run = with_tool(
        tmp_path,
        escape,
        lambda _server, _run: os.kill(program_pid(tmp_path), signal.SIGKILL),
        "harness.exited",
    )

    assert [fact["survivors"] for fact in run.facts("harness_exited")] == [0]


@escapes
def test_tool_in_its_own_session_is_dead_after_its_runner_was_killed(
    tmp_path: Path, escape: str
) -> None:
    authority = with_turn(program(escape))
    with connected(tmp_path, authority) as (server, run):
        server.wait_until(lambda: "item.delta" in event_types(authority), "the tool's number")
        tool, leader = tool_pid(authority), program_pid(tmp_path)
        run.signal(signal.SIGKILL)
        run.process.wait()
        assert lives(tool)
        with server.changing():
            authority.ticket, authority.ticket_is_used = Secret(FRESH_TICKET), False

        with daemon(flags(server.url, tmp_path / "state"), ticket=FRESH_TICKET) as again:
            server.wait_until(lambda: "turn.interrupted" in event_types(authority), "the report")

            assert (lives(tool), lives(leader)) == (False, False)
            again.signal(signal.SIGTERM)
            assert again.wait() == 75
        assert [fact["outcome"] for fact in again.facts("orphan_settled")] == ["ended"]
