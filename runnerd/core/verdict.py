"""What a turn's end is called: the words for it, once for the core and for the run's log.

It decides which ends exist. It refuses to decide which one it was: `outcome` and `turns` do.
"""

from typing import Final, Literal

import msgspec

from protocol.canonical_json import JsonValue

TurnState = Literal["completed", "failed", "interrupted", "cancelled"]
RunState = Literal["succeeded", "failed", "cancelled"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a turn ended that ended its run."""

    turn_state: TurnState
    run_state: RunState
    reason: str

    @property
    def succeeded(self) -> bool:
        """Tell whether the run did what it was for."""
        return self.run_state == "succeeded"


CANCELLED: Final = Outcome(turn_state="cancelled", run_state="cancelled", reason="run_cancelled")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a turn whose program has ended.

    ``restarts``: the program is started again within the turn. Otherwise ``outcome`` ends the
    run, or is None for a turn that was interrupted: another one may follow.
    """

    restarts: bool = False
    outcome: Outcome | None = None
    reason: str = ""
    """Of an interruption."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the run's log says of the end. It was written first, so it holds (D9)."""

    verdict: Verdict
    snapshot: dict[str, JsonValue] | None = None
    """The run's terminal envelope; None if it has no end."""
    snapshot_bytes: int = 0
    snapshot_sha256: str = ""
