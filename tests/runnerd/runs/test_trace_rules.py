"""What a trace event must have before a log takes it."""

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.tool_classes import (
    CheckpointClass,
    ConcurrencyClass,
    DurabilityClass,
    EffectClass,
    RecoveryDisposition,
    ReplayClass,
    recovery_disposition,
)
from runnerd.runs.trace_rules import EVENT_RULES, check_trace
from tests.runnerd.runs.logs import NOW, RUN

CAPABILITY: dict[str, JsonValue] = {
    "tool": "read",
    "effect": "none",
    "replay": "safe",
    "concurrency": "parallel",
    "checkpoint": "none",
    "durability": "ordinary",
    "source": "builtin",
    "resolution": "resolved",
    "issues": [],
}
RESOLVED: dict[str, JsonValue] = {
    "type": "capability_resolved",
    "agent": "main",
    "tool": "read",
    "callId": "c",
    "capability": CAPABILITY,
    "recoveryDisposition": "replay_safe",
}
STRICTEST: dict[str, JsonValue] = {
    **CAPABILITY,
    "effect": "unknown",
    "replay": "unknown",
    "concurrency": "run_serial",
    "checkpoint": "unsupported",
    "durability": "critical",
    "source": "fallback",
    "resolution": "fallback",
}


def entry(event: JsonValue, **members: JsonValue) -> dict[str, JsonValue]:
    whole: dict[str, JsonValue] = {
        "eventId": "e",
        "runId": RUN,
        "sequence": 1,
        "timestamp": NOW,
        "event": event,
    }
    return whole | members


def is_refused(payload: JsonValue) -> bool:
    try:
        check_trace(payload, RUN)
    except PrpError as error:
        return error.code is ErrorCode.RUN_STATE_CORRUPT
    return False


@pytest.mark.parametrize("payload", [None, [], 5, "x", {}, {"note": 1}], ids=str)
def test_payload_without_an_event_says_nothing(payload: JsonValue) -> None:
    assert check_trace(payload, RUN) is None


def test_entry_is_returned_with_its_event() -> None:
    found = check_trace(entry({"type": "mystery", "x": 1}, sequence=3.0), RUN)

    assert found is not None
    assert (found.sequence, found.event_type, found.event["x"]) == (3, "mystery", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"runId": "other"},
        {"sequence": "1"},
        {"sequence": True},
        {"timestamp": "soon"},
        {"timestamp": None},
        {"eventId": 5},
        {"event": None},
        {"event": []},
        {"event": {}},
        {"event": {"type": 5}},
    ],
    ids=str,
)
def test_entry_with_a_wrong_member_is_corrupt(change: dict[str, JsonValue]) -> None:
    assert is_refused(entry({"type": "x"}) | change)


@pytest.mark.parametrize("kind", [kind for kind in EVENT_RULES if kind != "tool_lifecycle"])
def test_each_kind_with_a_rule_refuses_numbers_for_its_texts(kind: str) -> None:
    names = ("tool", "agent", "stepId", "approvalId", "inputId", "scope", "attempt", "tokens")
    event: JsonValue = {"type": kind, **dict.fromkeys(names, -5)}

    assert is_refused(entry(event))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "effect_receipt", "idempotencyKey": "k", "tool": "write", "status": "done"},
        {"type": "effect_receipt", "tool": "write", "status": "started"},
        {"type": "tool_call", "tool": 5},
        {"type": "tool_call", "tool": "x", "argumentsFingerprint": "short"},
        {"type": "tool_attempt", "attemptId": "a", "previousReceiptId": "k", "attempt": 1},
        {"type": "step_output", "stepId": "s"},
    ],
    ids=str,
)
def test_malformed_event_is_corrupt(event: JsonValue) -> None:
    assert is_refused(entry(event))


def test_consistent_capability_is_believed() -> None:
    assert check_trace(entry(RESOLVED), RUN) is not None


@pytest.mark.parametrize("missing", list(CAPABILITY))
def test_capability_with_a_missing_member_is_corrupt(missing: str) -> None:
    capability = {name: CAPABILITY[name] for name in CAPABILITY if name != missing}

    assert is_refused(entry({**RESOLVED, "capability": capability}))


@pytest.mark.parametrize("disposition", [*RecoveryDisposition, "nonsense", None])
def test_disposition_must_follow_from_the_capability(disposition: str | None) -> None:
    event: JsonValue = {**RESOLVED, "recoveryDisposition": disposition}

    assert is_refused(entry(event)) is (disposition != "replay_safe")


@pytest.mark.parametrize(
    "dimension", ["effect", "replay", "concurrency", "checkpoint", "durability"]
)
def test_fallback_that_is_not_the_strictest_class_is_corrupt(dimension: str) -> None:
    human: dict[str, JsonValue] = {"recoveryDisposition": "requires_human"}
    loosened = {**STRICTEST, dimension: CAPABILITY[dimension]}

    assert not is_refused(entry({**RESOLVED, **human, "capability": STRICTEST}))
    for disposition in RecoveryDisposition:
        event: JsonValue = {
            **RESOLVED,
            "capability": loosened,
            "recoveryDisposition": disposition.value,
        }
        assert is_refused(entry(event))


def test_capability_must_be_of_the_tool_of_its_event() -> None:
    assert is_refused(entry({**RESOLVED, "tool": "write"}))


@pytest.mark.parametrize("effect", list(EffectClass))
@pytest.mark.parametrize("replay", list(ReplayClass))
def test_disposition_follows_from_effect_and_replay(
    effect: EffectClass, replay: ReplayClass
) -> None:
    expected = {"idempotent": "requires_proof", "unsafe": "forbidden", "unknown": "requires_human"}
    safe = "replay_safe" if effect == "none" else "requires_proof"

    found = recovery_disposition(effect, replay)

    assert found.value == expected.get(replay.value, safe)


def test_classes_stand_from_least_to_most_strict() -> None:
    ordered = {
        EffectClass: "none workspace process network external unknown",
        ReplayClass: "safe idempotent unsafe unknown",
        ConcurrencyClass: "parallel run_serial workspace_exclusive",
        CheckpointClass: "none required unsupported",
        DurabilityClass: "ordinary critical",
    }

    for kind, words in ordered.items():
        assert [member.value for member in kind] == words.split()
