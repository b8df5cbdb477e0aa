"""Group `snapshot`: the terminal envelope of given parts, its members and its resumability."""

from typing import Any

import msgspec

from runnerd.runs.metrics import RunMetrics
from runnerd.runs.outcome import Outcome
from runnerd.runs.records import OperationSnapshot
from runnerd.runs.resume import has_unsafe_call
from runnerd.runs.snapshot import (
    Evaluation,
    ReleaseReadiness,
    TraceItem,
    encode_snapshot,
    take_snapshot,
)
from tests.vectors.runs.verdicts import Json, attempted, passes


def test_snapshot_is_what_the_case_says(snapshot_row: dict[str, Any]) -> None:
    given = snapshot_row["input"]

    passes(snapshot_row, attempted(lambda: taken(given)))


def taken(given: dict[str, Json]) -> dict[str, Json]:
    events = [entry["event"] for entry in given["trace"]]
    snapshot = take_snapshot(
        run_id=given["runId"],
        operation=msgspec.convert(given["operation"], OperationSnapshot),
        outcome=msgspec.convert(given["outcome"], Outcome),
        metrics=msgspec.convert(given["metrics"], RunMetrics),
        evaluation=msgspec.convert(given["evaluation"], Evaluation),
        release_readiness=msgspec.convert(given["releaseReadiness"], ReleaseReadiness),
        trace=msgspec.convert(given["trace"], tuple[TraceItem, ...]),
        has_unsafe_call=has_unsafe_call(events, given["runId"]),
    )
    encoded = msgspec.json.decode(encode_snapshot(snapshot))
    return {
        "resumable": encoded["resumable"],
        "keys": sorted(encoded),
        "schemaVersion": encoded["schemaVersion"],
        "jsonRoundTripEqual": msgspec.json.decode(msgspec.json.encode(encoded)) == encoded,
    }
