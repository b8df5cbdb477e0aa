"""The eleven phases of a tool call, in order, and what each may say about its result.

It decides whether a lifecycle fact may follow and how an interrupted call is closed. It
refuses to know when a phase happens, and never lets a call that timed out or was aborted
after its start claim a known effect.

    call_recorded ▶ capability_resolved ▶ policy_resolved ▶ approval_resolved ▶
    lease_acquired ▶ checkpoint_durable ▶ started_durable ▶ executing ▶ observed ▶
    result_durable ▶ terminal

| effect      | may become                             |
|-------------|----------------------------------------|
| not_started | not_started, started, committed, unknown |
| started     | started, committed, unknown            |
| committed   | committed                              |
| unknown     | unknown                                |
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.fingerprints import CallIdentity
from runnerd.runs.receipts import EffectStatus, identity_of
from runnerd.runs.records import UNFIT
from runnerd.runs.tool_classes import RecoveryDisposition

TOOL_LIFECYCLE: Final = "tool_lifecycle"


class Phase(enum.StrEnum):
    """What is settled about a call, in the only order there is."""

    CALL_RECORDED = "call_recorded"
    CAPABILITY_RESOLVED = "capability_resolved"
    POLICY_RESOLVED = "policy_resolved"
    APPROVAL_RESOLVED = "approval_resolved"
    LEASE_ACQUIRED = "lease_acquired"
    CHECKPOINT_DURABLE = "checkpoint_durable"
    STARTED_DURABLE = "started_durable"
    EXECUTING = "executing"
    OBSERVED = "observed"
    RESULT_DURABLE = "result_durable"
    TERMINAL = "terminal"


class PhaseStatus(enum.StrEnum):
    """How a phase was settled."""

    COMPLETED = "completed"
    SKIPPED = "skipped"
    FAILED = "failed"


class ExecutionOutcome(enum.StrEnum):
    """What became of the tool's own run."""

    NOT_INVOKED = "not_invoked"
    RETURNED = "returned"
    THREW = "threw"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"


class LifecycleResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a call on each axis. The last four axes take any word."""

    execution_outcome: ExecutionOutcome = ExecutionOutcome.NOT_INVOKED
    effect_state: EffectStatus = EffectStatus.NOT_STARTED
    recovery_disposition: RecoveryDisposition = RecoveryDisposition.REQUIRES_HUMAN
    persistence_state: str = "pending"
    cleanup_state: str = "not_required"
    authorization_state: str = "pending"
    environment_state: str = "available"


class LifecycleState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call stands after its last lifecycle fact."""

    tool: str
    phase: Phase
    result: LifecycleResult
    was_invoked: bool = False
    """The tool itself was run: phase `executing` was completed or failed."""

    @property
    def is_terminal(self) -> bool:
        """Whether no phase is left."""
        return self.phase is Phase.TERMINAL


class _Resolution(msgspec.Struct, frozen=True, kw_only=True):
    phase: Phase
    status: PhaseStatus
    reason: str | None = None
    result: dict[str, object] = {}


class _Fact(msgspec.Struct, frozen=True, kw_only=True):
    tool: str
    resolution: _Resolution


_PHASES: Final = tuple(Phase)
_OUTCOME: Final = "executionOutcome"
_EFFECT: Final = "effectState"
_CLEANUP: Final = "cleanupState"
_AUTHORIZATION: Final = "authorizationState"
_ENVIRONMENT: Final = "environmentState"

OWN_AXES: Final[Mapping[Phase, tuple[str, ...]]] = MappingProxyType(
    {
        Phase.CALL_RECORDED: (),
        Phase.CAPABILITY_RESOLVED: ("recoveryDisposition",),
        Phase.POLICY_RESOLVED: (_AUTHORIZATION,),
        Phase.APPROVAL_RESOLVED: (_AUTHORIZATION,),
        Phase.LEASE_ACQUIRED: (_ENVIRONMENT,),
        Phase.CHECKPOINT_DURABLE: (_ENVIRONMENT,),
        Phase.STARTED_DURABLE: (_EFFECT, _CLEANUP),
        Phase.EXECUTING: (_OUTCOME, _ENVIRONMENT),
        Phase.OBSERVED: (_OUTCOME, _EFFECT, _CLEANUP, _ENVIRONMENT),
        Phase.RESULT_DURABLE: ("persistenceState",),
        Phase.TERMINAL: (_CLEANUP,),
    }
)
"""The axes that a phase may set (durable-runs 3)."""

NEXT_EFFECT: Final[Mapping[EffectStatus, tuple[EffectStatus, ...]]] = MappingProxyType(
    {
        EffectStatus.NOT_STARTED: tuple(EffectStatus),
        EffectStatus.STARTED: (
            EffectStatus.STARTED,
            EffectStatus.COMMITTED,
            EffectStatus.UNKNOWN,
        ),
        EffectStatus.COMMITTED: (EffectStatus.COMMITTED,),
        EffectStatus.UNKNOWN: (EffectStatus.UNKNOWN,),
    }
)
_CUT_SHORT: Final = (ExecutionOutcome.TIMED_OUT, ExecutionOutcome.ABORTED)


def next_lifecycle(before: LifecycleState | None, event: Mapping[str, JsonValue]) -> LifecycleState:
    """Return where a call stands after one more `tool_lifecycle` fact.

    Args:
        before: None for the first fact of its call.

    Returns:
        The state. Raises PrpError ``tool_lifecycle_invalid`` for a phase out of order, a
        first or last phase that did not complete, a skipped or failed phase without a
        reason, another tool, an axis that is not the phase's own, an effect that goes back,
        and one that claims to be committed although the call was cut short.

    Source: durable-runs 3.
    """
    try:
        fact = msgspec.convert(event, _Fact)
    except UNFIT as error:
        raise _invalid(str(error)) from None
    resolution = fact.resolution
    expected = _PHASES[0] if before is None else _after(before.phase)
    if resolution.phase is not expected:
        raise _invalid(f"{resolution.phase.value} where {expected} must follow")
    if before is not None and before.tool != fact.tool:
        raise _invalid("another tool in the same call")
    if resolution.status is not PhaseStatus.COMPLETED:
        if resolution.phase in (_PHASES[0], _PHASES[-1]):
            raise _invalid(f"{resolution.phase.value} must complete")
        if not (resolution.reason or "").strip():
            raise _invalid("a phase that did not complete needs a reason")
    result = LifecycleResult() if before is None else before.result
    was_invoked = before is not None and before.was_invoked
    if resolution.phase is Phase.EXECUTING:
        was_invoked = resolution.status is not PhaseStatus.SKIPPED
    return LifecycleState(
        tool=fact.tool,
        phase=resolution.phase,
        result=_with_axes(result, resolution),
        was_invoked=was_invoked,
    )


def project_lifecycles(
    events: Iterable[Mapping[str, JsonValue]],
) -> dict[CallIdentity, LifecycleState]:
    """Return where every call stands, in the order of first facts.

    Raises PrpError ``tool_lifecycle_invalid``.
    """
    states: dict[CallIdentity, LifecycleState] = {}
    for event in events:
        if event.get("type") == TOOL_LIFECYCLE:
            call = identity_of(event)
            states[call] = next_lifecycle(states.get(call), event)
    return states


def lifecycle_event(
    call: CallIdentity,
    tool: str,
    phase: Phase,
    status: PhaseStatus = PhaseStatus.COMPLETED,
    *,
    reason: str | None = None,
    result: Mapping[str, JsonValue] | None = None,
) -> dict[str, JsonValue]:
    """Return the fact that a phase was settled; `next_lifecycle` judges it."""
    resolution: dict[str, JsonValue] = {"phase": phase.value, "status": status.value}
    if reason is not None:
        resolution["reason"] = reason
    if result is not None:
        resolution["result"] = dict(result)
    event: dict[str, JsonValue] = {
        "type": TOOL_LIFECYCLE,
        "agent": call.agent,
        "callId": call.call_id,
        "tool": tool,
        "resolution": resolution,
    }
    if call.step_id:
        event["stepId"] = call.step_id
    return event


def closing_events(
    call: CallIdentity, state: LifecycleState, outcome: ExecutionOutcome, reason: str
) -> tuple[dict[str, JsonValue], ...]:
    """Return the facts that close an open call after a cancel or a timeout.

    An effect that had started is unknown from then on. One that had not stays not started,
    and the phases that never came are skipped for ``reason``.

    Args:
        outcome: `timed_out` or `aborted`.
    """
    assert outcome in _CUT_SHORT, "only these two cut a call short"
    has_started = state.result.effect_state is EffectStatus.STARTED
    events: list[dict[str, JsonValue]] = []
    for phase in _PHASES[_PHASES.index(state.phase) + 1 :]:
        if phase is Phase.TERMINAL:
            events.append(lifecycle_event(call, state.tool, phase))
        elif phase is Phase.OBSERVED and has_started:
            result = {_OUTCOME: outcome.value, _EFFECT: EffectStatus.UNKNOWN.value}
            events.append(
                lifecycle_event(
                    call, state.tool, phase, PhaseStatus.FAILED, reason=reason, result=result
                )
            )
        else:
            events.append(
                lifecycle_event(call, state.tool, phase, PhaseStatus.SKIPPED, reason=reason)
            )
    return tuple(events)


def _after(phase: Phase) -> Phase | None:
    following = _PHASES.index(phase) + 1
    return _PHASES[following] if following < len(_PHASES) else None


def _with_axes(before: LifecycleResult, resolution: _Resolution) -> LifecycleResult:
    if not resolution.result:
        return before
    foreign = [name for name in resolution.result if name not in OWN_AXES[resolution.phase]]
    if foreign:
        raise _invalid(f"{resolution.phase.value} may not set {len(foreign)} of its axes")
    members = msgspec.to_builtins(before)
    assert isinstance(members, dict)
    try:
        result = msgspec.convert({**members, **resolution.result}, LifecycleResult)
    except UNFIT as error:
        raise _invalid(str(error)) from None
    if result.effect_state not in NEXT_EFFECT[before.effect_state]:
        raise _invalid("the effect goes back")
    was_cut = result.execution_outcome in _CUT_SHORT
    if was_cut and result.effect_state is EffectStatus.COMMITTED:
        # The answer was lost, so nothing is proven (I14).
        raise _invalid("a call that was cut short claims its effect")
    return result


def _invalid(what: str) -> PrpError:
    return PrpError(ErrorCode.TOOL_LIFECYCLE_INVALID, what)
