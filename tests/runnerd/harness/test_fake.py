"""The scripted harness: its scripts, and what it says to a runner that plays its part."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.core.harness_messages import Called, Ready
from runnerd.harness.fake_script import AwaitInterrupt, Exit, Log, read_script
from runnerd.harness.messages import read_message
from tests.runnerd.harness.support import PATIENCE_S, lives

pytestmark = pytest.mark.process

SCRIPTS = Path(__file__).parents[2] / "process" / "scripts"
NAMES = (
    "duplicate-terminal",
    "error",
    "happy-path",
    "interrupted",
    "linger",
    "oversized-line",
    "permission-input",
    "tool-call",
)


class Fake:
    """A running harness, and the runner's side of its pipes."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runnerd.harness.fake", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def tell(self, type_: str, **payload: object) -> None:
        assert self.process.stdin is not None
        command = {"schema": "x", "commandId": "c", "type": type_, "payload": payload}
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return {"type": message["type"], **message["payload"]}

    def end(self) -> tuple[int, str]:
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr.decode()


@contextmanager
def playing(folder: Path, steps: list[dict[str, Any]], *more: str) -> Generator[Fake]:
    path = folder / "script.json"
    path.write_text(
        json.dumps(
            {"schema": "paperclip.fake_harness.script.v1", "name": "of a test", "steps": steps}
        )
    )
    fake = Fake("--script", str(path), *more)
    try:
        yield fake
    finally:
        fake.process.kill()
        fake.process.communicate()


def greeted(fake: Fake) -> None:
    assert fake.hear() == {"type": "ready", "driverVersion": "1"}
    fake.tell("session.open")
    assert fake.hear()["eventType"] == "session.started"
    assert fake.hear()["eventType"] == "runtime.phase.changed"
    fake.tell("turn.start")
    assert fake.hear()["eventType"] == "turn.started"


@pytest.mark.parametrize("name", NAMES)
def test_each_fixture_is_a_script(name: str) -> None:
    script = read_script((SCRIPTS / f"{name}.json").read_bytes())

    assert script.name == name
    assert script.steps


def test_no_fixture_is_missing_from_the_list() -> None:
    assert sorted(path.stem for path in SCRIPTS.glob("*.json")) == list(NAMES)


GOOD: dict[str, object] = {"schema": "paperclip.fake_harness.script.v1", "name": "n", "steps": []}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"a":1,"a":2}',
        json.dumps({**GOOD, "schema": "other"}).encode(),
        json.dumps({**GOOD, "more": 1}).encode(),
        json.dumps({**GOOD, "steps": [{"kind": "dance"}]}).encode(),
        json.dumps({**GOOD, "steps": [{"kind": "exit"}]}).encode(),
        json.dumps({**GOOD, "steps": [{"kind": "exit", "code": 0, "more": 1}]}).encode(),
        json.dumps({**GOOD, "steps": [{"kind": "delay", "milliseconds": -1}]}).encode(),
        json.dumps(
            {**GOOD, "steps": [{"kind": "log", "stream": "stdout", "text": "x", "repeat": 10**9}]}
        ).encode(),
        b" " * 2_000_000,
    ],
)
def test_what_is_no_script_is_refused(content: bytes) -> None:
    with pytest.raises(PrpError) as refusal:
        read_script(content)

    assert refusal.value.code is ErrorCode.USAGE_INVALID


def test_steps_are_read_by_their_kind() -> None:
    steps: list[dict[str, Any]] = [
        {"kind": "await_interrupt"},
        {"kind": "log", "stream": "stderr", "text": "t"},
        {"kind": "exit", "code": 4},
    ]

    script = read_script(json.dumps({**GOOD, "steps": steps}).encode())

    assert script.steps == (AwaitInterrupt(), Log(stream="stderr", text="t"), Exit(code=4))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--script"],
        ["--script", "a", "--delay-ms"],
        ["--script", "a", "--delay-ms", "soon"],
        ["--delay-ms", "5"],
        ["--other", "a"],
    ],
)
def test_usage_is_refused_by_status_and_word(arguments: list[str]) -> None:
    status, stderr = Fake(*arguments).end()

    assert status == 64
    assert stderr.startswith("fake harness: usage_invalid: usage:")


def test_it_greets_plays_and_ends_with_its_status(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"kind": "log", "stream": "stderr", "text": "to the tail"},
        {"kind": "event", "event_type": "item.started", "payload": {"a": 1}, "item_id": "i"},
        {"kind": "result", "payload": {"r": 1}},
        {"kind": "terminal", "payload": {"t": 1}},
        {"kind": "exit", "code": 5},
        {"kind": "log", "stream": "stdout", "text": "never"},
    ]
    with playing(tmp_path, steps) as fake:
        greeted(fake)

        assert fake.hear() == {
            "type": "event",
            "eventType": "item.started",
            "payload": {"a": 1},
            "itemId": "i",
        }
        assert fake.hear() == {"type": "result", "r": 1}
        assert fake.hear() == {"type": "terminal", "t": 1}
        assert fake.end() == (5, "to the tail\n")


def test_it_passes_over_what_it_does_not_wait_for(tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"kind": "request", "request": {"requestId": "r", "requestKind": "k"}},
        {"kind": "await_resolution", "request_id": "r"},
        {"kind": "await_interrupt"},
    ]
    with playing(tmp_path, steps) as fake:
        greeted(fake)
        assert fake.hear()["requestId"] == "r"
        fake.tell("request.resolve", requestId="other")
        fake.tell("run.something")
        fake.tell("request.resolve", requestId="r", resolution={"ok": "Ü"})

        said = fake.hear()
        assert (said["type"], said["code"]) == ("diagnostic", "resolution_received")
        assert json.loads(said["message"]) == {"requestId": "r", "resolution": {"ok": "Ü"}}
        fake.tell("turn.start")
        fake.tell("run.cancel")
        assert fake.end()[0] == 0


def test_its_delays_can_be_overridden(tmp_path: Path) -> None:
    steps = [{"kind": "delay", "milliseconds": 86_400_000}]
    with playing(tmp_path, steps, "--delay-ms", "0") as fake:
        greeted(fake)

        assert fake.end()[0] == 0


def test_it_ends_when_its_runner_is_gone(tmp_path: Path) -> None:
    with playing(tmp_path, [{"kind": "await_interrupt"}]) as fake:
        greeted(fake)

        assert fake.end()[0] == 3


def test_its_worker_lives_on_in_the_same_group(tmp_path: Path) -> None:
    with playing(tmp_path, [{"kind": "spawn_worker"}, {"kind": "await_interrupt"}]) as fake:
        greeted(fake)
        said = fake.hear()
        worker = int(said["message"])

        assert said["code"] == "worker_spawned"
        assert lives(worker)
        assert os.getpgid(worker) == os.getpgid(fake.process.pid)
        os.kill(worker, 9)


def test_what_it_says_is_what_the_driver_reads(tmp_path: Path) -> None:
    call = {"requestKind": "semantic_tool", "callId": "c", "operationId": "o", "input": [1]}
    with playing(tmp_path, [{"kind": "request", "request": call}]) as fake:
        fake.tell("session.open")
        fake.tell("turn.start")
        assert fake.process.stdout is not None

        lines = [fake.process.stdout.readline() for _ in range(5)]

        messages = [read_message(line, number) for number, line in enumerate(lines, start=1)]
        assert messages[0] == Ready("1")
        assert messages[4] == Called(call_id="c", operation_id="o", input=[1])
