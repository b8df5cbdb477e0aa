"""Kinds of effects, who may repeat one, and who owns a key (weak point 7 of durable-runs 10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.capability import Declaration, resolve_capability
from runnerd.runs.effects import (
    ClosedStep,
    EffectKind,
    EffectTraits,
    KeyOwners,
    effect_traits,
    may_be_replayed,
    new_call_id,
)
from runnerd.runs.fingerprints import call_identity, idempotency_key
from tests.runnerd.runs.run_script import PAYING, RUN, UPLOADING


@pytest.mark.parametrize(
    ("tool", "traits"),
    [
        ("read", EffectTraits(kind=EffectKind.NONE, is_reversible=True, is_replay_safe=True)),
        ("write", EffectTraits(kind=EffectKind.FILE, is_reversible=True, is_replay_safe=False)),
        ("bash", EffectTraits(kind=EffectKind.PROCESS, is_reversible=False, is_replay_safe=False)),
        (
            "web-fetch",
            EffectTraits(kind=EffectKind.NETWORK, is_reversible=False, is_replay_safe=False),
        ),
        (
            "nobody_knows",
            EffectTraits(kind=EffectKind.UNKNOWN, is_reversible=False, is_replay_safe=False),
        ),
    ],
)
def test_traits_of_a_tool_are_those_of_its_class(tool: str, traits: EffectTraits) -> None:
    assert effect_traits(resolve_capability(tool).capability) == traits


@pytest.mark.parametrize("honours_key", [False, True])
@pytest.mark.parametrize("replay", ["safe", "idempotent", "unsafe", "unknown"])
def test_external_effect_is_replayed_only_under_a_key_that_the_outside_honours(
    replay: str, honours_key: bool
) -> None:
    declared = Declaration(classes={**PAYING.classes, "replay": replay})
    capability = resolve_capability("pay", declared).capability

    may = may_be_replayed(capability, honours_key=honours_key)

    assert may == (replay == "idempotent" and honours_key)


def test_idempotent_effect_on_a_network_needs_no_honoured_key() -> None:
    assert may_be_replayed(resolve_capability("put", UPLOADING).capability, honours_key=False)


def refused(owners: KeyOwners, step: str, call: str, agent: str = "main") -> bool:
    try:
        owners.claim(call_identity(agent, step, call))
    except PrpError as error:
        return error.code is ErrorCode.EFFECT_RECEIPT_CONFLICT
    return False


def test_key_keeps_the_form_of_the_original() -> None:
    owners = KeyOwners(RUN)

    assert owners.claim(call_identity("main", "s1", "c1")) == f"{RUN}:s1:c1"
    assert owners.claim(call_identity("main", None, "c1")) == f"{RUN}:c1"


@pytest.mark.parametrize(
    ("step", "call", "agent"),
    [("a", "b:c", "main"), ("", "a:b:c", "main"), ("a:b", "c", "other"), ("a:b", "c", "main")],
)
def test_key_of_another_call_is_refused_before_anything_runs(
    step: str, call: str, agent: str
) -> None:
    owners = KeyOwners(RUN)
    owners.claim(call_identity("main", "a:b", "c"))

    assert refused(owners, step, call, agent)
    assert owners.owner(f"{RUN}:a:b:c") == call_identity("main", "a:b", "c")


PARTS = st.sampled_from(["a", "b", "a:b", "b:a", "a:b:a", ""])


@given(
    calls=st.lists(st.tuples(PARTS, st.sampled_from(["a", "b", "a:b", "b:a"])), max_size=12),
    closed_from=st.integers(0, 12),
)
def test_no_key_is_ever_given_twice_even_when_calls_were_forgotten(
    calls: list[tuple[str, str]], closed_from: int
) -> None:
    """Calls of completed steps are forgotten between the attempts; the keys stay unique."""
    first = KeyOwners(RUN)
    taken = [
        (step, call)
        for step, call in calls[:closed_from]
        if not refused(first, step, call) and step
    ]
    steps = {step for step, _ in taken}
    closed = [
        ClosedStep(step, any(":" in call for owner, call in taken if owner == step))
        for step in sorted(steps)
    ]
    given_out = {idempotency_key(RUN, step, call) for step, call in taken}
    second = KeyOwners(RUN, {}, closed)

    for step, call in calls[closed_from:]:
        if not refused(second, step, call):
            key = idempotency_key(RUN, step, call)
            assert key not in given_out
            given_out.add(key)


def test_forgotten_step_refuses_no_key_that_cannot_be_its_own() -> None:
    owners = KeyOwners(RUN, {}, [ClosedStep("flow:a")])

    assert not refused(owners, "flow:a:b", "c")
    assert not refused(owners, "flow", "c")
    assert refused(owners, "flow", "a:c")
    assert refused(owners, "flow:a", "c9")


def test_new_call_id_has_no_colon_and_follows_from_its_entropy() -> None:
    one, other = new_call_id(bytes(16)), new_call_id(bytes(15) + b"\x01")

    assert ":" not in one
    assert one != other
