"""Ends of scripted runs."""

from runnerd.runs.codes import RunStatus
from runnerd.runs.envelope import tell_story
from runnerd.runs.outcome import Outcome
from runnerd.runs.records import OperationEvent, RecordKind
from tests.runnerd.runs.run_script import AT, Script


def paused(script: Script, reason: str = "process_interrupted") -> Script:
    """Return a script whose run pauses, with everything that a snapshot is made of."""
    script.operate(OperationEvent.PAUSE, reason)
    operation = script.operation
    assert operation is not None
    payload = tell_story(script.records).terminal_payload(
        operation,
        Outcome(status=RunStatus.PAUSED, finish_reason=reason),
        ended_at=AT,
        output_chars=0,
    )
    script.add(RecordKind.PAUSE, payload)
    return script
