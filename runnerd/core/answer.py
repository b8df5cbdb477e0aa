"""What a command's effect says beside what it changes.

It decides the form of an answer. It refuses to know any command.
"""

import msgspec

from protocol.canonical_json import JsonValue
from protocol.commands import CommandStatus
from runnerd.core.state import Runner


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The runner after a command, and the members of its result."""

    runner: Runner
    members: dict[str, JsonValue]
    status: CommandStatus = "completed"

    @property
    def effects(self) -> int:
        """Return the logical effect count: a completed command has one, any other none."""
        return 1 if self.status == "completed" else 0
