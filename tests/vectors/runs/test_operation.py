"""Groups `operation` and `operation_restore`."""

from typing import Any

from protocol.errors import PrpError
from runnerd.runs.operation import (
    Operation,
    accept_operation,
    restore_operation,
    transition,
)
from runnerd.runs.records import OperationEvent, struct_members
from tests.vectors.runs.verdicts import Json, passes


def test_operation_does_what_the_case_says(operation_row: dict[str, Any]) -> None:
    passes(operation_row, observed(operation_row["input"]))


def test_operation_is_restored_as_the_case_says(operation_restore_row: dict[str, Any]) -> None:
    try:
        operation = restore_operation(operation_restore_row["input"]["records"])
    except PrpError as error:
        verdict: dict[str, Json] = {"error": {"code": error.code.value}}
    else:
        verdict = {"snapshot": struct_members(operation.snapshot)}
    passes(operation_restore_row, verdict)


def observed(given: dict[str, Json]) -> dict[str, Json]:
    try:
        operation = created(given["create"])
    except PrpError as error:
        return {"create": {"error": {"code": error.code.value}}, "steps": []}
    if "tryEach" in given:
        for place, name in enumerate(given["reach"]):
            operation = applied(operation, {"type": name, "eventId": f"r{place}"})[0]
        return {
            "resultByEvent": {
                name: each_result(operation, {"type": name, "eventId": "each"})
                for name in given["tryEach"]
            }
        }
    steps: list[Json] = []
    for event in given["events"]:
        operation, step = applied(operation, event)
        steps.append(step)
    records = [struct_members(record) for record in operation.records]
    return {
        "steps": steps,
        "snapshot": struct_members(operation.snapshot),
        "records": records,
        "restoreGivesSameSnapshot": restore_operation(records).snapshot == operation.snapshot,
    }


def created(given: dict[str, Json]) -> Operation:
    return accept_operation(
        run_id=given["runId"],
        operation_id=given["operationId"],
        event_id=given["eventId"],
        timestamp=given["timestamp"],
        correlation_id=given.get("correlationId"),
        reason=given.get("reason"),
    )


def applied(operation: Operation, event: dict[str, Json]) -> tuple[Operation, dict[str, Json]]:
    try:
        change = transition(
            operation,
            OperationEvent(event["type"]),
            event_id=event["eventId"],
            timestamp=event.get("timestamp", "2026-01-01T00:00:00.000Z"),
            reason=event.get("reason"),
        )
    except PrpError as error:
        return operation, {"error": {"code": error.code.value}}
    snapshot = change.operation.snapshot
    return change.operation, {
        "changed": change.record is not None,
        "state": snapshot.state.value,
        "transitionSequence": snapshot.transition_sequence,
    }


def each_result(operation: Operation, event: dict[str, Json]) -> Json:
    step = applied(operation, event)[1]
    return step if "error" in step else step["state"]
