"""The five attributes of every code that a run can end with (durable-runs 1)."""

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from runnerd.runs.codes import (
    CODE_ATTRIBUTES,
    CancelClass,
    HumanAction,
    RetryClass,
    RunStatus,
    Terminality,
    attributes_of,
)

FROZEN = Path(__file__).with_name("run_codes.txt")
FIRST_OF_RUNS = ErrorCode.UNKNOWN_EFFECT
LAST_OF_RUNS = ErrorCode.CHILD_RUN_POLICY_ESCALATION


def test_attributes_are_exactly_those_of_the_frozen_table() -> None:
    """A code's line: code, terminality, cancel class, retry class, human action, run status."""
    lines = FROZEN.read_text(encoding="utf-8").splitlines()

    rows = [
        " ".join(
            (
                code.value,
                attributes.terminality.value,
                attributes.cancel_class.value,
                attributes.retry_class.value,
                attributes.human_action.value,
                attributes.run_status.value,
            )
        )
        for code, attributes in CODE_ATTRIBUTES.items()
    ]
    assert sorted(rows) == lines


def test_every_code_of_runs_has_attributes() -> None:
    codes = list(ErrorCode)
    of_runs = codes[codes.index(FIRST_OF_RUNS) : codes.index(LAST_OF_RUNS) + 1]

    assert set(CODE_ATTRIBUTES) == set(of_runs)


@pytest.mark.parametrize("code", list(CODE_ATTRIBUTES))
def test_person_must_act_exactly_when_only_a_person_may_retry(code: ErrorCode) -> None:
    attributes = attributes_of(code)

    is_human = attributes.retry_class is RetryClass.HUMAN
    assert (attributes.human_action is HumanAction.REQUIRED) is is_human


def test_no_code_lets_a_run_succeed() -> None:
    assert all(attributes_of(code).run_status is not RunStatus.SUCCEEDED for code in ErrorCode)


def test_code_of_another_part_makes_a_run_fail() -> None:
    attributes = attributes_of(ErrorCode.HARNESS_START_FAILED)

    assert (attributes.terminality, attributes.cancel_class, attributes.run_status) == (
        Terminality.TERMINAL,
        CancelClass.OTHER,
        RunStatus.FAILED,
    )
