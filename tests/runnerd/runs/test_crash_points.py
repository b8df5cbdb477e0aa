"""M03: a crash at every record of a step with two effects, and what the next attempt does.

An outside world counts what really happened. Whatever record was the last, no effect
happens twice, none is claimed without being known, and a person's look at the world is all
that a paused run needs.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import Declaration, capability_event, resolve_capability
from runnerd.runs.coordinator import EffectCoordinator
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.effect_facts import Reason, Verdict
from runnerd.runs.effects import KeyOwners
from runnerd.runs.fingerprints import CallIdentity, call_identity
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.records import OperationEvent, RecordKind, struct_members
from runnerd.runs.resume_plan import ResumeDecision
from runnerd.runs.run_facts import collect_facts
from runnerd.runs.tool_lifecycle import Phase, lifecycle_event
from runnerd.runs.verification import check_completion
from tests.runnerd.runs.run_script import AT, PAYING, RUN, UPLOADING, Script, refusal_of, resumed

WORKS = ("pay the bill", "book the room")
"""Two things that must be done once each."""

DEAF = Declaration(classes=PAYING.classes)
"""Calls itself idempotent, but nobody outside takes its key."""
UNSAFE = Declaration(classes={**PAYING.classes, "replay": "unsafe"})


class Crash(Exception):
    """The process is gone."""


class World:
    """What happened outside, and under which keys; keys may be honoured."""

    def __init__(self, *, honours_keys: bool) -> None:
        self.done: Counter[str] = Counter()
        self._honours_keys = honours_keys
        self._keys: set[str] = set()

    def do(self, work: str, key: str) -> None:
        if self._honours_keys and key in self._keys:
            return
        self._keys.add(key)
        self.done[work] += 1


class Attempt:
    """A host that runs the step and dies when its log has ``records_max`` records.

    Args:
        dies_in_effect: the last record is written, and the effect behind it still happens.
    """

    def __init__(
        self,
        script: Script,
        world: World,
        declared: Declaration | None,
        records_max: int,
        *,
        dies_in_effect: bool,
        owners: KeyOwners | None = None,
    ) -> None:
        self.script, self.world = script, world
        self.tool = resolve_capability("pay" if declared else "write", declared)
        self.records_max, self.dies_in_effect = records_max, dies_in_effect
        self.coordinator = EffectCoordinator(RUN, owners)

    def told(self, event: dict[str, JsonValue]) -> None:
        self.live()
        self.script.told(event)

    def live(self) -> None:
        if len(self.script.records) >= self.records_max:
            raise Crash

    def phase(self, call: CallIdentity, phase: Phase, **result: JsonValue) -> None:
        name = self.tool.capability.tool
        self.told(lifecycle_event(call, name, phase, result=result or None))

    def work(self, work: str, call: CallIdentity, outside_key: str | None = None) -> None:
        name = self.tool.capability.tool
        about: dict[str, JsonValue] = {
            "agent": "main", "stepId": "s1", "turnId": "t1", "callId": call.call_id, "tool": name,
        }  # fmt: skip
        for event in self.coordinator.record(capability_event(call, self.tool)):
            self.told(event)
        opened = self.coordinator.record({"type": "tool_call", **about, "args": {"what": work}})
        for event in opened:
            self.told(event)
        for phase in list(Phase)[:6]:
            self.phase(call, phase)
        receipt = self.coordinator.start(call, name)
        self.told(receipt)
        self.coordinator.began_durably(call)
        self.phase(call, Phase.STARTED_DURABLE, effectState="started")
        self.coordinator.begin_execution(call)
        is_last = len(self.script.records) >= self.records_max
        if not is_last or self.dies_in_effect:
            self.world.do(work, outside_key or f"{RUN}: {work}")
        self.phase(call, Phase.EXECUTING)
        self.phase(call, Phase.OBSERVED, executionOutcome="returned", effectState="committed")
        for event in self.coordinator.record({"type": "tool_result", **about, "isError": False}):
            self.told(event)
        self.phase(call, Phase.RESULT_DURABLE, persistenceState="durable")
        self.phase(call, Phase.TERMINAL)

    def finish(self, *, has_output: bool = False) -> None:
        if not has_output:
            self.told({"type": "step_output", "stepId": "s1", "agent": "main", "text": "done"})
        completion = check_completion(
            collect_facts(self.script.records), exit_proven=True, result_valid=True
        )
        assert completion.code is None, completion.doubts
        self.live()
        self.script.add(RecordKind.VERIFICATION, struct_members(completion.payload))
        self.live()
        self.script.operate(OperationEvent.COMPLETE)


class Run:
    """One run over its attempts, and the world that it works on."""

    def __init__(self, declared: Declaration | None, *, honours_keys: bool) -> None:
        self.declared = declared
        self.world = World(honours_keys=honours_keys)
        self.script = Script()
        self.attempts = 0

    def attempt(
        self,
        decision: ResumeDecision | None,
        records_max: int = 1_000_000,
        *,
        dies_in_effect: bool = False,
    ) -> bool:
        """Do what the plan says until the log has so many records; tell whether it finished."""
        plan = None if decision is None else decision.plan
        self.attempts += 1
        host = Attempt(
            self.script,
            self.world,
            self.declared,
            records_max,
            dies_in_effect=dies_in_effect,
            owners=None if plan is None else plan.owners,
        )
        try:
            if plan is not None:
                host.live()
                self.script.add(RecordKind.RESUME, {})
                for event, reason in plan.operation_events:
                    host.live()
                    self.script.operate(event, reason)
            is_done = decision is not None and any(
                step.verdict is Verdict.SKIP for step in decision.steps
            )
            for number in () if is_done else range(len(WORKS)):
                self._take_up(host, number, decision)
            host.finish(has_output=is_done)
        except Crash:
            return False
        return True

    def _take_up(self, host: Attempt, number: int, decision: ResumeDecision | None) -> None:
        accounts = () if decision is None else decision.effects
        mine = [one for one in accounts if work_of(one.call_id) == number]
        call = call_identity("main", "s1", f"w{number}-{self.attempts}")
        replayed = [one for one in mine if one.verdict is Verdict.REPLAY]
        if not replayed:
            if not any(one.reason is Reason.DECIDED_COMMITTED for one in mine):
                host.work(WORKS[number], call)
            return
        [account] = replayed
        assert decision is not None
        assert decision.plan is not None
        [candidate] = [
            one
            for one in decision.plan.replay_candidates
            if one.previous_receipt_id == account.effect_id
        ]
        host.told(
            {
                "type": "tool_attempt",
                "attemptId": f"a{number}-{self.attempts}",
                "previousReceiptId": candidate.previous_receipt_id,
                "attempt": candidate.attempt,
                "agent": "main",
                "stepId": "s1",
                "callId": call.call_id,
            }
        )
        host.work(WORKS[number], call, f"{RUN}: {WORKS[number]}")

    def planned(self) -> ResumeDecision:
        """Return what the log allows, after a person has decided what is in doubt."""
        decision = resumed(self.script)
        for account in decision.effects:
            if account.verdict is Verdict.RECONSIDER and account.reason is not (
                Reason.DECIDED_NOT_DONE
            ):
                others = [one for one in decision.effects if one is not account]
                is_known = any(work_of(one.call_id) == work_of(account.call_id) for one in others)
                assert is_known or not self.world.done[WORKS[work_of(account.call_id)]]
        if decision.plan is None:
            assert refusal_of(decision) in ("unknown_effect", "committed_effect_pending")
            self._decide(decision)
            decision = resumed(self.script)
        return decision

    def _decide(self, decision: ResumeDecision) -> None:
        """Let a person look at the world and record what was seen, effect by effect."""
        for account in decision.effects:
            if account.verdict is not Verdict.PAUSE:
                continue
            count = self.world.done[WORKS[work_of(account.call_id)]]
            self.script.records.append(
                reconcile_effect(
                    collect_facts(self.script.records),
                    account.effect_id,
                    DecidedOutcome.COMMITTED if count else DecidedOutcome.NOT_DONE,
                    decided_by=Decider(kind=DeciderKind.PERSON, name="R. Example"),
                    evidence=evidence_of(f"{account.call_id}: {count}".encode()),
                    decided_at=AT,
                )
            )


def work_of(call_id: str) -> int:
    return int(call_id[1 : call_id.index("-")])


def records_of_a_whole_run() -> int:
    run = Run(None, honours_keys=False)
    assert run.attempt(None)
    return len(run.script.records)


WHOLE = records_of_a_whole_run()
KINDS = [(None, True), (PAYING, True), (UPLOADING, True), (DEAF, False), (UNSAFE, False)]


@pytest.mark.parametrize("dies_in_effect", [False, True])
@pytest.mark.parametrize("records_max", range(3, WHOLE))
@pytest.mark.parametrize(("declared", "honours_keys"), KINDS)
def test_no_effect_happens_twice_and_a_look_at_the_world_is_all_that_is_needed(
    declared: Declaration | None, honours_keys: bool, records_max: int, dies_in_effect: bool
) -> None:
    run = Run(declared, honours_keys=honours_keys)
    assert not run.attempt(None, records_max, dies_in_effect=dies_in_effect)

    assert run.attempt(run.planned())

    assert run.world.done == dict.fromkeys(WORKS, 1)
    assert refusal_of(resumed(run.script)) == "operation_not_resumable"


@given(
    kind=st.sampled_from(KINDS),
    crashes=st.lists(st.tuples(st.integers(0, WHOLE), st.booleans()), max_size=6),
)
def test_no_effect_happens_twice_however_often_the_next_attempt_dies_too(
    kind: tuple[Declaration | None, bool], crashes: list[tuple[int, bool]]
) -> None:
    run = Run(kind[0], honours_keys=kind[1])
    decision: ResumeDecision | None = None
    for records, dies_in_effect in crashes:
        records_max = len(run.script.records) + records
        if run.attempt(decision, records_max, dies_in_effect=dies_in_effect):
            break
        decision = run.planned()
    else:
        assert run.attempt(decision)

    assert run.world.done == dict.fromkeys(WORKS, 1)


def test_external_effect_pauses_where_the_outside_honours_no_key() -> None:
    codes: set[str | None] = set()
    for records_max in range(3, WHOLE):
        run = Run(DEAF, honours_keys=False)
        run.attempt(None, records_max, dies_in_effect=True)
        decision = resumed(run.script)
        assert all(account.verdict is not Verdict.REPLAY for account in decision.effects)
        codes.add(refusal_of(decision))

    assert codes == {None, "unknown_effect", "committed_effect_pending"}
