"""What happens to a run, as lines for a person.

It decides the words for each event and each change of the runner. It refuses to know where
the lines go and what follows from an event.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from controller_mock.core.view import RunView
from controller_mock.io.supervisor import Report, RunnerStarted
from controller_mock.storage.store import StoredEvent
from protocol.base.clock import UnixMs
from protocol.canonical_json import JsonValue

_TOPIC_WIDTH: Final = 10
_QUIET: Final = frozenset({"item.delta", "item.started", "item.completed", "harness.starting"})
"""Events that a line would only repeat: output is shown as such, the rest by what follows."""

Payload = Mapping[str, JsonValue]


class Timeline:
    """Writes one line per fact, each with the time of day and a topic."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], UnixMs]) -> None:
        self._write = write
        self._now = now
        self._was_connected = False

    def note(self, topic: str, words: str) -> None:
        """Write one line, and further ones for further lines of ``words``."""
        seconds, ms = divmod(self._now(), 1000)
        time = datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S")
        first, *more = [printable(line) for line in words.splitlines()] or [""]
        self._write(f"{time}.{ms:03d} {topic:<{_TOPIC_WIDTH}} {first}\n")
        for line in more:
            self._write(f"{'':{len(time) + 4}} {'':<{_TOPIC_WIDTH}} {line}\n")

    def event(self, event: StoredEvent) -> None:
        """Write what a person should know of a committed event."""
        if event.event_type in _QUIET:
            return
        payload = payload_of(event)
        describe = _EVENTS.get(event.event_type)
        topic, words = ("event", event.event_type) if describe is None else describe(payload)
        self.note(topic, words)

    def connection(self, view: RunView) -> None:
        """Write when the runner's connection comes or goes."""
        if view.connected == self._was_connected:
            return
        self._was_connected = view.connected
        if not view.connected:
            self.note("runner", "disconnected")
        elif view.connection_count == 1:
            self.note("runner", "connected")
        else:
            self.note("runner", f"connected again (connection {view.connection_count})")

    def runner(self, report: Report) -> None:
        """Write when the runner's process starts or ends."""
        if isinstance(report, RunnerStarted):
            again = "" if report.attempt == 1 else f", start {report.attempt}, with a fresh ticket"
            self.note("runner", f"process {report.pid} started{again}")
            return
        end = report.exit
        lines = [f"process ended: {end.cause}"]
        if report.restart_in_ms is not None:
            lines[0] += f"; starting it again in {report.restart_in_ms} ms"
        elif report.remedy is not None:
            lines[0] += f"; {report.remedy}"
        if report.code is not None:
            lines.append(f"{report.code.value}: it was started again too often")
        if end.status != 0:
            # Its log is JSON, for machines; what it has to say to a person is plain text.
            lines += [f"| {line}" for line in end.stderr_tail if not line.startswith("{")]
        self.note("runner", "\n".join(lines))


def payload_of(event: StoredEvent) -> Payload:
    """Return the payload of an event, whose schema was checked when it was admitted."""
    body: JsonValue = msgspec.json.decode(event.body)
    assert isinstance(body, dict), "an event is an object"
    payload = body["payload"]
    assert isinstance(payload, dict), "a payload is an object"
    return payload


def printable(text: str) -> str:
    """Return text that cannot command the terminal it is shown on, whoever wrote it."""
    return "".join(c if c.isprintable() else "?" for c in text)


# --- words ------------------------------------------------------------------------------------


def _turn(state: str) -> Callable[[Payload], tuple[str, str]]:
    def words(payload: Payload) -> tuple[str, str]:
        reason = payload.get("message") or payload.get("reason")
        suffix = "" if reason is None else f": {reason}"
        return "turn", f"{payload.get('turnOrdinal', '?')} {state}{suffix}"

    return words


def _agent_ended(payload: Payload) -> tuple[str, str]:
    lines = [f"program ended: {_exit_words(payload.get('processExit'))}"]
    found = payload.get("processExit")
    success = isinstance(found, dict) and found.get("success") is True
    logs = payload.get("logs")
    if isinstance(logs, dict) and not success:
        dropped = logs.get("droppedLines")
        if dropped:
            lines.append(f"| ... {dropped} earlier lines of its stderr were not kept")
        kept = logs.get("lines")
        if isinstance(kept, list):
            lines += [f"| {line}" for line in kept]
    return "agent", "\n".join(lines)


def _exit_words(found: JsonValue) -> str:
    if isinstance(found, dict):
        if isinstance(found.get("signal"), int | str):
            return f"signal {found['signal']}"
        if isinstance(found.get("exitCode"), int):
            return f"exit {found['exitCode']}"
    return "nobody saw how"


def _run_ended(payload: Payload) -> tuple[str, str]:
    found = payload.get("reconciliation")
    reason = found.get("reason") if isinstance(found, dict) else None
    suffix = "" if reason is None else f" ({reason})"
    return "run", f"{payload.get('runTerminalState', 'ended')}{suffix}"


def _diagnostic(topic: str) -> Callable[[Payload], tuple[str, str]]:
    def words(payload: Payload) -> tuple[str, str]:
        code = payload.get("code") or payload.get("reasonCode") or "diagnostic"
        message = payload.get("message")
        return topic, f"{code}: {message}" if message else str(code)

    return words


_EVENTS: Final[dict[str, Callable[[Payload], tuple[str, str]]]] = {
    "runner.reconciled": lambda _: ("runner", "took up the state of its predecessor"),
    "runner.draining": lambda _: ("runner", "draining: no new turn starts"),
    "runner.diagnostic": _diagnostic("runner"),
    "workspace.ready": lambda payload: ("workspace", f"{payload.get('cwd', 'ready')}"),
    "session.started": lambda _: ("session", "started"),
    "session.resumed": lambda _: ("session", "resumed"),
    "session.closed": lambda _: ("session", "closed"),
    "harness.ready": lambda payload: (
        "agent",
        f"program started (generation {payload.get('generation', '?')})",
    ),
    "harness.exited": _agent_ended,
    "harness.diagnostic": _diagnostic("agent"),
    "turn.accepted": _turn("accepted"),
    "turn.started": _turn("started"),
    "turn.completed": _turn("completed"),
    "turn.failed": _turn("failed"),
    "turn.interrupted": _turn("interrupted"),
    "turn.cancelled": _turn("cancelled"),
    "run.result.proposed": lambda payload: ("run", f"result: {payload.get('summary', '')}"),
    "run.terminal": _run_ended,
}
