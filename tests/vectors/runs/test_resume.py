"""Groups `resume` and `projection`: what the facts of a log say about going on.

The logs of the cases are the original's, so its rules judge them, as they do for every
plain log.
"""

from typing import Any

from protocol.errors import PrpError
from runnerd.runs.effect_facts import ResumeRules
from runnerd.runs.projection import project_run
from runnerd.runs.receipts import project_receipts
from runnerd.runs.records import RecordKind, RunRecord, read_record, struct_members
from runnerd.runs.resume import first_unsafe_call, prepare_run_resume
from runnerd.runs.resume_plan import ResumeDecision, ResumePlan
from runnerd.runs.resume_table import Stage
from runnerd.runs.run_facts import collect_facts
from tests.vectors.runs.verdicts import Json, passes


def records_of(rows: list[Json]) -> list[RunRecord]:
    return [read_record(row, rows[0]["runId"]) for row in rows]


def prepared(given: dict[str, Any], stage: Stage) -> ResumeDecision:
    return prepare_run_resume(
        records_of(given["records"]),
        config_fingerprint=given["configFingerprint"],
        prompt=given.get("requestedPrompt"),
        rules=ResumeRules.ORIGINAL,
        stage=stage,
    )


def verdict(decision: ResumeDecision, records: list[RunRecord]) -> Json:
    if decision.plan is None:
        assert decision.refusal is not None
        return {"resume": False, "error": {"code": decision.refusal.code.value}}
    plan = decision.plan
    observed: dict[str, Json] = {
        "resume": True,
        "runId": plan.run_id,
        "initialPrompt": plan.initial_prompt,
        "nextJournalSequence": plan.next_journal_sequence,
        "nextTraceSequence": plan.next_trace_sequence,
        "completedSteps": completed_steps(plan),
        "effectReceipts": effect_receipts(records),
        "replayCandidates": [struct_members(one) for one in plan.replay_candidates],
        "operationRecordCount": 0 if plan.operation is None else len(plan.operation.records),
    }
    if plan.operation is not None:
        observed["operationState"] = plan.operation.state.value
    if plan.loop_snapshot is not None:
        observed["loopPhase"] = plan.loop_snapshot["phase"]
    return observed


def completed_steps(plan: ResumePlan) -> list[Json]:
    return [
        {
            "stepId": step.step_id,
            "saveAs": step.save_as,
            "output": {
                "text": step.text,
                "metadata": {"agent": step.agent, "stepId": step.step_id},
            },
        }
        for step in plan.completed_steps
    ]


def effect_receipts(records: list[RunRecord]) -> list[Json]:
    """Return the last receipt of every key; a plan holds only those that still matter."""
    events = [
        record.payload["event"]
        for record in records
        if record.kind is RecordKind.EVENT and isinstance(record.payload, dict)
    ]
    states = project_receipts([event for event in events if isinstance(event, dict)])
    return [struct_members(state) for state in states]


def test_resumption_is_decided_as_the_case_says(resume_row: dict[str, Any]) -> None:
    given = resume_row["input"]
    records = records_of(given["records"])
    planned = prepared(given, Stage.PLAN)
    admitted = prepared(given, Stage.ADMISSION)

    final: Json = {"resume": admitted.plan is not None}
    if admitted.plan is not None:
        final["operationEvents"] = [event.value for event, _ in admitted.plan.operation_events]
    elif admitted.refusal is not None:
        final["code"] = admitted.refusal.code.value
    unsafe = first_unsafe_call(collect_facts(records).calls, ResumeRules.ORIGINAL)
    observed = {
        "prepare": verdict(planned, records),
        "project": verdict(admitted, records),
        "final": final,
        "firstUnsafeCall": None if unsafe is None else struct_members(unsafe),
    }
    passes(resume_row, observed)


def test_projection_is_that_of_the_case(projection_row: dict[str, Any]) -> None:
    rows = projection_row["input"]["records"]
    try:
        view = project_run(records_of(rows), ResumeRules.ORIGINAL)
        observed: Json = {
            "status": view.status.value,
            "resumable": view.resumable,
            "requiresHuman": view.requires_human,
            "operationState": None if view.operation is None else view.operation.state.value,
            "hasSnapshot": view.has_snapshot,
            "checkpointIds": list(view.checkpoint_ids),
            "pendingApprovals": list(view.pending_approvals),
            "pendingControls": view.pending_controls,
        }
    except PrpError as error:
        observed = {"error": {"code": error.code.value}}

    passes(projection_row, observed)
