"""What an attempt at a run is called in the run's log: its name, configuration, end and reason.

It decides which code stands for an end and what of a start binds later attempts. It refuses
to write: that is `recorder`.
"""

import hashlib
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.ids import Identity
from protocol.redaction import redact_text
from runnerd.core.actions import StartHarness
from runnerd.core.inputs import ProcessExit
from runnerd.core.verdict import Outcome, Verdict
from runnerd.runs.operation import Operation
from runnerd.runs.records import OperationState, StartPayload, check_run_id, struct_members

HARNESS_MEMBER: Final = "harness"
"""Member of our terminal payloads: what was seen of the program."""
OPERATION_ID: Final = "run"
_SHORT_DIGEST: Final = 16
_ENTRY_POINT: Final = "runnerd"
_PERMISSION_MODES: Final = {"command": "process", "jsonl": "controller"}


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


def start_members(
    order: StartHarness, identity: Identity, fingerprint: str
) -> dict[str, JsonValue]:
    """Return what is known before a run begins, as its log's first record has it."""
    start = StartPayload(
        config_fingerprint=fingerprint,
        config_name=order.kind,
        schema_version=1,
        session_id=identity.normalized_session_id,
        operation_id=OPERATION_ID,
        workspace=order.cwd,
        entry_point=_ENTRY_POINT,
        permission_mode=_PERMISSION_MODES[order.kind],
    )
    shown: JsonValue = {
        "argv": [redact_text(word) for word in order.argv],
        "envNames": list(order.env_names),
    }
    return {**struct_members(start), "provider": shown, "runId": identity.run_id}


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


def is_running(operation: Operation | None) -> bool:
    """Tell whether a run's log says that an attempt at it goes on."""
    return operation is not None and operation.state is OperationState.RUNNING
