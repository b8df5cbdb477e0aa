"""A real daemon whose program speaks messages, and a controller that answers it."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.digest import sha256_label
from protocol.envelope import Deliver
from protocol.secrets import Secret
from tests.process.daemon import Daemon, daemon, flags
from tests.runnerd.core.talk import TOOLS
from tests.runnerd.peer import IDENTITY, Authority, command
from tests.runnerd.peer_server import PeerServer, serving

SCRIPTS = Path(__file__).with_name("scripts")
FRESH_TICKET = "bootstrap_fresh_"


class Conversation:
    """One run over any number of runner processes."""

    def __init__(self, folder: Path, server: PeerServer, run: Daemon) -> None:
        self.folder = folder
        self.server = server
        self.run = run
        self.authority = server.authority
        self.commands = 3
        self.tickets = 0

    # --- what arrived -----------------------------------------------------------------------

    def events(self, event_type: str) -> list[dict[str, Any]]:
        """Return the payloads of all events of a type, each once."""
        found = {m.event.source_seq: m.event for m in self.authority.events}
        return [
            msgspec.json.decode(event.payload)
            for _, event in sorted(found.items())
            if event.event_type == event_type
        ]

    def types(self) -> list[str]:
        found = {m.event.source_seq: m.event.event_type for m in self.authority.events}
        assert sorted(found) == list(range(1, len(found) + 1))
        return [name for _, name in sorted(found.items())]

    def wait_for(self, event_type: str, count: int = 1) -> dict[str, Any]:
        """Wait for so many events of a type and return the payload of the last."""
        self.server.wait_until(lambda: len(self.events(event_type)) >= count, event_type)
        return self.events(event_type)[count - 1]

    def terminal(self) -> dict[str, Any]:
        """Wait for the end of the run; returns how it ended, its reason among it."""
        ended = self.wait_for("run.terminal")
        assert len(self.events("run.terminal")) == 1
        return {**ended, "reason": ended["reconciliation"]["reason"]}

    def codes(self) -> list[str]:
        return [payload["code"] for payload in self.events("harness.diagnostic")]

    def heard(self) -> list[Any]:
        """Return what the scripted program says that it was answered."""
        return [
            msgspec.json.decode(payload["message"])
            for payload in self.events("harness.diagnostic")
            if payload["code"] == "resolution_received"
        ]

    # --- what is said -----------------------------------------------------------------------

    def perform(self, type_: str, payload: object = None) -> dict[str, Any]:
        """Deliver a command and return status and members of its result."""
        self.commands += 1
        given = command(self.commands, type_, payload)
        with self.server.changing():
            self.authority.pending = [given]
            self.server.newest().say(Deliver(given))
        self.server.wait_until(lambda: given.command_id in self._answered(), f"answer to {type_}")
        result = self._answered()[given.command_id]
        return {"status": result.status, "result": msgspec.json.decode(result.result)}

    def _answered(self) -> dict[str, Any]:
        return {m.result.command_id: m.result for m in self.authority.results}

    def answer_call(self, result: JsonValue, **changes: object) -> dict[str, Any]:
        """Deliver the result of the newest call."""
        call = self.events("semantic_tool.input")[-1]["semantic_tool"]
        ids = [
            m.event.source_event_id
            for m in self.authority.events
            if m.event.event_type == "semantic_tool.input"
        ]
        payload = {
            "callId": call["callId"],
            "operationId": call["operationId"],
            "inputDigest": sha256_label(canonical_bytes(call["input"])),
            "sourceEventId": ids[-1],
            "sourceEventType": "semantic_tool.input",
            "correlation": {
                "runId": IDENTITY.run_id,
                "normalizedSessionId": IDENTITY.normalized_session_id,
                "turnId": IDENTITY.turn_id,
                "itemId": IDENTITY.item_id,
            },
            "result": result,
            "isError": False,
        }
        return self.perform("semantic_tool.result", {**payload, **changes})

    # --- faults -----------------------------------------------------------------------------

    def kill_runner(self) -> None:
        """Kill the runner and prepare a ticket for the next one."""
        self.run.signal(signal.SIGKILL)
        self.run.process.wait()
        self.tickets += 1
        with self.server.changing():
            self.authority.ticket = Secret(f"{FRESH_TICKET}{self.tickets}")
            self.authority.ticket_is_used = False

    @contextmanager
    def next_runner(self) -> Generator[None]:
        """Run the next runner on the same state."""
        before = self.authority.connections
        arguments = flags(self.server.url, self.folder / "state")
        with daemon(arguments, ticket=f"{FRESH_TICKET}{self.tickets}") as self.run:
            self.server.wait_until(lambda: self.authority.connections > before, "a welcome")
            yield


@contextmanager
def conversation(
    folder: Path,
    *argv: str,
    script: str | None = None,
    prepared: dict[str, object] | None = None,
    **provider: object,
) -> Generator[Conversation]:
    """Run a daemon that starts a turn at once with this program or this script.

    Args:
        prepared: further members of `run.prepare`.
    """
    named: dict[str, object] = {"kind": "jsonl", "argv": list(argv), "cwd": str(folder)}
    if script is not None:
        named |= {
            "argv": [sys.executable, "-m", "runnerd.harness.fake"],
            "script": str(SCRIPTS / f"{script}.json"),
        }
    authority = Authority(
        pending=[
            command(
                1,
                "run.prepare",
                {"provider": named | provider, "authorizedTools": TOOLS, **(prepared or {})},
            ),
            command(2, "session.open"),
            command(3, "turn.start", {"input": "Grüße\r\n"}),
        ]
    )
    with (
        serving(authority) as server,
        daemon(flags(server.url, folder / "state")) as run,
    ):
        server.wait_until(lambda: authority.connections == 1, "a welcome")
        made = Conversation(folder, server, run)
        server.wait_until(lambda: len(authority.results) == 3, "the start of the turn")
        yield made
    made.run.kill()


def program_pids(launch_prefix: str) -> list[int]:
    """Return living processes whose environment carries a launch mark of a run."""
    wanted = f"RUNNERD_LAUNCH={launch_prefix}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            block = (folder / "environ").read_bytes()
        except OSError:
            continue
        if any(entry.startswith(wanted) for entry in block.split(b"\0")):
            found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]
