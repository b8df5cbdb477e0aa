"""A program that speaks messages, as a process: ready in time, heard by request, told, ended."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.ids import Generation
from protocol.limits import HARNESS_MESSAGE_BYTES_MAX
from runnerd.core.actions import StopIntent
from runnerd.core.harness_messages import Diagnosed, Logged, Ready, Reported
from runnerd.core.inputs import HarnessSpawned, HarnessTold
from tests.runnerd.harness.support import lives, until
from tests.runnerd.harness.talk_bench import READY, SPEAK, talk_bench

pytestmark = pytest.mark.process


async def test_messages_are_heard_in_order_and_only_by_request(tmp_path: Path) -> None:
    source = READY + 'for n in range(5): say("log", stream="stdout", text=str(n))\n'
    async with talk_bench(tmp_path) as b:
        await b.speak(source)

        assert await b.messages(1) == [Ready()]
        assert b.answers.empty()
        assert await b.messages(2) == [Logged("0"), Logged("1")]
        found, end = await b.end()

        assert found == [Logged("2"), Logged("3"), Logged("4")]
        assert (end.exit.exit_code, end.violation) == (0, None)
        assert end.logs.lines == ("0", "1", "2", "3", "4")


async def test_a_program_that_speaks_faster_than_it_is_heard_has_to_wait(tmp_path: Path) -> None:
    source = READY + (
        'for n in range(4000): say("log", stream="stdout", text="x" * 1000)\n'
        'open("all_said", "w").close()\n'
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        await b.messages(3)

        await asyncio.sleep(0)
        assert not (tmp_path / "all_said").exists()

        found, _ = await b.end()
        assert len(found) == 3998
        assert (tmp_path / "all_said").exists()


async def test_a_program_that_is_never_ready_is_ended_with_its_tree(tmp_path: Path) -> None:
    source = 'import subprocess, time\nsubprocess.Popen(["sleep", "1000"])\ntime.sleep(1000)\n'
    async with talk_bench(tmp_path) as b:
        pid = await b.speak(source, ready_ms=50)

        found, end = await b.end()

        assert found == []
        assert end.violation is ErrorCode.HARNESS_NOT_READY
        assert "[it was not ready in time]" in end.logs.lines
        assert not lives(pid)
        assert b.marked() == []


async def test_ready_in_time_is_noticed_although_nobody_asks(tmp_path: Path) -> None:
    # The program sees in its own pipe that the line has been taken.
    source = (
        READY + "import fcntl, termios\n"
        "while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))): time.sleep(0.001)\n"
        'open("taken", "w").close()\n'
        'say("log", stream="stdout", text="later")\n'
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source, ready_ms=5_000)
        await until((tmp_path / "taken").exists)

        found, end = await b.end()

        assert found == [Ready(), Logged("later")]
        assert end.violation is None


@pytest.mark.parametrize(
    "first",
    [
        'say("log", stream="stdout", text="x")',
        'print("hello", flush=True)',
        "seq = 5\nsay('ready')",
        'say("event", eventType="usage.reported", payload={})',
    ],
)
async def test_anything_else_first_is_not_ready(tmp_path: Path, first: str) -> None:
    async with talk_bench(tmp_path) as b:
        await b.speak(SPEAK + first + "\ntime.sleep(1000)\n")

        found, end = await b.end()

        assert (found, end.violation) == ([], ErrorCode.HARNESS_NOT_READY)


@pytest.mark.parametrize("status", [0, 3])
async def test_a_program_that_exits_before_it_is_ready_is_only_over(
    tmp_path: Path, status: int
) -> None:
    async with talk_bench(tmp_path) as b:
        await b.speak(f"import sys; sys.exit({status})")

        found, end = await b.end()

        assert (found, end.exit.exit_code, end.violation) == ([], status, None)


@pytest.mark.parametrize(
    "bad",
    [
        'os.write(1, b"no message\\n")',
        'os.write(1, b"\\xff\\n")',
        'seq += 1\nsay("log", stream="stdout", text="x")',
        'seq -= 1\nsay("log", stream="stdout", text="x")',
        'say("hello")',
    ],
)
async def test_a_line_that_is_no_message_ends_it_after_what_was_said_before(
    tmp_path: Path, bad: str
) -> None:
    source = READY + 'say("log", stream="stdout", text="good")\n' + bad
    source += '\nsay("log", stream="stdout", text="after")\ntime.sleep(1000)\n'
    async with talk_bench(tmp_path) as b:
        await b.speak(source)

        found, end = await b.end()

        assert found == [Ready(), Logged("good")]
        assert end.violation is ErrorCode.HARNESS_MESSAGE_INVALID
        assert any(line.startswith("[message 3 is none:") for line in end.logs.lines)
        assert b.marked() == []


async def test_the_longest_message_is_heard_and_a_longer_one_is_not(tmp_path: Path) -> None:
    source = READY + (
        'say("log", stream="stdout", text="")\n'
        f"size = {HARNESS_MESSAGE_BYTES_MAX} - len(json.dumps("
        '{"schema": "paperclip.fake_harness.message.v1", "messageSeq": 3, "type": "log", '
        '"payload": {"stream": "stdout", "text": ""}}))\n'
        'say("log", stream="stdout", text="x" * size)\n'
        'say("log", stream="stdout", text="x" * (size + 1))\n'
        "time.sleep(1000)\n"
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source)

        found, end = await b.end()

        assert [type(message) for message in found] == [Ready, Logged, Logged]
        assert end.violation is ErrorCode.HARNESS_LINE_TOO_LONG


async def test_a_program_reads_what_it_is_told_once_and_in_order(tmp_path: Path) -> None:
    source = READY + (
        "while (command := hear()) is not None:\n"
        '    say("event", eventType="usage.reported", payload=command)\n'
        '    if command.get("last"): break\n'
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        await b.messages(1)

        b.tell(1, text="Grüße\r\n\U0001f600")
        b.tell(1, text="again")
        b.tell(2, large="x" * 300_000)
        b.tell(2, last=True)
        b.tell(3, last=True)
        found, _ = await b.end()

        assert [message.payload for message in found if isinstance(message, Reported)] == [
            {"text": "Grüße\r\n\U0001f600"},
            {"large": "x" * 300_000},
            {"last": True},
        ]


async def test_what_the_pipe_took_is_reported_and_what_it_did_not_is_not(tmp_path: Path) -> None:
    async with talk_bench(tmp_path) as b:
        await b.speak(READY + "time.sleep(1000)\n")
        await b.messages(1)

        b.tell(1, a=1)
        b.tell(2, large="x" * 300_000)

        assert await b.take(HarnessTold) == HarnessTold(Generation(1), 1)
        await asyncio.sleep(0)
        assert b.answers.empty()


@pytest.mark.parametrize("close", ["os.close(0)", "sys.stdin.close()"])
async def test_a_program_that_closed_its_input_is_still_heard(tmp_path: Path, close: str) -> None:
    source = READY + close + '\nsay("log", stream="stdout", text="closed")\n'
    source += 'open("go").read()\nsay("log", stream="stdout", text="still here")\n'
    os.mkfifo(tmp_path / "go")
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        await b.messages(2)

        b.tell(1, a=1)
        b.tell(2, b="x" * 300_000)
        await asyncio.to_thread((tmp_path / "go").write_text, "")
        found, end = await b.end()

        assert found == [Logged("still here")]
        assert end.exit.exit_code == 0


@pytest.mark.parametrize(
    ("intent", "command"),
    [
        ("interrupt", "turn.interrupt"),
        ("timeout", "turn.interrupt"),
        ("cancel", "run.cancel"),
        ("stop", "turn.stop"),
    ],
)
async def test_a_program_is_told_of_its_end_and_may_end_by_itself(
    tmp_path: Path, intent: StopIntent, command: str
) -> None:
    source = READY + (
        "import signal\n"
        'signal.signal(15, lambda *_: say("diagnostic", code="signalled"))\n'
        "command = hear()\n"
        'say("diagnostic", code=command["type"], message=command["payload"]["reason"])\n'
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        await b.messages(1)

        b.stop_with(intent)
        found, end = await b.end()

        assert found == [Diagnosed(command, intent)]
        assert (end.exit.exit_code, end.exit.signal) == (0, None)


@pytest.mark.parametrize("intent", ["authority", "overflow", "finished"])
async def test_a_program_is_told_nothing_where_nothing_is_left_to_say(
    tmp_path: Path, intent: StopIntent
) -> None:
    source = READY + 'say("log", stream="stdout", text=str(hear()))\ntime.sleep(1000)\n'
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        await b.messages(1)

        b.stop_with(intent)
        found, end = await b.end()

        assert found in ([], [Logged("None")])
        assert end.exit.signal == signal.SIGTERM


async def test_a_program_that_obeys_nothing_is_killed_with_its_workers(tmp_path: Path) -> None:
    source = READY + (
        "import signal, subprocess\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        'worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)\n'
        'say("diagnostic", code="worker", message=str(worker.pid))\n'
        "while True: time.sleep(1000)\n"
    )
    async with talk_bench(tmp_path) as b:
        await b.speak(source)
        _, worker = await b.messages(2)
        assert isinstance(worker, Diagnosed)

        b.stop_with("interrupt", grace_ms=100)
        b.stop_with("interrupt", grace_ms=100)
        _, end = await b.end()

        assert end.exit.signal == signal.SIGKILL
        assert end.survivors == 0
        assert not lives(int(worker.text))
        assert b.marked() == []


async def test_a_shorter_grace_ends_the_time_to_obey(tmp_path: Path) -> None:
    async with talk_bench(tmp_path) as b:
        await b.speak(READY + "hear()\nhear()\ntime.sleep(1000)\n")
        await b.messages(1)

        b.stop_with("interrupt", grace_ms=600_000)
        b.stop_with("authority", grace_ms=0)
        _, end = await b.end()

        assert end.exit.signal in (signal.SIGTERM, signal.SIGKILL)


async def test_a_program_that_is_stopped_before_it_is_ready_is_told_nothing(
    tmp_path: Path,
) -> None:
    async with talk_bench(tmp_path) as b:
        await b.speak("import time\ntime.sleep(1000)\n")

        b.stop_with("interrupt")
        found, end = await b.end()

        assert (found, end.exit.signal, end.violation) == ([], signal.SIGTERM, None)


async def test_a_program_that_is_stopped_behind_its_gate_never_runs(tmp_path: Path) -> None:
    async with talk_bench(tmp_path) as b:
        b.start_speaking('open("ran", "w").close()')
        await b.take(HarnessSpawned)

        b.stop_with("cancel")
        b.release()
        found, _ = await b.end()

        assert found == []
        assert not (tmp_path / "ran").exists()


async def test_a_program_killed_in_the_middle_of_a_message_leaves_a_diagnostic(
    tmp_path: Path,
) -> None:
    source = READY + 'os.write(1, b\'{"schema": "papercl\')\nos.kill(os.getpid(), 9)\n'
    async with talk_bench(tmp_path) as b:
        await b.speak(source)

        found, end = await b.end()

        assert found == [Ready()]
        assert (end.exit.signal, end.violation) == (9, None)
        assert end.logs.lines == ('[unfinished last line of output] {"schema": "papercl',)


async def test_closing_the_executor_leaves_nothing_behind(tmp_path: Path) -> None:
    async with talk_bench(tmp_path) as b:
        pid = await b.speak(READY + "time.sleep(1000)\n")
        await b.messages(1)
        b.tell(1, large="x" * 300_000)

        assert await b.executor.close(0) == 0

        assert not lives(pid)
        assert b.marked() == []
