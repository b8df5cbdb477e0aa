"""Commands and their results as the wire has them.

It decides which command types exist and what a result may say. It refuses to know what a
command does.
"""

from typing import Final, Literal

import msgspec

from protocol.ids import CommandId, ControllerSeq

COMMAND_SCHEMA_V1: Final = "paperclip.prp.command.v1"
COMMAND_SCHEMA_V2: Final = "paperclip.prp.command.v2"

COMMAND_TYPES_V1: Final = frozenset(
    {
        "run.prepare",
        "run.attach",
        "session.open",
        "turn.start",
        "turn.steer",
        "turn.interrupt",
        "turn.stop",
        "request.resolve",
        "interaction.receipt",
        "semantic_tool.result",
        "session.snapshot",
        "session.close",
        "session.budget.increase",
        "session.destroy",
        "run.cancel",
        "runner.drain",
        "runner.suspend",
        "runner.shutdown",
    }
)
COMMAND_TYPES_V2_ONLY: Final = frozenset(
    {"session.goal.get", "session.goal.set", "session.goal.clear"}
)
TERMINAL_COMMAND_TYPES: Final = frozenset({"runner.suspend", "runner.shutdown"})
"""Commands whose result is acknowledged and after which the runner ends (prp-wire 8.5)."""

CommandStatus = Literal["completed", "failed", "rejected", "indeterminate"]


class Precondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """States that must hold for a command to have an effect."""

    runner_state: tuple[str, ...] | None = None
    run_state: tuple[str, ...] | None = None
    session_state: tuple[str, ...] | None = None
    active_turn_id: str | None = None


class WireCommand(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A command as `command` payload or element of `pendingCommands`; payload not looked into.

    Source: prp-wire 8.1.
    """

    schema: str
    command_id: CommandId
    controller_seq: ControllerSeq
    type: str
    issued_at: str
    payload: msgspec.Raw
    deadline_at: str | None = None
    precondition: Precondition | None = None


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The five members that a result digest covers; `result` is a JSON object.

    Source: prp-wire 8.4. `logicalEffectCount` goes inside ``result`` (architecture 7.7).
    """

    command_id: CommandId
    command_type: str
    controller_seq: ControllerSeq
    status: CommandStatus
    result: msgspec.Raw
