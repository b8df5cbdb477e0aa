"""The script of the fake harness: what it does, step by step.

It decides which steps exist and whether a script is one. It refuses to carry any out.
"""

from typing import Final, Literal

import msgspec

from protocol.canonical_json import parse_strict
from protocol.errors import ErrorCode, PrpError
from protocol.limits import HARNESS_SCRIPT_BYTES_MAX

SCRIPT_SCHEMA: Final = "paperclip.fake_harness.script.v1"
REPEATS_MAX: Final = 8 * 1024 * 1024


class _Step(
    msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, kw_only=True
):
    pass


class Delay(_Step, frozen=True, tag="delay"):
    """Wait; ``--delay-ms`` overrides the length."""

    milliseconds: int


class Log(_Step, frozen=True, tag="log"):
    """Say a line for the log. ``repeat`` makes it long without making the script so."""

    stream: Literal["stdout", "stderr"]
    text: str
    repeat: int = 1


class SayEvent(_Step, frozen=True, tag="event"):
    """Report something."""

    event_type: str
    payload: dict[str, object]
    turn_id: str | None = None
    item_id: str | None = None


class Request(_Step, frozen=True, tag="request"):
    """Ask a question, or call a tool."""

    request: dict[str, object]


class AwaitResolution(_Step, frozen=True, tag="await_resolution"):
    """Wait until a question is resolved or a call has its result, and say what came."""

    request_id: str


class AwaitInterrupt(_Step, frozen=True, tag="await_interrupt"):
    """Wait until the turn is to end."""


class Result(_Step, frozen=True, tag="result"):
    """Propose a result."""

    payload: dict[str, object]


class Terminal(_Step, frozen=True, tag="terminal"):
    """Conclude."""

    payload: dict[str, object]


class SpawnWorker(_Step, frozen=True, tag="spawn_worker"):
    """Start a process that sleeps, in the same group, and say its number."""


class Exit(_Step, frozen=True, tag="exit"):
    """End with a status."""

    code: int


Step = (
    Delay
    | Log
    | SayEvent
    | Request
    | AwaitResolution
    | AwaitInterrupt
    | Result
    | Terminal
    | SpawnWorker
    | Exit
)


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name and the steps."""

    schema: Literal["paperclip.fake_harness.script.v1"]
    name: str
    steps: tuple[Step, ...]


_SCRIPT: Final = msgspec.json.Decoder(Script)


def read_script(content: bytes) -> Script:
    """Read a script, or raise ``usage_invalid`` with what is wrong.

    Source: runner-behaviour 12.
    """
    if len(content) > HARNESS_SCRIPT_BYTES_MAX:
        raise PrpError(ErrorCode.USAGE_INVALID, "the script is too large")
    try:
        parse_strict(content)
        script = _SCRIPT.decode(content)
    except (PrpError, msgspec.MsgspecError) as error:
        raise PrpError(ErrorCode.USAGE_INVALID, f"no script: {error}") from None
    for step in script.steps:
        if isinstance(step, Delay) and step.milliseconds < 0:
            raise PrpError(ErrorCode.USAGE_INVALID, "a delay is negative")
        if isinstance(step, Log) and not 0 <= step.repeat * len(step.text) <= REPEATS_MAX:
            raise PrpError(ErrorCode.USAGE_INVALID, "a log is negative or too long")
    return script
