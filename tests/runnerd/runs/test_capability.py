"""The class of a tool: what is declared, what is believed, what policy tightens."""

import pytest

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import (
    BUILT_IN,
    Constraint,
    Declaration,
    capability_event,
    resolve_capability,
)
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.tool_classes import (
    STRICTEST,
    CapabilitySource,
    RecoveryDisposition,
    check_capability,
)

READING: dict[str, JsonValue] = {
    "effect": "none",
    "replay": "safe",
    "concurrency": "parallel",
    "checkpoint": "none",
    "durability": "ordinary",
}


def issues_of(
    classes: dict[str, JsonValue],
    *constraints: dict[str, JsonValue],
    source: CapabilitySource = CapabilitySource.REGISTERED,
) -> tuple[str, ...]:
    resolved = resolve_capability(
        "tool",
        Declaration(classes=classes, source=source),
        [Constraint(origin="policy", classes=constraint) for constraint in constraints],
    )
    assert bool(resolved.capability.issues) == (resolved.capability.classes == STRICTEST)
    return resolved.capability.issues


@pytest.mark.parametrize("tool", BUILT_IN)
def test_built_in_tool_is_believed_and_the_log_takes_its_fact(tool: str) -> None:
    resolved = resolve_capability(tool)

    event = capability_event(call_identity("main", "s1", "c1"), resolved)
    assert resolved.capability.classes == BUILT_IN[tool]
    assert check_capability(event) == resolved.capability


def test_tool_that_nobody_described_has_the_strictest_class() -> None:
    resolved = resolve_capability("send_email")

    assert resolved.capability.classes == STRICTEST
    assert resolved.disposition is RecoveryDisposition.REQUIRES_HUMAN


def test_name_of_a_built_in_tool_lends_nothing_to_a_registered_one() -> None:
    resolved = resolve_capability("read", Declaration(classes={**READING, "effect": "external"}))

    assert resolved.disposition is RecoveryDisposition.REQUIRES_PROOF


@pytest.mark.parametrize("effect", ["workspace", "unknown"])
def test_change_of_files_without_a_checkpoint_contradicts_itself(effect: str) -> None:
    assert issues_of({**READING, "effect": effect}) == ("capability_invalid:checkpoint",)


def test_tightening_into_a_contradiction_falls_back() -> None:
    assert issues_of(READING, {"effect": "workspace"}) == ("capability_invalid:checkpoint",)


@pytest.mark.parametrize("value", ["sometimes", 1, True, ["safe"]])
def test_value_outside_a_dimension_falls_back(value: JsonValue) -> None:
    assert issues_of({**READING, "replay": value}) == ("capability_invalid:replay",)


def test_constraint_may_not_loosen_even_what_another_tightened() -> None:
    tightened: dict[str, JsonValue] = {"replay": "unsafe"}
    loosened: dict[str, JsonValue] = {"replay": "idempotent"}

    assert issues_of(READING, tightened) == ()
    assert issues_of(READING, tightened, loosened) == ("capability_loosened:replay",)


def test_constraint_on_an_unknown_dimension_falls_back() -> None:
    assert issues_of(READING, {"colour": "red"}) == ("capability_invalid:colour",)


def test_false_claim_to_be_built_in_falls_back() -> None:
    assert issues_of(READING, source=CapabilitySource.BUILTIN) == (
        "capability_invalid:builtin_source",
    )


def test_fingerprint_follows_every_dimension() -> None:
    plain = resolve_capability("tool", Declaration(classes=READING))
    critical = resolve_capability(
        "tool", Declaration(classes={**READING, "durability": "critical"})
    )

    assert plain.fingerprint != critical.fingerprint
