"""The dialogue with a program that speaks messages: what it is told, in order, once.

It decides what a program is told when it is ready, and which line is due. It refuses to know
why anything is told: `requests` and `tool_calls` decide that.

    begun ─ready─▶ session.open, turn.start told ─▶ answers and results told ─▶ concluded
      └─ what is told before that waits      a line is over when the pipe has taken it
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import structs

from protocol.base.revision import Gated, Transition
from protocol.canonical_json import JsonValue
from protocol.ids import Generation
from protocol.limits import (
    HARNESS_UNTOLD_BYTES_MAX,
    HARNESS_UNTOLD_MAX,
    HARNESS_UNWRITTEN_BYTES_MAX,
    OPEN_END_BYTES,
)
from runnerd.core.actions import Action, TellHarness
from runnerd.core.conversation import Dialogue, HarnessCommand
from runnerd.core.state import Runner, Turn
from runnerd.core.transition import Step, claim, with_live

COMMAND_SCHEMA: Final = "paperclip.fake_harness.command.v1"

Settles = tuple[Literal["request", "call"], str]


def begin(runner: Runner, generation: Generation) -> Runner:
    """Begin the dialogue with a new generation; of the one before nothing is told any more."""
    return with_live(runner, dialogue=Dialogue(generation=generation), linger_deadline_mono_ms=None)


def end(runner: Runner) -> Runner:
    """End the dialogue with a program that is gone."""
    return with_live(runner, dialogue=None, linger_deadline_mono_ms=None)


def listens(runner: Runner, generation: Generation) -> bool:
    """Tell whether the program of this generation can still make use of an answer."""
    turn, dialogue = runner.durable.turn, runner.live.dialogue
    return (
        dialogue is not None
        and turn is not None
        and dialogue.generation == turn.generation == generation
        and dialogue.conclusion is None
        and turn.intent is None
    )


def tell(
    runner: Runner,
    command_type: str,
    payload: dict[str, JsonValue | msgspec.Raw] | msgspec.Raw,
    settles: Settles | None = None,
) -> Runner:
    """Append a command to what the present program is told.

    A program that reads nothing is told answers and results alone in the end, of which there
    can be only so many; everything else is then left out.

    Args:
        settles: what is over for good when the line was written.
    """
    dialogue = runner.live.dialogue
    assert dialogue is not None, "somebody is there to be told"
    if settles is None and _is_unread(dialogue):
        return runner
    number = dialogue.next_number
    line = msgspec.json.encode(
        {
            "schema": COMMAND_SCHEMA,
            "commandId": f"harness_{dialogue.generation}_{number}",
            "type": command_type,
            "payload": payload,
        }
    )
    command = HarnessCommand(number=number, line=line + b"\n", settles=settles)
    longer = structs.replace(
        dialogue, commands=(*dialogue.commands, command), next_number=number + 1
    )
    return with_live(runner, dialogue=longer)


def _is_unread(dialogue: Dialogue) -> bool:
    """Tell whether more waits than a program can have caused that reads what it is told."""
    if len(dialogue.commands) >= HARNESS_UNTOLD_MAX:
        return True
    waiting = sum(len(command.line) for command in dialogue.commands if command.settles is None)
    return waiting > HARNESS_UNTOLD_BYTES_MAX


def end_fits(runner: Runner) -> bool:
    """Tell whether one more request or call could report its end from the P0 reserve."""
    durable = runner.durable
    open_ = sum(request.is_open for request in durable.requests)
    open_ += sum(call.state == "pending" for call in durable.tool_calls)
    return (open_ + 1) * OPEN_END_BYTES <= runner.settings.p0_reserve_bytes // 2


def greet(runner: Runner, turn: Turn) -> Runner:
    """Tell a program that is ready which session it works in and what the turn is about."""
    dialogue, durable = runner.live.dialogue, runner.durable
    assert dialogue is not None, "somebody has said that it is ready"
    identity, tools = durable.identity, durable.tools
    opened: dict[str, JsonValue | msgspec.Raw] = {
        "runId": identity.run_id,
        "normalizedSessionId": identity.normalized_session_id,
        "turnId": identity.turn_id,
        "itemId": identity.item_id,
        "generation": turn.generation,
        "turnOrdinal": turn.ordinal,
        "linesAccepted": durable.lines_accepted,
        "resumed": turn.generation > 1,
        "tools": msgspec.Raw(b"[]") if tools is None else tools.operations,
    }
    ready = with_live(runner, dialogue=structs.replace(dialogue, is_ready=True))
    ready = tell(ready, "session.open", opened)
    return tell(ready, "turn.start", msgspec.Raw(runner.live.turn_input))


def tell_due(runner: Runner, turn: Turn, may_tell: Callable[[Runner, Settles], bool]) -> Step:
    """Order the lines that are due, as many as a program that does not read may leave unread.

    Args:
        may_tell: whether what a line settles may be told yet; the lines behind it wait as well.
    """
    dialogue = runner.live.dialogue
    if dialogue is None or dialogue.generation != turn.generation or not dialogue.is_ready:
        return Transition(runner)
    actions: list[Gated[Action]] = []
    unwritten, through = 0, dialogue.ordered_through
    for command in dialogue.commands:
        unwritten += len(command.line)
        if command.number <= through:
            continue
        if unwritten > HARNESS_UNWRITTEN_BYTES_MAX and command is not dialogue.commands[0]:
            break
        if command.settles is not None and not may_tell(runner, command.settles):
            break
        through = command.number
        order = TellHarness(
            generation=dialogue.generation, number=command.number, line=command.line
        )
        # What is told may be acted on: it must outlive this process.
        actions.append(claim(runner, order))
    if not actions:
        return Transition(runner)
    ordered = structs.replace(dialogue, ordered_through=through)
    return Transition(with_live(runner, dialogue=ordered), tuple(actions))


def take_told(runner: Runner, generation: Generation, number: int) -> tuple[Runner, list[Settles]]:
    """Drop the lines that the program's pipe has taken; returns what is over with them."""
    dialogue = runner.live.dialogue
    if dialogue is None or dialogue.generation != generation:
        return runner, []
    written = [command for command in dialogue.commands if command.number <= number]
    left = dialogue.commands[len(written) :]
    settled = [command.settles for command in written if command.settles is not None]
    return with_live(runner, dialogue=structs.replace(dialogue, commands=left)), settled


def forget_orders(dialogue: Dialogue | None) -> Dialogue | None:
    """Return the dialogue as if no line that is not known to be written had been ordered."""
    return None if dialogue is None else structs.replace(dialogue, ordered_through=0)
