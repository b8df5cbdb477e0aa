"""The calls, receipts and steps of one run, collected in one pass and forgotten when done.

It decides which facts belong to one effect and whether each may follow the ones before. It
refuses to hold what is settled behind a completed step: memory is bounded by open calls and
by steps, not by the length of the log.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from protocol.canonical_json import JsonValue
from runnerd.runs.capability import EXTERNAL_KEY, HONOURED
from runnerd.runs.decisions import DecisionPayload
from runnerd.runs.effect_facts import Effect, check_decision
from runnerd.runs.effects import ClosedStep
from runnerd.runs.fingerprints import CallIdentity, call_identity, idempotency_key
from runnerd.runs.receipts import (
    EffectStatus,
    ReceiptBinding,
    call_proof,
    check_proof,
    conflict,
    identity_of,
    next_receipt_state,
    read_receipt,
)
from runnerd.runs.records import corrupt
from runnerd.runs.tool_classes import check_capability
from runnerd.runs.tool_lifecycle import next_lifecycle

Event: TypeAlias = Mapping[str, JsonValue]


class CompletedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose output is known; its calls are not made again."""

    step_id: str
    sequence: int
    """The record of its last output."""
    agent: str | None
    text: str
    save_as: str | None
    settled_effects: int = 0
    """How many effects were settled in it and forgotten."""
    had_colon_call: bool = False

    @property
    def closed(self) -> ClosedStep:
        """What the owner of keys must remember."""
        return ClosedStep(self.step_id, self.had_colon_call)


class CallFacts:
    """One pass over the trace events of one run, in persisted order."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.effects: dict[str, Effect] = {}
        """Effects that are open or unsettled, in the order in which they were first told."""
        self.completed_steps: dict[str, CompletedStep] = {}
        self.open_steps: dict[str, int] = {}
        """Steps without output, with the record of their start."""
        self._ids_of_step: dict[str, list[str]] = {}

    def apply(self, sequence: int, event: Event) -> None:
        """Take one trace event of the record ``sequence``.

        Raises:
            PrpError: ``effect_receipt_conflict`` for a receipt that may not follow, one that
                is not proven, a key of two calls, or a call told in two ways;
                ``tool_lifecycle_invalid``; ``run_state_corrupt`` for a malformed event.
        """
        match event.get("type"):
            case "tool_call":
                self._on_call(sequence, event)
            case "capability_resolved":
                self._on_capability(sequence, event)
            case "effect_receipt":
                self._on_receipt(sequence, event)
            case "tool_lifecycle":
                self._on_lifecycle(sequence, event)
            case "tool_attempt":
                self._on_attempt(sequence, event)
            case "step_start":
                self._on_step_start(sequence, event)
            case "step_output":
                self._on_output(sequence, event)
            case _:
                pass  # It says nothing about a call.

    def decide(self, sequence: int, decision: DecisionPayload) -> None:
        """Take a decision about an effect.

        Raises PrpError ``effect_receipt_conflict`` if it names no open effect, if more was
        known than it judged, if the effect was decided before, and if it contradicts what
        is known: a committed effect cannot be said not to be done.
        """
        effect = self.effects.get(decision.effect_id)
        if effect is None or effect.tool != decision.tool:
            raise conflict("the decision names no open effect")
        check_decision(effect, decision.outcome)
        if decision.judged_sequence != effect.sequence:
            raise conflict("the decision did not know the last fact")
        self._put_news(msgspec.structs.replace(effect, decision=decision, sequence=sequence))

    def output_sequence(self, effect: Effect) -> int | None:
        """Return the record that completed an effect's step, None while it is open."""
        step = self.completed_steps.get(effect.call.step_id)
        return None if step is None else step.sequence

    def in_order_of_judgement(self) -> Iterator[Effect]:
        """Yield the effects: those with a lifecycle, then other calls, then mere receipts."""
        effects = self.effects.values()
        yield from sorted(
            (effect for effect in effects if effect.lifecycle is not None),
            key=lambda effect: effect.lifecycle_sequence or 0,
        )
        yield from sorted(
            (effect for effect in effects if effect.lifecycle is None and effect.is_call),
            key=lambda effect: effect.call_sequence or 0,
        )
        yield from (effect for effect in effects if not effect.is_call and effect.receipt)

    def _on_call(self, sequence: int, event: Event) -> None:
        call = identity_of(event)
        if not call.call_id:
            # Without an id it can have no receipt, so it stays in doubt until decided.
            effect = Effect(effect_id=f"#{sequence}", call=call)
        else:
            effect = self._effect(call)
            key = event.get("idempotencyKey")
            if key is not None and key != effect.effect_id:
                raise conflict("the call names a key that is not its own")
        proof = call_proof(effect.proof, event)
        if effect.call_sequence is None:
            effect = msgspec.structs.replace(
                effect,
                tool=str(event.get("tool", "")),
                call_sequence=sequence,
                sequence=sequence,
                status_sequence=effect.status_sequence or sequence,
            )
        self._put(msgspec.structs.replace(effect, proof=proof))

    def _on_capability(self, sequence: int, event: Event) -> None:
        call = identity_of(event)
        if not call.call_id:
            return
        capability = check_capability(dict(event))
        effect = self._effect(call)
        honours_key = event.get(EXTERNAL_KEY) == HONOURED
        if effect.capability is not None and effect.honours_key != honours_key:
            raise conflict("the call was told differently before: whether its key is honoured")
        self._put(
            msgspec.structs.replace(
                effect,
                tool=effect.tool or capability.tool,
                proof=call_proof(effect.proof, event),
                capability=capability,
                capability_sequence=sequence,
                honours_key=honours_key,
            )
        )

    def _on_receipt(self, sequence: int, event: Event) -> None:
        receipt = read_receipt(event)
        key = receipt.idempotency_key
        effect = self.effects.get(key)
        if effect is None:
            effect = Effect(effect_id=key, call=_call_of_key(self._run_id, key, event))
        elif not _may_tell_of(effect.call, event):
            raise conflict("the key belongs to another call")
        if effect.decision is not None:
            raise conflict("a receipt after the decision about its effect")
        state = next_receipt_state(effect.receipt, receipt, run_id=self._run_id)
        if effect.tool not in ("", receipt.tool):
            raise conflict("the call used another tool")
        if isinstance(receipt.binding, ReceiptBinding):
            check_proof(receipt.binding, effect.proof)
        effect = msgspec.structs.replace(
            effect,
            tool=receipt.tool,
            receipt=state,
            sequence=sequence,
            status_sequence=sequence,
        )
        if state.status is EffectStatus.STARTED:
            self._note_retry(sequence, effect)
        self._put_news(effect)

    def _on_lifecycle(self, sequence: int, event: Event) -> None:
        effect = self._effect(identity_of(event))
        state = next_lifecycle(effect.lifecycle, event)
        if effect.tool not in ("", state.tool):
            raise conflict("the call used another tool")
        first = effect.lifecycle_sequence
        told = msgspec.structs.replace(
            effect,
            tool=state.tool,
            lifecycle=state,
            lifecycle_sequence=sequence if first is None else first,
            sequence=sequence if effect.decision is None else effect.sequence,
        )
        if told.status is not effect.status:
            if effect.decision is not None:
                raise conflict("news of an effect after the decision about it")
            told = msgspec.structs.replace(told, status_sequence=sequence)
        self._put_news(told)

    def _on_attempt(self, sequence: int, event: Event) -> None:
        call = identity_of(event)
        attempt = event.get("attempt")
        if not call.call_id or not isinstance(attempt, int | float):
            return
        previous = event.get("previousReceiptId")
        self._put(
            msgspec.structs.replace(
                self._effect(call),
                attempt=int(attempt),
                previous_id=previous if isinstance(previous, str) else None,
            )
        )

    def _on_step_start(self, sequence: int, event: Event) -> None:
        step_id = event.get("stepId")
        if isinstance(step_id, str) and step_id not in self.completed_steps:
            self.open_steps.setdefault(step_id, sequence)

    def _on_output(self, sequence: int, event: Event) -> None:
        step_id, text = event.get("stepId"), event.get("text")
        if not isinstance(step_id, str) or not step_id or not isinstance(text, str):
            # An empty id would complete every call outside a step.
            raise corrupt("a step's output without its step or text")
        before = self.completed_steps.get(step_id)
        agent, save_as = event.get("agent"), event.get("saveAs")
        self.completed_steps[step_id] = CompletedStep(
            step_id=step_id,
            sequence=sequence,
            agent=agent if isinstance(agent, str) else None,
            text=text,
            save_as=save_as if isinstance(save_as, str) else None,
            settled_effects=0 if before is None else before.settled_effects,
            had_colon_call=before is not None and before.had_colon_call,
        )
        self.open_steps.pop(step_id, None)
        for effect_id in self._ids_of_step.pop(step_id, ()):
            effect = self.effects.get(effect_id)
            if effect is None:
                continue
            if effect.is_mere_word:
                del self.effects[effect_id]
            elif effect.is_done:
                self._forget(effect)

    def _note_retry(self, sequence: int, effect: Effect) -> None:
        """Let a begun attempt take up the effect that it repeats, with the same arguments.

        It must be a later one, so that no two attempts can take up each other.
        """
        previous = self.effects.get(effect.previous_id or "")
        if previous is None or previous.decision is not None:
            return
        if effect.attempt <= previous.attempt:
            return
        ours, theirs = effect.proof, previous.proof
        if ours is None or theirs is None or effect.tool != previous.tool:
            return
        if previous.is_candidate and ours.arguments_fingerprint == theirs.arguments_fingerprint:
            self._put(msgspec.structs.replace(previous, retried_sequence=sequence))

    def _effect(self, call: CallIdentity) -> Effect:
        """Return what is known of a call, or a new effect.

        Raises PrpError ``effect_receipt_conflict`` if another call has the same key.
        """
        key = idempotency_key(self._run_id, call.step_id, call.call_id)
        effect = self.effects.get(key)
        if effect is None:
            return Effect(effect_id=key, call=call)
        if effect.call == call:
            return effect
        if effect.is_call or effect.capability is not None or effect.call.agent:
            raise conflict("two calls have the same key")
        # Only a receipt spoke of it, which need not say more of its call than the key.
        return msgspec.structs.replace(effect, call=call)

    def _put(self, effect: Effect) -> None:
        before = self.effects.get(effect.effect_id)
        if before is None or before.call.step_id != effect.call.step_id:
            self._ids_of_step.setdefault(effect.call.step_id, []).append(effect.effect_id)
        self.effects[effect.effect_id] = effect

    def _put_news(self, effect: Effect) -> None:
        """Put an effect whose end may have come after its step's."""
        self._put(effect)
        if effect.call.step_id in self.completed_steps and effect.is_done:
            self._forget(effect)

    def _forget(self, effect: Effect) -> None:
        del self.effects[effect.effect_id]
        step = self.completed_steps[effect.call.step_id]
        self.completed_steps[step.step_id] = msgspec.structs.replace(
            step,
            settled_effects=step.settled_effects + 1,
            had_colon_call=step.had_colon_call or ":" in effect.call.call_id,
        )


def _call_of_key(run_id: str, key: str, event: Event) -> CallIdentity:
    """Return the call that a receipt without a call names, as far as it does."""
    named = identity_of(event)
    if named.call_id:
        return named
    rest = key.removeprefix(f"{run_id}:").removeprefix(f"{named.step_id}:")
    return call_identity(named.agent, named.step_id, rest)


def _may_tell_of(call: CallIdentity, event: Event) -> bool:
    """Tell whether an event that names a key may be about its owner."""
    named = identity_of(event)
    return (
        named.agent in ("", call.agent)
        and named.step_id in ("", call.step_id)
        and named.call_id in ("", call.call_id)
    )
