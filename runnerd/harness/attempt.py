"""What an attempt at a run is called in the run's log: its name, configuration, end and reason.

It decides which code stands for an end and what of a start binds later attempts. It refuses
to write: that is `recorder`.
"""

import hashlib
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import ProcessExit
from runnerd.core.verdict import Outcome, Verdict
from runnerd.runs.records import check_run_id

HARNESS_MEMBER: Final = "harness"
"""Member of our terminal payloads: what was seen of the program."""
_SHORT_DIGEST: Final = 16


class HarnessEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was seen of a program that ended, and what was made of it."""

    generation: int
    exit: ProcessExit
    violation: ErrorCode | None = None
    survivors: int = 0
    outcome: Outcome | None = None


def log_id_of(run_id: str) -> str:
    """Return the name of a run's log: the run's own, or one for an id that no file may have."""
    try:
        check_run_id(run_id)
    except PrpError:
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in run_id)
        return f"{plain}-{hashlib.sha256(run_id.encode()).hexdigest()[:_SHORT_DIGEST]}"
    return run_id


def configuration_of(order: StartHarness) -> dict[str, JsonValue]:
    """Return what must be the same for every attempt at one run."""
    return {
        "kind": order.kind,
        "argv": list(order.argv),
        "cwd": order.cwd,
        "envNames": list(order.env_names),
    }


def code_of(outcome: Outcome, violation: ErrorCode | None) -> ErrorCode | None:
    """Return the code of an end, None for success."""
    if outcome.succeeded:
        return None
    if outcome.run_state == "cancelled":
        return ErrorCode.ABORTED
    if outcome.reason == "turn_timeout":
        return ErrorCode.RUN_TIMEOUT
    if violation is not None:
        return violation
    try:
        return ErrorCode(outcome.reason)
    except ValueError:
        return ErrorCode.HARNESS_PROCESS_FAILED


def unrecorded(verdict: Verdict, code: ErrorCode) -> Verdict:
    """Return what holds when the end could not be recorded: never a success."""
    if verdict.outcome is None or not verdict.outcome.succeeded:
        return verdict
    return Verdict(outcome=Outcome(turn_state="failed", run_state="failed", reason=code.value))
