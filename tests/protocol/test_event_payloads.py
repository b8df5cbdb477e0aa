"""Which members the payload of each typed event must have, may have and may add."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from protocol.canonical_json import JsonValue
from protocol.event_payloads import PAYLOADS_V1, PAYLOADS_V2
from protocol.event_shape import COMMON_V1
from protocol.event_types import may_be_typed
from tests.protocol.payload_samples import SAMPLES_V1, SAMPLES_V2

SAMPLES: Final = SAMPLES_V1 | SAMPLES_V2
RULES: Final = {"item.delta": COMMON_V1} | PAYLOADS_V1 | PAYLOADS_V2

_CALL: Final = {"/correlation/requestId", "/currentRevision", "/input"} | {
    f"/{name}"
    for name in ("auditReceiptId", "duplicateOfReceiptId", "artifactRefs", "targets", "causalRefs")
}
_TARGET: Final = {"/targets/0/revisionId", "/targets/0/decisionId"}
_OUTCOME: Final = {
    f"/{name}"
    for name in ("outcome", "code", "retryable", "authorizationBoundary", "operationReceiptId")
}


def in_call(names: set[str]) -> set[str]:
    return {"/semantic_tool"} | {f"/semantic_tool{name}" for name in names}


OPTIONAL: Final[dict[str, set[str]]] = {
    "plan.updated": {"/explanation", "/documentRevision"},
    "tool.execution.progressed": {
        f"/{name}"
        for name in (
            "name",
            "target",
            "namespace",
            "readOnly",
            "durationMs",
            "exitCode",
            "progress",
        )
    },
    "research.started": {"/query", "/url", "/pattern"},
    "artifact.generated": {"/transparentBackground"},
    "semantic_tool.input": in_call(_CALL | _TARGET | _OUTCOME),
    "mcp_app.tool_result": in_call(_CALL | _TARGET),
    "semantic_tool.reconciled": in_call(_CALL | _TARGET),
    "run.terminal": {
        "/workAssessmentId",
        "/statusDecisionId",
        "/stopReason",
        "/stopReason/relatedReceiptIds",
    },
    "run.result.proposed": {
        "/completionClaim/criteria/0/explanation",
        "/verification/0/reasonCode",
        "/verification/0/detail",
        "/verification/0/artifactRef",
        "/blocker",
        "/attentionRequests/0/kind",
        "/attentionRequests/0/summary",
        "/attentionRequests/0/ownerClass",
        "/attentionRequests/0/targetAgentId",
        "/artifacts/0/title",
    },
    "item.delta": {"/channel", "/providerPhase", "/providerMethod"},
    "session.capabilities.updated": {"/sessionGoals/reasonCode", "/sessionGoals/reason"},
}
"""By pointer, the members that may be absent; `/semantic_tool` because a call may be absent."""
OPEN: Final = frozenset(
    {
        "semantic_tool.input",
        "mcp_app.tool_result",
        "semantic_tool.reconciled",
        "run.terminal",
        "run.result.proposed",
        "item.delta",
        "session.goal.snapshot",
        "session.goal.updated",
        "session.capabilities.updated",
    }
)
"""Types whose objects, at every depth, may hold members that no table names."""


def objects(value: JsonValue, pointer: str = "") -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Every object inside a value, the value itself first."""
    if isinstance(value, dict):
        yield pointer, value
        for name, member in value.items():
            yield from objects(member, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from objects(item, f"{pointer}/{index}")


def replaced(value: Any, pointer: str, change: dict[str, Any]) -> Any:
    """The value with the object at a pointer replaced."""
    if not pointer:
        return change
    step, _, rest = pointer[1:].partition("/")
    rest = f"/{rest}" if rest else ""
    if isinstance(value, list):
        index = int(step)
        return [*value[:index], replaced(value[index], rest, change), *value[index + 1 :]]
    return value | {step: replaced(value[step], rest, change)}


@pytest.mark.parametrize("event_type", SAMPLES)
def test_complete_payload_fits_and_only_its_optional_members_may_be_absent(event_type: str) -> None:
    sample = SAMPLES[event_type]
    judge = RULES[event_type]
    assert judge(sample) is None

    absent: set[str] = set()
    for pointer, value in objects(sample):
        for name in value:
            rest = {key: kept for key, kept in value.items() if key != name}
            if judge(replaced(sample, pointer, rest)) is None:
                absent.add(f"{pointer}/{name}")

    assert absent == OPTIONAL.get(event_type, set())


@pytest.mark.parametrize("event_type", SAMPLES)
def test_payload_with_an_unknown_member_fits_only_where_the_table_is_open(event_type: str) -> None:
    sample = SAMPLES[event_type]

    for pointer, value in objects(sample):
        misfit = RULES[event_type](replaced(sample, pointer, value | {"novel": None}))
        assert misfit == (None if event_type in OPEN else pointer)


def test_every_table_has_a_sample() -> None:
    judged = {id(RULES[event_type]) for event_type in SAMPLES}
    calls = {"mcp_app.tool_input", "semantic_tool.result"}

    assert {name for name, rule in RULES.items() if id(rule) not in judged} == calls


def test_every_type_with_a_table_is_looked_up_in_it() -> None:
    assert all(may_be_typed(event_type) for event_type in PAYLOADS_V1 | PAYLOADS_V2)
    assert not may_be_typed("item.delta")


def test_result_that_is_blocked_or_yielded_says_what_comes_next() -> None:
    judge = PAYLOADS_V1["run.result.proposed"]
    complete = SAMPLES["run.result.proposed"]
    bare = {name: complete[name] for name in complete if name not in ("blocker", "continuation")}
    needs: dict[str, set[str]] = {
        "done": set(),
        "needs_review": set(),
        "blocked": {"blocker"},
        "yielded": {"continuation"},
    }

    for disposition, needed in needs.items():
        stated = bare | {"reportedWorkDisposition": disposition}
        with_needed = stated | {name: complete[name] for name in needed}
        assert judge(with_needed) is None
        assert judge(stated) == ("" if needed else None)


def test_recorded_diff_is_complete() -> None:
    sample = SAMPLES["workspace.diff.recorded"]

    assert PAYLOADS_V1["workspace.diff.recorded"](sample | {"complete": False}) == "/complete"
    assert PAYLOADS_V1["workspace.change.updated"](sample | {"complete": False}) is None


def test_references_of_a_call_are_unique_whatever_the_order_of_their_members() -> None:
    judge = PAYLOADS_V1["mcp_app.tool_result"]
    call = SAMPLES["mcp_app.tool_result"]["semantic_tool"]

    doubled = [{"kind": "artifact", "id": "a"}, {"id": "a", "kind": "artifact"}]

    assert judge({"semantic_tool": call | {"artifactRefs": doubled}}) == (
        "/semantic_tool/artifactRefs"
    )
    assert judge({"semantic_tool": call | {"artifactRefs": doubled[:1]}}) is None
