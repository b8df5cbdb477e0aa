"""A bench for programs that speak messages."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from protocol.ids import Generation
from runnerd.core.actions import StartHarness, StopHarness, StopIntent, TellHarness
from runnerd.core.harness_messages import HarnessMessage
from runnerd.core.inputs import HarnessExited, HarnessMessages, HarnessSpawned, HarnessTold, Input
from tests.runnerd.harness.support import PATIENCE_S, Bench, bench, python

SPEAK = """
import json, os, sys, time
seq = 0
def say(type, **payload):
    global seq
    seq += 1
    message = {"schema": "paperclip.fake_harness.message.v1", "messageSeq": seq,
               "type": type, "payload": payload}
    os.write(1, json.dumps(message).encode() + b"\\n")
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else None
"""


READY = SPEAK + 'say("ready")\n'


class TalkBench(Bench):
    """A bench for programs that speak messages."""

    def start_speaking(self, source: str, *, generation: int = 1, ready_ms: int = 60_000) -> None:
        self.executor.perform(
            StartHarness(
                generation=Generation(generation),
                kind="jsonl",
                ready_timeout_ms=ready_ms,
                launch_mark=f"{self.mark}.{generation}",
                argv=python(source),
                cwd=str(self.folder),
                env_names=(),
                turn_ordinal=generation,
                lines_accepted=0,
            )
        )

    async def speak(self, source: str, *, ready_ms: int = 60_000) -> int:
        """Launch a program and return its pid."""
        self.start_speaking(source, ready_ms=ready_ms)
        spawned = await self.take(HarnessSpawned)
        self.release()
        return spawned.birth.pid

    async def messages(self, count: int) -> list[HarnessMessage]:
        """Return the next messages, exactly so many; what was told is passed over."""
        found: list[HarnessMessage] = []
        while len(found) < count:
            self.read(lines_max=count - len(found))
            found += (await self.answer(HarnessMessages)).messages
        return found

    async def answer(self, kind: Any) -> Any:
        while True:
            answer: Input = await asyncio.wait_for(self.answers.get(), PATIENCE_S)
            if not isinstance(answer, HarnessTold):
                assert isinstance(answer, kind), answer
                return answer

    async def end(self) -> tuple[list[HarnessMessage], HarnessExited]:
        """Read until the end."""
        found: list[HarnessMessage] = []
        while True:
            self.read()
            answer = await self.answer(HarnessMessages | HarnessExited)
            if isinstance(answer, HarnessExited):
                return found, answer
            found += answer.messages

    def tell(self, number: int, **members: object) -> None:
        line = msgspec.json.encode(members) + b"\n"
        order = TellHarness(generation=Generation(1), number=number, line=line)
        self.executor.perform(order)

    def stop_with(self, intent: StopIntent, grace_ms: int = 60_000) -> None:
        order = StopHarness(generation=Generation(1), intent=intent, grace_ms=grace_ms)
        self.executor.perform(order)


@contextlib.asynccontextmanager
async def talk_bench(folder: Path) -> AsyncGenerator[TalkBench]:
    async with bench(folder) as plain:
        made = TalkBench.__new__(TalkBench)
        made.__dict__ = plain.__dict__
        yield made
