"""What the command line asks of a run, from its first command to its outcome.

It decides which command follows which fact, and what the run's end means for the caller. It
refuses to know processes and terminals: `live_run` owns them.

    run.prepare ─▶ session.open ─▶ turn.start ─▶ (events) ─▶ run.terminal ─▶ runner.shutdown
                                       ▲             │
                                       └─ allowed ── turn.interrupted ── not allowed ─▶ run.cancel
"""

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from controller_mock.console.timeline import payload_of
from controller_mock.controller import Controller
from controller_mock.storage.store import CommandRow, StoredEvent
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, ExitStatus
from protocol.ids import RunId

_TURN_RETRIES_MAX: Final = 50
_TURN_RETRY_S: Final = 0.2
_OUTCOMES: Final = {
    "succeeded": ExitStatus.OK,
    "failed": ExitStatus.RUN_FAILED,
    "cancelled": ExitStatus.RUN_CANCELLED,
}

Note = Callable[[str, str], None]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a run."""

    argv: tuple[str, ...]
    cwd: str
    env_names: tuple[str, ...] = ()

    def provider(self) -> dict[str, object]:
        """Return the payload of `run.prepare`."""
        described = {"kind": "command", "argv": self.argv, "cwd": self.cwd}
        return {"provider": {**described, "envNames": self.env_names}}


class Conversation:
    """One run's commands, in order; `hold` returns the status that the caller exits with."""

    def __init__(
        self,
        controller: Controller,
        run_id: RunId,
        program: Program,
        resumes_max: int,
        note: Note,
    ) -> None:
        self._controller = controller
        self._run_id = run_id
        self._program = program
        self._resumes_left = resumes_max
        self._note = note
        self._seen = 0
        self._cancelled = False
        self.turn_asked = False
        """True once a turn was queued: from then on the program may have had effects."""

    async def hold(self) -> ExitStatus:
        """Run the program to the run's end, then ask the runner to shut down."""
        status = await self._work()
        await self._controller.perform(self._run_id, "runner.shutdown")
        return status

    async def cancel(self) -> None:
        """Ask for the run's end as cancelled; `hold` returns when it has come."""
        if not self._cancelled:
            self._cancelled = True
            await self._controller.queue(self._run_id, "run.cancel")

    def outcome(self) -> ExitStatus | None:
        """Return the status of a run that has ended, or None."""
        state = self._controller.view(self._run_id).run_terminal_state
        return None if state is None else _OUTCOMES.get(state, ExitStatus.RUN_UNKNOWN)

    async def _work(self) -> ExitStatus:
        prepared = (
            await self._settled("run.prepare", self._program.provider())
            and await self._settled("session.open", {})
            and await self._start_turn()
        )
        if not prepared and self.outcome() is None:
            # Nothing ran, and no later turn is asked for.
            await self.cancel()
        return await self._watch()

    async def _watch(self) -> ExitStatus:
        """Follow the run's events to its end."""
        events = self._controller.events(self._run_id, self._seen)
        async for event in events:
            self._seen = event.source_seq
            if event.event_type == "run.terminal":
                outcome = self.outcome()
                return ExitStatus.RUN_UNKNOWN if outcome is None else outcome
            if _is_recoverable(event) and not self._cancelled and not await self._resume():
                await self.cancel()
                await self._ended()
                return ExitStatus.RUN_UNKNOWN
        raise AssertionError("events never end")

    async def _resume(self) -> bool:
        """Start another turn, if the caller allowed it and the runner takes it."""
        if self._resumes_left == 0:
            self._note(
                "run",
                "the program was interrupted and its outside effects are unknown, so it is not"
                " started again\nwhat became of it is unknown too: status 3\n"
                "if a second start is safe (it keeps a checkpoint of its own),"
                " use --resume-interrupted N",
            )
            return False
        self._resumes_left -= 1
        self._note("run", f"starting a new turn ({self._resumes_left} more allowed)")
        return await self._start_turn()

    async def _start_turn(self) -> bool:
        """Start a turn; False if the runner refused it or could not start the program.

        An interrupted start is no refusal: its turn is reported as interrupted.
        """
        self.turn_asked = True
        row = await self._controller.perform(self._run_id, "turn.start")
        retries = 0
        # A runner that was away for long has much to deliver before it takes new work.
        while _code_of(row) == ErrorCode.RUNNER_BACKPRESSURE and retries < _TURN_RETRIES_MAX:
            retries += 1
            await anyio.sleep(_TURN_RETRY_S)
            row = await self._controller.perform(self._run_id, "turn.start")
        return self._judge(row)

    async def _settled(self, command_type: str, payload: object) -> bool:
        return self._judge(await self._controller.perform(self._run_id, command_type, payload))

    def _judge(self, row: CommandRow) -> bool:
        if row.status == "completed":
            return True
        if row.status == "indeterminate":
            self._note("command", f"{row.type}: interrupted, its effect is unknown")
            return True
        if not self._cancelled:
            self._note("command", f"{row.type} {row.status}: {_words_of(row)}")
        return False

    async def _ended(self) -> None:
        await self._controller.wait_for(
            self._run_id, lambda view: view.run_terminal_state is not None
        )


def _is_recoverable(event: StoredEvent) -> bool:
    return event.event_type == "turn.interrupted" and payload_of(event).get("recoverable") is True


def _result_of(row: CommandRow) -> dict[str, JsonValue]:
    if isinstance(row.result, msgspec.Raw):
        members: JsonValue = msgspec.json.decode(row.result)
        result = members.get("result") if isinstance(members, dict) else None
        if isinstance(result, dict):
            return result
    return {}


def _code_of(row: CommandRow) -> object:
    return _result_of(row).get("code")


def _words_of(row: CommandRow) -> str:
    result = _result_of(row)
    words = [str(result[name]) for name in ("code", "message") if result.get(name)]
    return ": ".join(words) or "no reason was given"
