"""Calls of a stopped run that are offered again, change nothing, or have a lifecycle."""

import msgspec
import pytest

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import ResolvedTool, resolve_capability
from runnerd.runs.effect_facts import Reason, Verdict
from runnerd.runs.resume import prepare_run_resume
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event
from tests.runnerd.runs.run_script import (
    CONFIG,
    PAYING,
    UPLOADING,
    Script,
    in_step,
    refusal_of,
    resumed,
)


def test_bound_idempotent_call_is_offered_again_only_if_the_outside_honours_its_key() -> None:
    honoured, merely_said = Script(), Script()
    honoured.bound(in_step("c1"), "started")
    merely_said.bound(
        in_step("c1"), "started", declared=msgspec.structs.replace(PAYING, honours_key=False)
    )

    offered = resumed(honoured)

    assert offered.plan is not None
    [candidate] = offered.plan.replay_candidates
    assert (candidate.previous_receipt_id, candidate.attempt) == ("run-1:s1:c1", 2)
    assert refusal_of(resumed(merely_said)) == "unknown_effect"


@pytest.mark.parametrize("statuses", [("started", "unknown"), ("started",)])
def test_network_call_is_offered_again_while_it_has_no_end(statuses: tuple[str, ...]) -> None:
    script = Script()
    script.bound(in_step("c1"), *statuses, declared=UPLOADING)

    [account] = resumed(script).effects

    assert (account.verdict, account.reason) == (Verdict.REPLAY, Reason.BOUND_AND_IDEMPOTENT)


def test_nothing_is_replayed_behind_a_finished_step() -> None:
    script = Script()
    script.bound(in_step("c1"), "started", declared=UPLOADING)
    script.output("s1")

    assert refusal_of(resumed(script)) == "unknown_effect"


def test_begun_attempt_takes_up_the_effect_and_is_judged_instead() -> None:
    script = Script()
    script.bound(in_step("c1"), "started", declared=UPLOADING)
    attempted(script, "c2", "c1", 2)
    before = resumed(script)
    script.bound(in_step("c2"), "started", declared=UPLOADING)
    again = resumed(script)
    script.receipt(in_step("c2"), "committed", "pay", resolve_capability("pay", UPLOADING))
    script.output("s1")
    after = resumed(script)

    assert before.plan is not None
    assert again.plan is not None
    assert [one.attempt for one in before.plan.replay_candidates] == [2]
    assert [(one.previous_call_id, one.attempt) for one in again.plan.replay_candidates] == [
        ("c2", 3)
    ]
    assert refusal_of(after) is None
    assert after.effects == ()


def test_every_further_attempt_shows_the_outside_the_key_of_the_first() -> None:
    script = Script()
    keys: list[tuple[str, str]] = []
    script.bound(in_step("c1"), "started")
    for number in (2, 3, 4):
        offered = resumed(script)
        assert offered.plan is not None
        [candidate] = offered.plan.replay_candidates
        keys.append((candidate.previous_call_id, candidate.outside_key))
        attempted(script, f"c{number}", candidate.previous_call_id, number)
        script.bound(in_step(f"c{number}"), "started")

    assert keys == [(f"c{number}", "run-1:s1:c1") for number in (1, 2, 3)]


def test_attempt_that_took_up_nothing_passes_no_key_on() -> None:
    script = Script()
    script.bound(in_step("c1"), "started")
    attempted(script, "c2", "c9", 2)
    script.bound(in_step("c2"), "started")

    offered = resumed(script)

    assert offered.plan is not None
    assert [one.outside_key for one in offered.plan.replay_candidates] == [
        "run-1:s1:c1",
        "run-1:s1:c2",
    ]


def test_attempt_with_other_arguments_takes_up_nothing() -> None:
    script = Script()
    script.bound(in_step("c1"), "started", declared=UPLOADING)
    attempted(script, "c2", "c1", 2)
    script.call(in_step("c2"), "pay", args={"path": "b.md"})
    script.receipt(in_step("c2"), "started", "pay")

    verdicts = {account.call_id: account.verdict for account in resumed(script).effects}

    assert verdicts == {"c1": Verdict.REPLAY, "c2": Verdict.PAUSE}


def attempted(script: Script, call_id: str, previous: str, attempt: int) -> None:
    script.event(
        "tool_attempt",
        attemptId=f"{call_id}-{attempt}",
        previousReceiptId=f"run-1:s1:{previous}",
        attempt=attempt,
        agent="main",
        stepId="s1",
        callId=call_id,
    )


def test_attempts_cannot_take_up_each_other() -> None:
    """Else both would pass for settled, and nobody would ask."""
    script = Script()
    attempted(script, "c1", "c2", 2)
    attempted(script, "c2", "c1", 2)
    script.bound(in_step("c1"), "started", declared=UPLOADING)
    script.bound(in_step("c2"), "started", declared=UPLOADING)

    verdicts = {account.call_id: account.verdict for account in resumed(script).effects}

    assert verdicts == {"c1": Verdict.REPLAY, "c2": Verdict.REPLAY}


def test_call_is_not_its_own_further_attempt() -> None:
    script = Script()
    attempted(script, "c1", "c1", 2)
    script.bound(in_step("c1"), "started", "unknown", declared=UPLOADING)

    [account] = resumed(script).effects

    assert account.verdict is Verdict.REPLAY


def test_key_cannot_become_honoured_afterwards() -> None:
    script = Script()
    deaf = msgspec.structs.replace(PAYING, honours_key=False)
    script.bound(in_step("c1"), "started", declared=deaf)
    script.capability(in_step("c1"), resolve_capability("pay", PAYING))

    assert refusal_of(resumed(script)) == "effect_receipt_conflict"


def test_output_without_a_step_completes_nothing() -> None:
    script = Script()
    script.call(in_step("c1", ""))
    script.receipt(in_step("c1", ""), "started")
    script.receipt(in_step("c1", ""), "committed")
    script.output("")

    assert refusal_of(resumed(script)) == "run_state_corrupt"


NO_TOOL: dict[str, ResolvedTool] = {}
LOST_KEY = {"pay": resolve_capability("pay", msgspec.structs.replace(PAYING, honours_key=False))}
OTHER_CLASS = {
    "pay": resolve_capability(
        "pay", msgspec.structs.replace(PAYING, classes={**PAYING.classes, "replay": "unsafe"})
    )
}


@pytest.mark.parametrize("now", [NO_TOOL, LOST_KEY, OTHER_CLASS])
def test_tool_that_changed_its_class_stops_a_replay(now: dict[str, ResolvedTool]) -> None:
    script = Script()
    script.bound(in_step("c1"), "started")
    same = {"pay": resolve_capability("pay", PAYING)}

    def decided(capabilities: dict[str, ResolvedTool]) -> str | None:
        return refusal_of(
            prepare_run_resume(script.records, config_fingerprint=CONFIG, capabilities=capabilities)
        )

    assert decided(same) is None
    assert decided(now) == "tool_capability_conflict"


# Calls that change nothing


def test_read_is_safe_by_its_fact_and_never_by_its_name() -> None:
    named, proven = Script(), Script()
    named.call(in_step("c1"), "read")
    fact = proven.capability(in_step("c1"), resolve_capability("read"))
    proven.call(in_step("c1"), "read")

    [account] = resumed(proven).effects

    assert refusal_of(resumed(named)) == "unknown_effect"
    assert (account.verdict, account.reason, account.sequence) == (
        Verdict.RECONSIDER,
        Reason.REPLAY_SAFE,
        fact,
    )


def test_call_without_an_id_stays_in_doubt() -> None:
    script = Script()
    script.event("tool_call", agent="main", tool="write", args={})

    [account] = resumed(script).effects

    assert (account.effect_id, account.verdict) == ("#4", Verdict.PAUSE)


# Lifecycles


def lifecycle_through(script: Script, last: Phase, effect: str = "committed") -> None:
    results: dict[Phase, dict[str, JsonValue]] = {
        Phase.STARTED_DURABLE: {"effectState": "started"},
        Phase.OBSERVED: {"executionOutcome": "returned", "effectState": effect},
    }
    for phase in list(Phase)[: list(Phase).index(last) + 1]:
        script.told(lifecycle_event(in_step("c1"), "write", phase, result=results.get(phase)))


@pytest.mark.parametrize(
    ("last", "effect", "receipts", "code"),
    [
        (Phase.CHECKPOINT_DURABLE, "", (), None),
        (Phase.CHECKPOINT_DURABLE, "", ("not_started",), None),
        (Phase.CHECKPOINT_DURABLE, "", ("started",), "unknown_effect"),
        (Phase.STARTED_DURABLE, "", (), "unknown_effect"),
        (Phase.STARTED_DURABLE, "", ("not_started",), "unknown_effect"),
        (Phase.EXECUTING, "", ("started", "committed"), "committed_effect_pending"),
        (Phase.TERMINAL, "committed", ("started",), "committed_effect_pending"),
        (Phase.TERMINAL, "committed", ("started", "unknown"), "unknown_effect"),
        (Phase.TERMINAL, "unknown", ("started", "committed"), "unknown_effect"),
    ],
)
def test_less_certain_of_lifecycle_and_receipt_holds(
    last: Phase, effect: str, receipts: tuple[str, ...], code: str | None
) -> None:
    script = Script()
    script.call(in_step("c1"))
    lifecycle_through(script, last, effect)
    for status in receipts:
        script.receipt(in_step("c1"), status)

    assert refusal_of(resumed(script)) == code


def test_lifecycle_may_end_after_the_output_of_its_step() -> None:
    script = Script()
    script.call(in_step("c1"))
    lifecycle_through(script, Phase.OBSERVED)
    script.output("s1")
    for phase in (Phase.RESULT_DURABLE, Phase.TERMINAL):
        script.told(lifecycle_event(in_step("c1"), "write", phase))

    decision = resumed(script)

    assert refusal_of(decision) is None
    assert decision.effects == ()


def test_broken_lifecycle_is_a_contradiction() -> None:
    script = Script()
    script.told(lifecycle_event(in_step("c1"), "write", Phase.TERMINAL))

    assert refusal_of(resumed(script)) == "tool_lifecycle_invalid"
