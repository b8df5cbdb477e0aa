"""What a run's log says of an end that stands in it, with the snapshot that follows from it.

It decides what is told of a recorded end, now or by a later process. It refuses to write.
"""

import hashlib
from typing import Final

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.ids import Generation
from runnerd.core.inputs import HarnessExited, HarnessLogs, ProcessExit
from runnerd.core.verdict import CANCELLED, Outcome, Recorded, Verdict
from runnerd.harness.attempt import HARNESS_MEMBER, HarnessEnd
from runnerd.runs.envelope import tell_story
from runnerd.runs.operation import Operation
from runnerd.runs.records import UNFIT, OperationState, RecordKind
from runnerd.runs.run_facts import RunFacts, Terminal
from runnerd.runs.run_store import OpenRun
from runnerd.runs.snapshot import encode_snapshot

_PROVEN: Final = "successful_process_and_result"
_ENDING: Final = (OperationState.ABORTING, OperationState.COMPLETED, OperationState.FAILED)


def with_snapshot(run: OpenRun, verdict: Verdict) -> Recorded:
    """Return an end with the run's snapshot, as far as that can be read."""
    try:
        snapshot = tell_story(run.records()).snapshot()
        assert snapshot is not None, "the terminal record has all its parts"
        encoded = encode_snapshot(snapshot)
    except PrpError:
        # The end stands in the log whether or not it can be read back now.
        return Recorded(verdict=verdict)
    return Recorded(
        verdict=verdict,
        snapshot=msgspec.json.decode(encoded),
        snapshot_bytes=len(encoded),
        snapshot_sha256=hashlib.sha256(encoded).hexdigest(),
    )


def has_lost_end(facts: RunFacts) -> bool:
    """Tell whether a process died between the last step of a run's life and the run's end."""
    operation = facts.operation
    return facts.terminal is None and operation is not None and operation.state in _ENDING


def told_late(generation: Generation, recorded: Recorded) -> HarnessExited:
    """Return an end whose program nobody alive has seen end."""
    return HarnessExited(
        generation=generation, exit=ProcessExit(), logs=HarnessLogs(), recorded=recorded
    )


def verdict_of(operation: Operation) -> Verdict:
    """Return what became of a run whose operation has ended, or is aborting."""
    if operation.state is OperationState.COMPLETED:
        done = Outcome(turn_state="completed", run_state="succeeded", reason=_PROVEN)
        return Verdict(outcome=done)
    reason = operation.snapshot.failure_reason
    if operation.state is OperationState.ABORTING or reason == ErrorCode.ABORTED.value:
        return Verdict(outcome=CANCELLED)
    words = reason if isinstance(reason, str) else ErrorCode.HARNESS_PROCESS_FAILED.value
    return Verdict(outcome=Outcome(turn_state="failed", run_state="failed", reason=words))


def recorded_end(run: OpenRun, terminal: Terminal, generation: Generation) -> HarnessExited | None:
    """Return the end of a generation that was recorded, None if its log has none."""
    member = terminal.payload.get(HARNESS_MEMBER)
    if terminal.kind is not RecordKind.FINISH or member is None:
        return None
    try:
        seen = msgspec.convert(member, HarnessEnd)
    except UNFIT:
        return None
    if seen.generation != generation or seen.outcome is None:
        return None
    return HarnessExited(
        generation=generation,
        exit=seen.exit,
        logs=HarnessLogs(),
        violation=seen.violation,
        survivors=seen.survivors,
        recorded=with_snapshot(run, Verdict(outcome=seen.outcome)),
    )
