"""The chain of a key's receipts, its binding and what proves it."""

import copy
from typing import Any

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.capability import capability_event, resolve_capability
from runnerd.runs.fingerprints import call_identity, fingerprint
from runnerd.runs.receipts import (
    NEXT_STATUS,
    EffectStatus,
    Provenance,
    next_receipt_state,
    project_receipts,
    read_receipt,
)

CALL = call_identity("main", "s1", "c1")
WRITE = resolve_capability("write")
ARGUMENTS: dict[str, JsonValue] = {"path": "a.md"}


def receipt(status: str, *, bound: bool = True, **binding: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": "effect_receipt",
        "idempotencyKey": "run-1:s1:c1",
        "tool": "write",
        "status": status,
        "agent": "main",
        "stepId": "s1",
        "turnId": "t1",
        "callId": "c1",
    }
    if bound:
        event["binding"] = {
            "version": 1,
            "runId": "run-1",
            "turnId": "t1",
            "agent": "main",
            "stepId": "s1",
            "callId": "c1",
            "tool": "write",
            "argumentsFingerprint": fingerprint(ARGUMENTS),
            "capabilityFingerprint": WRITE.fingerprint,
            **binding,
        }
    return event


def a_call(**members: Any) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "agent": "main",
        "stepId": "s1",
        "turnId": "t1",
        "callId": "c1",
        "tool": "write",
        "args": ARGUMENTS,
        **members,
    }


def is_refused(events: list[dict[str, Any]], *, against_facts: bool = False) -> bool:
    try:
        project_receipts(events, run_id="run-1", against_facts=against_facts)
    except PrpError as error:
        return error.code is ErrorCode.EFFECT_RECEIPT_CONFLICT
    return False


@pytest.mark.parametrize("after", EffectStatus)
@pytest.mark.parametrize("before", [None, *EffectStatus])
def test_every_step_outside_the_table_is_refused(
    before: EffectStatus | None, after: EffectStatus
) -> None:
    path = {
        None: [],
        EffectStatus.NOT_STARTED: ["not_started"],
        EffectStatus.STARTED: ["started"],
        EffectStatus.COMMITTED: ["started", "committed"],
        EffectStatus.UNKNOWN: ["started", "unknown"],
    }[before]
    legal = {
        (None, "not_started"),
        (None, "started"),
        ("started", "committed"),
        ("started", "unknown"),
    }

    refused = is_refused([receipt(status) for status in [*path, after.value]])

    assert refused == ((before.value if before else None, after.value) not in legal)
    assert refused == (after not in NEXT_STATUS[before])


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"runId": "run-2"},
        {"turnId": "t2"},
        {"agent": "other"},
        {"stepId": "s2"},
        {"callId": "c2"},
        {"tool": "edit"},
        {"argumentsFingerprint": "A" * 64},
        {"argumentsFingerprint": "a" * 63},
        {"argumentsFingerprint": "a" * 64 + "\n"},
        {"capabilityFingerprint": "g" * 64},
    ],
)
def test_binding_that_disagrees_with_its_receipt_is_refused(changed: dict[str, Any]) -> None:
    assert not is_refused([receipt("started")])
    assert is_refused([receipt("started", **changed)])


@pytest.mark.parametrize("member", ["argumentsFingerprint", "capabilityFingerprint"])
def test_binding_may_not_change_along_a_chain(member: str) -> None:
    end = receipt("committed")
    end["binding"][member] = "a" * 64

    assert is_refused([receipt("started"), end])


def test_bound_chain_may_not_lose_its_binding_and_a_legacy_one_gains_none() -> None:
    legacy = project_receipts([receipt("started", bound=False), receipt("committed")])

    assert [state.provenance for state in legacy] == [Provenance.LEGACY]
    assert is_refused([receipt("started"), receipt("committed", bound=False)])


def test_key_serves_one_tool() -> None:
    other = {**receipt("committed", bound=False), "tool": "edit"}

    assert is_refused([receipt("started", bound=False), other])


def test_refused_receipt_changes_nothing() -> None:
    started = next_receipt_state(None, read_receipt(receipt("started")))
    before = copy.deepcopy(started)

    with pytest.raises(PrpError):
        next_receipt_state(started, read_receipt(receipt("started")))

    assert started == before


@pytest.mark.parametrize("missing", ["idempotencyKey", "tool", "status"])
def test_receipt_without_one_of_its_parts_is_refused(missing: str) -> None:
    event = receipt("started")
    del event[missing]

    assert is_refused([event])


CAPABILITY = capability_event(CALL, WRITE)


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [a_call()],
        [CAPABILITY],
        [a_call(args={"path": "b.md"}), CAPABILITY],
        [a_call(turnId="t2"), CAPABILITY],
        [a_call(tool="edit"), CAPABILITY],
        [a_call(args={"path": float("inf")}), CAPABILITY],
        [a_call(argumentsFingerprint="a" * 64), CAPABILITY],
        [a_call(), capability_event(CALL, resolve_capability("edit"))],
    ],
)
def test_bound_receipt_needs_its_call_and_its_capability(facts: list[dict[str, Any]]) -> None:
    proven = [a_call(), CAPABILITY, receipt("started")]

    assert not is_refused(proven, against_facts=True)
    assert is_refused([*facts, receipt("started")], against_facts=True)


def test_call_told_again_in_the_same_words_proves_as_much() -> None:
    facts = [a_call(), CAPABILITY, a_call(), CAPABILITY]

    assert not is_refused([*facts, receipt("started")], against_facts=True)
    assert is_refused([*facts, a_call(args={"path": "b.md"})], against_facts=True)
