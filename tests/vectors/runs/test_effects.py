"""Groups `receipts`, `capability`, `coordinator` and `lifecycle`: what is known of effects."""

from typing import Any

from protocol.errors import PrpError
from runnerd.runs.capability import Constraint, Declaration, resolve_capability
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.receipts import project_receipts
from runnerd.runs.records import struct_members
from runnerd.runs.tool_classes import CapabilitySource
from runnerd.runs.tool_lifecycle import project_lifecycles
from tests.vectors.runs.verdicts import Json, passes


def test_receipts_end_as_the_case_says(receipts_row: dict[str, Any]) -> None:
    given = receipts_row["input"]
    try:
        states = project_receipts(
            given["events"],
            run_id=given.get("runId"),
            against_facts=given.get("validateAgainstFacts", False),
        )
        observed: Json = {"projection": [struct_members(state) for state in states]}
    except PrpError as error:
        observed = {"error": {"code": error.code.value}}

    passes(receipts_row, observed)


def test_tool_resolves_to_the_class_of_the_case(capability_row: dict[str, Any]) -> None:
    given = capability_row["input"]
    declaration = None
    if "declaration" in given:
        declaration = Declaration(
            classes=given["declaration"], source=CapabilitySource(given["source"])
        )
    constraints = [
        Constraint(origin=constraint["origin"], classes=constraint["capability"])
        for constraint in given.get("constraints", ())
    ]

    resolved = resolve_capability(given["tool"], declaration, constraints)

    capability = struct_members(resolved.capability)
    observed = {
        "capability": {**capability, "issues": list(resolved.capability.issues)},
        "recoveryDisposition": resolved.disposition.value,
    }
    passes(capability_row, observed)


def test_coordinator_records_the_events_of_the_case(coordinator_row: dict[str, Any]) -> None:
    given = coordinator_row["input"]
    coordinator = EffectCoordinator(given["runId"])
    recorded: list[Json] = []
    for step in given["steps"]:
        if step["op"] == "emit":
            recorded += coordinator.record(step["event"])
        else:
            call = call_identity(step.get("agent", ""), step.get("stepId"), step["callId"])
            recorded.append(coordinator.start(call, step["tool"]))

    passes(coordinator_row, {"recorded": recorded})


def test_lifecycles_stand_as_the_case_says(lifecycle_row: dict[str, Any]) -> None:
    try:
        states = project_lifecycles(lifecycle_row["input"]["facts"])
        observed: Json = {
            "states": [
                {
                    "callId": call.call_id,
                    "currentPhase": state.phase.value,
                    "terminal": state.is_terminal,
                    "result": struct_members(state.result),
                }
                for call, state in states.items()
            ]
        }
    except PrpError as error:
        observed = {"error": {"code": error.code.value}}

    passes(lifecycle_row, observed)
