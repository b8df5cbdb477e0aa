"""The eleven phases of a call, and what an interrupted one may claim (planted bug B17)."""

from typing import Any

import pytest

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.fingerprints import call_identity
from runnerd.runs.receipts import EffectStatus
from runnerd.runs.tool_lifecycle import (
    NEXT_EFFECT,
    OWN_AXES,
    ExecutionOutcome,
    LifecycleState,
    Phase,
    PhaseStatus,
    closing_events,
    lifecycle_event,
    next_lifecycle,
    project_lifecycles,
)

CALL = call_identity("main", "s1", "c1")
PHASES = list(Phase)
STARTED = {"effectState": "started", "cleanupState": "pending"}
VALUES: dict[str, JsonValue] = {
    "executionOutcome": "returned",
    "effectState": "started",
    "recoveryDisposition": "requires_proof",
    "persistenceState": "durable",
    "cleanupState": "pending",
    "authorizationState": "allowed",
    "environmentState": "available",
}


def fact(
    phase: Phase, status: PhaseStatus = PhaseStatus.COMPLETED, **more: Any
) -> dict[str, JsonValue]:
    return lifecycle_event(CALL, "write", phase, status, **more)


def through(last: Phase, *, started: bool = True) -> LifecycleState:
    """Return the state of a call that went through every phase up to ``last``."""
    state = None
    for phase in PHASES[: PHASES.index(last) + 1]:
        result = STARTED if started and phase is Phase.STARTED_DURABLE else None
        state = next_lifecycle(state, fact(phase, result=result))
    assert state is not None
    return state


def is_refused(before: LifecycleState | None, event: dict[str, JsonValue]) -> bool:
    try:
        next_lifecycle(before, event)
    except PrpError as error:
        return error.code is ErrorCode.TOOL_LIFECYCLE_INVALID
    return False


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("before", [None, *PHASES])
def test_only_the_next_phase_may_follow(before: Phase | None, phase: Phase) -> None:
    state = None if before is None else through(before)
    following = 0 if before is None else PHASES.index(before) + 1

    assert is_refused(state, fact(phase)) == (PHASES.index(phase) != following)


@pytest.mark.parametrize("status", [PhaseStatus.SKIPPED, PhaseStatus.FAILED])
@pytest.mark.parametrize("phase", PHASES)
def test_phase_that_did_not_complete_needs_a_reason_and_may_be_neither_end(
    phase: Phase, status: PhaseStatus
) -> None:
    index = PHASES.index(phase)
    before = through(PHASES[index - 1]) if index else None
    is_end = phase in (Phase.CALL_RECORDED, Phase.TERMINAL)

    assert is_refused(before, fact(phase, status))
    assert is_refused(before, fact(phase, status, reason=" "))
    assert is_refused(before, fact(phase, status, reason="denied")) == is_end


@pytest.mark.parametrize("axis", VALUES)
@pytest.mark.parametrize("phase", PHASES)
def test_phase_sets_its_own_axes_only(phase: Phase, axis: str) -> None:
    index = PHASES.index(phase)
    before = through(PHASES[index - 1]) if index else None

    refused = is_refused(before, fact(phase, result={axis: VALUES[axis]}))

    assert refused == (axis not in OWN_AXES[phase])


@pytest.mark.parametrize("after", EffectStatus)
@pytest.mark.parametrize("before", EffectStatus)
def test_effect_never_goes_back(before: EffectStatus, after: EffectStatus) -> None:
    state = through(Phase.CHECKPOINT_DURABLE)
    state = next_lifecycle(state, fact(Phase.STARTED_DURABLE, result={"effectState": before.value}))
    state = next_lifecycle(state, fact(Phase.EXECUTING))
    forward = {
        ("not_started", "not_started"), ("not_started", "started"), ("not_started", "committed"),
        ("not_started", "unknown"), ("started", "started"), ("started", "committed"),
        ("started", "unknown"), ("committed", "committed"), ("unknown", "unknown"),
    }  # fmt: skip

    observed = fact(Phase.OBSERVED, result={"effectState": after.value})

    assert is_refused(state, observed) == ((before.value, after.value) not in forward)
    assert (after in NEXT_EFFECT[before]) == ((before.value, after.value) in forward)


@pytest.mark.parametrize("outcome", ["timed_out", "aborted"])
def test_call_that_was_cut_short_never_claims_its_effect(outcome: str) -> None:
    """The answer was lost: neither committed nor back to not started (I14)."""
    executing = through(Phase.EXECUTING)

    for claimed in ("committed", "not_started"):
        result = {"executionOutcome": outcome, "effectState": claimed}
        assert is_refused(executing, fact(Phase.OBSERVED, result=result))


@pytest.mark.parametrize("outcome", [ExecutionOutcome.TIMED_OUT, ExecutionOutcome.ABORTED])
@pytest.mark.parametrize("last", PHASES[:-1])
def test_closing_a_call_makes_a_started_effect_unknown_and_another_not_started(
    last: Phase, outcome: ExecutionOutcome
) -> None:
    state = through(last)
    has_started = state.result.effect_state is EffectStatus.STARTED

    for event in closing_events(CALL, state, outcome, "run_timeout"):
        state = next_lifecycle(state, event)

    was_observed = PHASES.index(last) >= PHASES.index(Phase.OBSERVED)
    assert state.is_terminal
    if was_observed:
        assert state.result.effect_state is EffectStatus.STARTED
    elif has_started:
        assert state.result.effect_state is EffectStatus.UNKNOWN
        assert state.result.execution_outcome is outcome
    else:
        assert state.result.effect_state is EffectStatus.NOT_STARTED
        assert state.result.execution_outcome is ExecutionOutcome.NOT_INVOKED


def test_tool_is_invoked_only_if_phase_executing_was_not_skipped() -> None:
    started = through(Phase.STARTED_DURABLE)
    skipped = fact(Phase.EXECUTING, PhaseStatus.SKIPPED, reason="lease lost")

    assert next_lifecycle(started, fact(Phase.EXECUTING)).was_invoked
    assert not next_lifecycle(started, skipped).was_invoked
    assert not started.was_invoked


def test_calls_are_told_apart_by_agent_step_and_id() -> None:
    others = [call_identity("main", "s2", "c1"), call_identity("helper", "s1", "c1"), CALL]
    facts = [lifecycle_event(call, "write", Phase.CALL_RECORDED) for call in others]

    assert list(project_lifecycles(facts)) == others


@pytest.mark.parametrize(
    "resolution",
    [None, "terminal", {}, {"phase": "lost", "status": "completed"}, {"phase": "call_recorded"}],
)
def test_malformed_fact_is_refused(resolution: JsonValue) -> None:
    event: dict[str, JsonValue] = {"tool": "write", "resolution": resolution}

    assert is_refused(None, event)
