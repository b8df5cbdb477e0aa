"""A scripted harness that speaks messages: `python -m runnerd.harness.fake --script FILE`.

It decides nothing: it says what its script says, and waits where that waits. It refuses to
know the runner.

    ready ─session.open─▶ session.started, executing ─turn.start─▶ turn.started ─▶ the steps
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, assert_never

import msgspec

from protocol.errors import ErrorCode, ExitStatus, PrpError
from runnerd.harness.fake_script import (
    AwaitInterrupt,
    AwaitResolution,
    Delay,
    Exit,
    Log,
    Request,
    Result,
    SayEvent,
    SpawnWorker,
    Step,
    Terminal,
    read_script,
)
from runnerd.harness.messages import MESSAGE_SCHEMA

WAIT_S: Final = 10.0
RESOLUTION_WAIT_S: Final = 300.0
WORKER_LIFE_S: Final = 60
READ_BYTES: Final = 64 * 1024
ENDINGS: Final = ("turn.interrupt", "turn.stop", "run.cancel")
STDIN, STDOUT, STDERR = 0, 1, 2

GAVE_UP: Final = 3
"""Status of a harness that waited in vain, or whose runner is gone."""


class Command(msgspec.Struct):
    """One line of the runner; the schema is its business."""

    type: str
    payload: dict[str, object]


class GaveUp(Exception):
    """What was waited for did not come."""


class Player:
    """Plays one script once."""

    def __init__(self, delay_ms: int | None) -> None:
        self._delay_ms = delay_ms
        self._messages = 0
        self._unread = bytearray()

    def play(self, steps: Sequence[Step]) -> int:
        """Speak and return the exit status."""
        self._say("ready", {"driverVersion": "1"})
        self._await(lambda command: command.type == "session.open", WAIT_S)
        self._say_event("session.started", {})
        self._say_event("runtime.phase.changed", {"phase": "executing"})
        self._await(lambda command: command.type == "turn.start", WAIT_S)
        self._say_event("turn.started", {})
        for step in steps:
            if isinstance(step, Exit):
                return step.code
            self._perform(step)
        return 0

    def _perform(self, step: Step) -> None:
        match step:
            case Delay():
                wait_ms = step.milliseconds if self._delay_ms is None else self._delay_ms
                time.sleep(wait_ms / 1000)
            case Log():
                self._log(step)
            case SayEvent():
                self._say_event(step.event_type, step.payload, step.item_id)
            case Request():
                self._say("request", step.request)
            case AwaitResolution():
                self._await_resolution(step.request_id)
            case AwaitInterrupt():
                self._await(lambda command: command.type in ENDINGS, RESOLUTION_WAIT_S)
            case Result():
                self._say("result", step.payload)
            case Terminal():
                self._say("terminal", step.payload)
            case SpawnWorker():
                self._spawn_worker()
            case Exit():
                raise AssertionError("the last step is not performed")
            case _:
                assert_never(step)

    # --- saying ----------------------------------------------------------------------------

    def _say(self, type_: str, payload: dict[str, object]) -> None:
        self._messages += 1
        message = {
            "schema": MESSAGE_SCHEMA,
            "messageSeq": self._messages,
            "type": type_,
            "payload": payload,
        }
        _write(STDOUT, msgspec.json.encode(message) + b"\n")

    def _say_event(
        self, event_type: str, payload: dict[str, object], item_id: str | None = None
    ) -> None:
        said: dict[str, object] = {"eventType": event_type, "payload": payload}
        if item_id is not None:
            said["itemId"] = item_id
        self._say("event", said)

    def _log(self, step: Log) -> None:
        text = step.text * step.repeat
        if step.stream == "stderr":
            _write(STDERR, text.encode() + b"\n")
        else:
            self._say("log", {"stream": step.stream, "text": text})

    def _spawn_worker(self) -> None:
        program = f"import time; time.sleep({WORKER_LIFE_S})"
        worker = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", program), stdin=subprocess.DEVNULL
        )
        self._say("diagnostic", {"code": "worker_spawned", "message": str(worker.pid)})

    # --- hearing ---------------------------------------------------------------------------

    def _await_resolution(self, request_id: str) -> None:
        command = self._await(lambda each: request_id in _answered(each), RESOLUTION_WAIT_S)
        said = msgspec.json.encode(command.payload).decode()
        self._say("diagnostic", {"code": "resolution_received", "message": said})

    def _await(self, fits: Callable[[Command], bool], patience_s: float) -> Command:
        """Return the next command that fits; others are passed over."""
        deadline_s = time.monotonic() + patience_s
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                command = msgspec.json.decode(line, type=Command)
                if fits(command):
                    return command
                continue
            ready, _, _ = select.select([STDIN], [], [], max(0, deadline_s - time.monotonic()))
            data = os.read(STDIN, READ_BYTES) if ready else b""
            if not data:
                raise GaveUp
            self._unread += data


def _answered(command: Command) -> tuple[object, ...]:
    if command.type not in ("request.resolve", "semantic_tool.result"):
        return ()
    return command.payload.get("requestId"), command.payload.get("callId")


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def main(arguments: Sequence[str]) -> int:
    """Play the script that is named; returns the exit status."""
    try:
        path, delay_ms = _read_arguments(arguments)
        with open(path, "rb") as file:
            script = read_script(file.read())
        return Player(delay_ms).play(script.steps)
    except PrpError as error:
        _write(STDERR, f"fake harness: {error}\n".encode())
        return ExitStatus.USAGE
    except (GaveUp, OSError):
        return GAVE_UP


def _read_arguments(arguments: Sequence[str]) -> tuple[str, int | None]:
    named = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if len(arguments) % 2 or not named or set(named) - {"--script", "--delay-ms"}:
        raise PrpError(ErrorCode.USAGE_INVALID, "usage: --script FILE [--delay-ms N]")
    delay = named.get("--delay-ms")
    if "--script" not in named or (delay is not None and not delay.isdecimal()):
        raise PrpError(ErrorCode.USAGE_INVALID, "usage: --script FILE [--delay-ms N]")
    return named["--script"], None if delay is None else int(delay)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
