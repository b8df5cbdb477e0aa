"""The decision table of a resumption: which finding counts when there are several."""

import itertools

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.resume_table import RESUME_TABLE, Evidence, Finding, Row, Stage, decide

RANKS = {
    "no_records": "unknown_run",
    "facts_not_understood": "run_state_corrupt",
    "needs_person": "unclassified_error",
    "out_of_order": "run_state_corrupt",
    "finished": "run_already_finished",
    "no_start": "run_state_corrupt",
    "other_configuration": "resume_config_mismatch",
    "other_prompt": "resume_input_mismatch",
    "malformed_fact": None,
    "input_out_of_order": "run_state_corrupt",
    "input_ended": "run_already_finished",
    "contradictory_effects": None,
    "committed_effect": "committed_effect_pending",
    "unknown_effect": "unknown_effect",
    "operation_ended": "operation_not_resumable",
    "other_capability": "tool_capability_conflict",
}
"""durable-runs 4, written down a second time."""

OF_ADMISSION = {"facts_not_understood", "needs_person", "operation_ended", "other_capability"}
FAULT = Evidence(sequence=7, code=ErrorCode.OPERATION_STATE_CORRUPT)


def test_rows_stand_in_the_order_of_the_design() -> None:
    rows = {row.finding.value: row.code and row.code.value for row in RESUME_TABLE}

    assert list(rows.items()) == list(RANKS.items())
    assert {row.finding for row in RESUME_TABLE} == set(Finding)


@pytest.mark.parametrize("pair", list(itertools.combinations(RESUME_TABLE, 2)))
def test_earlier_row_decides_whichever_was_found_first(pair: tuple[Row, Row]) -> None:
    earlier, later = pair

    for found in (pair, pair[::-1]):
        refusal = decide({row.finding: FAULT for row in found}, Stage.ADMISSION)
        assert refusal is not None
        assert refusal.finding is earlier.finding
        assert refusal.code is (earlier.code or FAULT.code)
        assert later.finding is not refusal.finding


@pytest.mark.parametrize("row", RESUME_TABLE)
def test_plan_alone_leaves_out_what_only_an_admission_asks(row: Row) -> None:
    refusal = decide({row.finding: FAULT}, Stage.PLAN)

    assert (refusal is None) == (row.finding.value in OF_ADMISSION)


def test_nothing_found_refuses_nothing() -> None:
    assert decide({}, Stage.ADMISSION) is None
