"""Recording: what the run's log must say before a call leaves, an answer is told, a turn begins.

It decides which facts are due and what waits for them, from state alone. It refuses to know
records: an order names facts, and one that is repeated changes nothing.

    call admitted ─▶ due ─FactsRecorded▶ its event may leave
    result, answer stored ─▶ due ─FactsRecorded▶ the program may be told
"""

from typing import Final

import msgspec

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode
from protocol.events import event_id
from protocol.ids import SourceSeq
from protocol.limits import STORAGE_RETRY_MS
from protocol.redaction import redact_text
from runnerd.core import budget, ending
from runnerd.core.actions import RecordCancel, RecordFacts
from runnerd.core.conversation import RuntimeRequest, ToolCall
from runnerd.core.dialogue import Settles
from runnerd.core.inputs import FactsRecorded
from runnerd.core.run_fact import CallFact, RequestFact, RunFact
from runnerd.core.state import Durable, RecordedOf, Runner
from runnerd.core.transition import Step, claim, with_live

_DECISION_LENGTH_MAX: Final = 64
_PASSING: Final = (ErrorCode.DURABILITY_BARRIER_FAILED, ErrorCode.RUN_STATE_FAILED)
"""Faults of the disk, which may have room again; any other is a fault of the log itself."""


def facts_of(durable: Durable) -> tuple[RunFact, ...]:
    """Return what the log must say of everything that is open, in the order in which it came."""
    calls = tuple(_call_fact(one) for one in durable.tool_calls if one.state != "settled")
    return (*(_request_fact(one) for one in durable.requests if _is_of_interest(one)), *calls)


def end_facts_of(durable: Durable) -> tuple[RunFact, ...]:
    """Return what the log must say before an attempt's end: all of that, and what was used."""
    used = budget.usage_fact(durable)
    return facts_of(durable) if used is None else (*facts_of(durable), used)


def record_due(runner: Runner, now: Now) -> Step:
    """Order what the log does not say yet; facts about questions wait for an attempt."""
    live, durable = runner.live, runner.durable
    if durable.cancel_unrecorded and live.has_connected and not live.cancel_ordered:
        ordered = with_live(runner, cancel_ordered=True)
        return Transition(ordered, (claim(ordered, RecordCancel()),))
    if not runner.settings.keeps_run_log or not (durable.tool_calls or durable.requests):
        return Transition(runner)
    retry_at = live.record_retry_at_mono_ms
    if _is_known(runner) or durable.run_terminal or not live.has_connected:
        # Before the first welcome nothing leaves, and nobody is there to record it.
        return Transition(runner)
    if retry_at is not None and now.mono_ms < retry_at:
        return Transition(runner)
    due = tuple(
        fact
        for fact in facts_of(durable)
        if fact not in live.recorded
        and fact not in live.recording
        and (_has_attempt(durable) or isinstance(fact, CallFact))
    )
    ordered = with_live(
        runner,
        recording=live.recording.union(due),
        record_retry_at_mono_ms=None,
        recorded_of=RecordedOf(durable.tool_calls, durable.requests, _has_attempt(durable)),
    )
    return Transition(ordered, (claim(ordered, RecordFacts(due)),) if due else ())


def _is_known(runner: Runner) -> bool:
    """Tell whether these very calls and questions were looked at: most steps change neither."""
    seen, durable = runner.live.recorded_of, runner.durable
    return (
        seen is not None
        and seen.tool_calls is durable.tool_calls
        and seen.requests is durable.requests
        and seen.has_attempt == _has_attempt(durable)
    )


def _has_attempt(durable: Durable) -> bool:
    """Tell whether the log has the beginning of an attempt that is not over.

    Of a turn whose program is not there yet only `begin` says whether the log takes it.
    """
    return durable.turn is not None and durable.turn.birth is not None


def on_recorded(runner: Runner, answer: FactsRecorded, now: Now) -> Runner:
    """Note what the log says now.

    A disk that refuses is tried again; a log that is broken ends the turn.
    """
    live = runner.live
    left = live.recording.difference(answer.facts)
    if answer.fault is None:
        open_ = live.recorded.union(answer.facts).intersection(facts_of(runner.durable))
        return with_live(runner, recording=left, recorded=open_)
    waiting = with_live(
        runner,
        recording=left,
        recorded_of=None,
        record_retry_at_mono_ms=MonoMs(now.mono_ms + STORAGE_RETRY_MS),
    )
    if answer.fault in _PASSING or not _has_attempt(runner.durable):
        return waiting
    return ending.stop_turn(waiting, "unrecorded")


def held_from(runner: Runner) -> SourceSeq | None:
    """Return the first event that may not leave: it makes a call known that is not recorded.

    A run that has ended holds nothing back: its end says that something was not recorded.
    """
    live, durable = runner.live, runner.durable
    if not live.recording and live.record_retry_at_mono_ms is None:
        return None
    if durable.run_terminal:
        return None
    recorded = {fact.call_id for fact in live.recorded if isinstance(fact, CallFact)}
    held = {
        one.source_event_id
        for one in durable.tool_calls
        if one.state == "pending" and one.call_id not in recorded
    }
    if not held:
        return None
    identity = runner.settings.identity
    return next(
        (e.source_seq for e in durable.outbox if event_id(identity, e.source_seq) in held), None
    )


def may_tell(runner: Runner, settles: Settles) -> bool:
    """Tell whether the log has the answer that is to be told to the program."""
    if not runner.settings.keeps_run_log:
        return True
    what, name = settles
    if what == "call":
        return any(
            isinstance(fact, CallFact) and fact.call_id == name and fact.effect is not None
            for fact in runner.live.recorded
        )
    return any(
        isinstance(fact, RequestFact) and fact.request_id == name and fact.decision is not None
        for fact in runner.live.recorded
    )


def may_begin(runner: Runner) -> bool:
    """Tell whether an attempt may begin: no call is left whose effect the log cannot know.

    A program that is started again waits for the results that the one before it asked for.
    """
    durable, turn = runner.durable, runner.durable.turn
    if not runner.settings.keeps_run_log or turn is None or turn.intent is not None:
        return True
    return not any(one.state == "pending" for one in durable.tool_calls)


def _call_fact(one: ToolCall) -> CallFact:
    body = one.result if isinstance(one.result, msgspec.Raw) else b""
    return CallFact(
        call_id=one.call_id,
        operation_id=one.operation_id,
        input_digest=one.input_digest,
        idempotency_key=one.idempotency_key,
        effect=None if one.state == "pending" else one.effect or "unknown",
        is_error=one.is_error,
        result_digest=one.result_digest,
        result_bytes=len(bytes(body)),
    )


def _is_of_interest(one: RuntimeRequest) -> bool:
    return one.state != "resolved"


def _request_fact(one: RuntimeRequest) -> RequestFact:
    return RequestFact(
        request_id=one.request_id,
        kind=one.kind,
        digest=one.digest,
        decision=None if one.state == "pending" else _decision(one),
        answer_digest=one.answer_digest,
    )


def _decision(one: RuntimeRequest) -> str:
    """Return the word that the answer has for itself, else what became of the question.

    An answer may say anything, so that its word is redacted like all that enters a log.
    """
    if not isinstance(one.answer, msgspec.Raw):
        return one.state
    said: JsonValue = msgspec.json.decode(bytes(one.answer))
    word = said.get("decision") if isinstance(said, dict) else None
    if isinstance(word, str) and 0 < len(word) <= _DECISION_LENGTH_MAX and word.isprintable():
        return redact_text(word)
    allowed = said.get("allow") if isinstance(said, dict) else None
    if isinstance(allowed, bool):
        return "approved" if allowed else "denied"
    return "answered"
