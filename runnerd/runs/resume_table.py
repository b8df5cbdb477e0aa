"""The one table that decides whether a run may be resumed.

It decides which of several findings counts: the first row that is met. It refuses to look
at records: `run_facts` finds, this table ranks.
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.errors import ErrorCode


class Finding(enum.StrEnum):
    """What may stand against a resumption."""

    NO_RECORDS = "no_records"
    FACTS_NOT_UNDERSTOOD = "facts_not_understood"
    NEEDS_PERSON = "needs_person"
    OUT_OF_ORDER = "out_of_order"
    FINISHED = "finished"
    NO_START = "no_start"
    OTHER_CONFIGURATION = "other_configuration"
    OTHER_PROMPT = "other_prompt"
    MALFORMED_FACT = "malformed_fact"
    INPUT_OUT_OF_ORDER = "input_out_of_order"
    INPUT_ENDED = "input_ended"
    CONTRADICTORY_EFFECTS = "contradictory_effects"
    COMMITTED_EFFECT = "committed_effect"
    UNKNOWN_EFFECT = "unknown_effect"
    OPERATION_ENDED = "operation_ended"
    OTHER_CAPABILITY = "other_capability"


class Stage(enum.StrEnum):
    """Who asks: the planner alone, or the whole admission of a resumed run."""

    PLAN = "plan"
    ADMISSION = "admission"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One finding in its rank."""

    finding: Finding
    code: ErrorCode | None
    """The refusal; None means the code of the fault that was found."""
    stage: Stage = Stage.PLAN


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a finding was made."""

    sequence: int | None = None
    """The record that decides; None if it is one that is missing."""
    code: ErrorCode | None = None
    """Of the fault, where the row leaves it open."""
    words: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run is not resumed."""

    finding: Finding
    code: ErrorCode
    evidence: Evidence


RESUME_TABLE: Final = (
    Row(finding=Finding.NO_RECORDS, code=ErrorCode.UNKNOWN_RUN),
    Row(
        finding=Finding.FACTS_NOT_UNDERSTOOD,
        code=ErrorCode.RUN_STATE_CORRUPT,
        stage=Stage.ADMISSION,
    ),
    Row(finding=Finding.NEEDS_PERSON, code=ErrorCode.UNCLASSIFIED_ERROR, stage=Stage.ADMISSION),
    Row(finding=Finding.OUT_OF_ORDER, code=ErrorCode.RUN_STATE_CORRUPT),
    Row(finding=Finding.FINISHED, code=ErrorCode.RUN_ALREADY_FINISHED),
    Row(finding=Finding.NO_START, code=ErrorCode.RUN_STATE_CORRUPT),
    Row(finding=Finding.OTHER_CONFIGURATION, code=ErrorCode.RESUME_CONFIG_MISMATCH),
    Row(finding=Finding.OTHER_PROMPT, code=ErrorCode.RESUME_INPUT_MISMATCH),
    Row(finding=Finding.MALFORMED_FACT, code=None),
    Row(finding=Finding.INPUT_OUT_OF_ORDER, code=ErrorCode.RUN_STATE_CORRUPT),
    Row(finding=Finding.INPUT_ENDED, code=ErrorCode.RUN_ALREADY_FINISHED),
    Row(finding=Finding.CONTRADICTORY_EFFECTS, code=None),
    Row(finding=Finding.COMMITTED_EFFECT, code=ErrorCode.COMMITTED_EFFECT_PENDING),
    Row(finding=Finding.UNKNOWN_EFFECT, code=ErrorCode.UNKNOWN_EFFECT),
    Row(
        finding=Finding.OPERATION_ENDED,
        code=ErrorCode.OPERATION_NOT_RESUMABLE,
        stage=Stage.ADMISSION,
    ),
    Row(
        finding=Finding.OTHER_CAPABILITY,
        code=ErrorCode.TOOL_CAPABILITY_CONFLICT,
        stage=Stage.ADMISSION,
    ),
)
"""Source: durable-runs 4. Only the first unsafe call makes a finding, so that the two rows of
effects never compete; contradictions come before both, since they make every status doubtful.
"""


def decide(findings: Mapping[Finding, Evidence], stage: Stage) -> Refusal | None:
    """Return the first row of the table that is met, None if nothing stands against it.

    Args:
        stage: a plan alone leaves out the rows of the admission.
    """
    for row in RESUME_TABLE:
        evidence = findings.get(row.finding)
        if evidence is None or (row.stage is Stage.ADMISSION and stage is Stage.PLAN):
            continue
        code = evidence.code if row.code is None else row.code
        assert code is not None, "a finding of an open row has the code of its fault"
        return Refusal(finding=row.finding, code=code, evidence=evidence)
    return None
