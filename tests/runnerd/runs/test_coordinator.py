"""Which receipt a call gets, and that no tool runs before its start is durable (B17)."""

from typing import Any

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.runs.capability import capability_event, resolve_capability
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.fingerprints import CallIdentity, call_identity
from runnerd.runs.receipts import EffectStatus, Provenance, project_receipts
from tests.runnerd.runs.run_script import RUN

CALL = call_identity("main", "s1", "c1")


class Host:
    """What appends the events of a coordinator."""

    def __init__(self) -> None:
        self.coordinator = EffectCoordinator(RUN)
        self.log: list[dict[str, Any]] = []

    def record(self, kind: str, call: CallIdentity = CALL, **members: Any) -> None:
        event = {
            "type": kind,
            "agent": call.agent,
            "stepId": call.step_id,
            "callId": call.call_id,
            "turnId": "t1",
            "tool": "write",
            **members,
        }
        self.log.extend(self.coordinator.record(event))

    def start(self, call: CallIdentity = CALL) -> None:
        self.log.append(self.coordinator.start(call, "write"))

    def statuses(self) -> list[str]:
        return [event["status"] for event in self.log if event["type"] == "effect_receipt"]


def begun() -> Host:
    host = Host()
    host.record("tool_call", args={})
    host.start()
    return host


def code_of(error: pytest.ExceptionInfo[PrpError]) -> ErrorCode:
    return error.value.code


@pytest.mark.parametrize(("is_error", "end"), [(False, "committed"), (True, "unknown")])
def test_result_after_the_start_decides(is_error: bool, end: str) -> None:
    host = begun()

    host.record("tool_result", isError=is_error)

    assert host.statuses() == ["started", end]


def test_result_that_does_not_say_whether_it_failed_proves_nothing() -> None:
    host = begun()

    host.record("tool_result")

    assert host.statuses() == ["started", "unknown"]


def test_refusal_before_the_start_is_not_started_even_if_it_looks_like_success() -> None:
    host = Host()
    host.record("tool_call", args={})

    host.record("tool_result", isError=False)

    assert host.statuses() == ["not_started"]


def test_timeout_of_a_started_call_is_unknown_and_a_late_success_changes_nothing() -> None:
    """Neither failed nor committed: B17."""
    host = begun()

    host.log.extend(host.coordinator.close(CALL))
    host.record("tool_result", isError=False)

    assert host.statuses() == ["started", "unknown"]


def test_cancel_closes_every_open_call_once() -> None:
    host = begun()
    waiting, done = call_identity("main", "s1", "c2"), call_identity("main", "s1", "c3")
    host.record("tool_call", waiting, args={})
    host.record("tool_call", done, args={})
    host.start(done)
    host.record("tool_result", done, isError=False)

    host.log.extend(host.coordinator.close_open())
    again = host.coordinator.close_open()

    ends = {state.idempotency_key: state.status for state in project_receipts(host.log)}
    assert ends == {
        f"{RUN}:s1:c1": EffectStatus.UNKNOWN,
        f"{RUN}:s1:c2": EffectStatus.NOT_STARTED,
        f"{RUN}:s1:c3": EffectStatus.COMMITTED,
    }
    assert again == ()


def test_tool_runs_once_and_only_after_its_start_is_durable() -> None:
    host = begun()

    with pytest.raises(PrpError) as before_the_disk:
        host.coordinator.begin_execution(CALL)
    host.coordinator.began_durably(CALL)
    host.coordinator.begin_execution(CALL)
    with pytest.raises(PrpError) as twice:
        host.coordinator.begin_execution(CALL)

    assert code_of(before_the_disk) is code_of(twice) is ErrorCode.TOOL_LIFECYCLE_INVALID


@pytest.mark.parametrize("state", ["unrecorded", "started", "ended", "closed"])
def test_call_is_started_only_while_it_waits_for_that(state: str) -> None:
    host = Host()
    if state != "unrecorded":
        host.record("tool_call", args={})
        host.start()
    if state == "ended":
        host.record("tool_result", isError=False)
    if state == "closed":
        host.coordinator.close(CALL)

    with pytest.raises(PrpError) as refusal:
        host.start()

    assert code_of(refusal) is ErrorCode.EFFECT_RECEIPT_CONFLICT


def test_start_for_another_tool_than_was_approved_is_refused() -> None:
    host = Host()
    host.record("tool_call", args={})

    with pytest.raises(PrpError) as refusal:
        host.coordinator.start(CALL, "bash")

    assert code_of(refusal) is ErrorCode.EFFECT_RECEIPT_CONFLICT


@pytest.mark.parametrize(
    "other",
    [
        call_identity("main", "s1", "c1"),
        call_identity("helper", "s1", "c1"),
        call_identity("main", None, "s1:c1"),
    ],
)
def test_call_whose_key_is_taken_is_refused_and_nothing_is_recorded(other: CallIdentity) -> None:
    """Weak point 7: keys joined by colons can collide."""
    host = begun()
    before = list(host.log)

    with pytest.raises(PrpError) as call:
        host.record("tool_call", other, args={})
    if other != CALL:
        with pytest.raises(PrpError):
            host.record("tool_result", other, isError=False)

    assert code_of(call) is ErrorCode.EFFECT_RECEIPT_CONFLICT
    assert host.log == before


def test_receipts_are_bound_once_turn_arguments_and_capability_are_known() -> None:
    host = Host()
    host.log.extend(host.coordinator.record(capability_event(CALL, resolve_capability("write"))))
    host.record("tool_call", args={"path": "a.md"})
    host.start()
    host.record("tool_result", isError=False)

    [state] = project_receipts(host.log, run_id=RUN, against_facts=True)

    assert (state.provenance, state.status) == (Provenance.BOUND, EffectStatus.COMMITTED)


def test_step_is_not_retried_as_a_whole_once_one_of_its_calls_began() -> None:
    host = Host()
    host.record("tool_call", args={})
    before = host.coordinator.step_retry_refusal("s1")
    host.start()

    assert before is None
    assert host.coordinator.step_retry_refusal("s1") is ErrorCode.UNCLASSIFIED_ERROR
    assert host.coordinator.step_retry_refusal("s2") is None


def test_event_that_is_no_call_passes_untouched() -> None:
    event = {"type": "text_delta", "agent": "main", "callId": "c1", "delta": "x"}

    assert EffectCoordinator(RUN).record(event) == (event,)
