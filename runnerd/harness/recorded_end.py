"""What a run's log says of an end that stands in it, with the snapshot that follows from it.

It decides what is told of a recorded end, now or by a later process. It refuses to write.
"""

import hashlib

import msgspec

from protocol.errors import PrpError
from protocol.ids import Generation
from runnerd.core.inputs import HarnessExited, HarnessLogs
from runnerd.core.verdict import Recorded, Verdict
from runnerd.harness.attempt import HARNESS_MEMBER, HarnessEnd
from runnerd.runs.envelope import tell_story
from runnerd.runs.records import RecordKind
from runnerd.runs.run_facts import Terminal
from runnerd.runs.run_store import OpenRun
from runnerd.runs.snapshot import encode_snapshot


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


def recorded_end(run: OpenRun, terminal: Terminal, generation: Generation) -> HarnessExited | None:
    """Return the end of a generation that was recorded, None if its log has none."""
    member = terminal.payload.get(HARNESS_MEMBER)
    if terminal.kind is not RecordKind.FINISH or member is None:
        return None
    try:
        seen = msgspec.convert(member, HarnessEnd)
    except msgspec.ValidationError:
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
