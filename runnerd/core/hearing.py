"""What a program says: which of its messages count, and what is refused with a diagnostic.

It decides what may be said when, and that the first result and the first conclusion hold. It
refuses to know what becomes of a question or a call: `requests` and `tool_calls` do.

    (begun) ─ready─▶ events, questions, calls, one result ─conclusion─▶ nothing more counts
"""

from collections.abc import Callable
from typing import Final, assert_never

from msgspec import structs

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from protocol.limits import (
    HARNESS_GRACE_MS,
    HARNESS_ITEMS_ENDED_MAX,
    HARNESS_ITEMS_OPEN_MAX,
    TURN_END_ROOM_BYTES,
)
from protocol.redaction import bounded_diagnostic, redact_value
from runnerd.core import (
    budget,
    dialogue,
    ending,
    requests,
    tool_calls,
    tool_schemas,
    turns,
)
from runnerd.core.coalescing import COUNT, ITEM_MEMBER
from runnerd.core.conversation import Conclusion, Dialogue
from runnerd.core.harness_messages import (
    Asked,
    Called,
    Concluded,
    Diagnosed,
    HarnessMessage,
    Logged,
    Misspoken,
    Proposed,
    Ready,
    Reported,
)
from runnerd.core.inputs import HarnessMessages, HarnessTold
from runnerd.core.outbox import Draft, produce, produce_updates, soft_room
from runnerd.core.state import Runner, Turn
from runnerd.core.transition import Step, advance, with_live

_DELTA: Final = "item.delta"
_ITEM_ENDS: Final = ("item.completed", "item.failed")
_CONFIRMS: Final = frozenset({"session.started", "session.resumed", "turn.started"})
"""The runner has reported these itself; from the program they only confirm what it was told."""
_OWN_FAMILIES: Final = frozenset(
    {"attention", "harness", "interaction", "issue", "mcp_app", "run", "runner"}
    | {"runtime_request", "semantic_tool", "session", "turn", "work"}
)
"""Facts that the runner or the controller owns: a program does not get to state them."""
_OWN_TYPES: Final = frozenset({"workspace.ready"})

_TURN_STATES: Final = frozenset({"completed", "failed", "interrupted", "cancelled"})
_RUN_STATES: Final = frozenset({"succeeded", "failed", "cancelled"})
_DISPOSITIONS: Final = frozenset({"done", "blocked", "needs_review", "yielded"})


def on_messages(runner: Runner, said: HarnessMessages, now: Now) -> Step:
    """Take what the program said, message by message; `duties` asks for more when it is durable.

    Returns:
        The events and facts that follow. A message out of place changes nothing but one P2
        `harness.diagnostic`. The first message for whose events there is no room ends the
        turn with intent ``overflow`` (R17).

    Source: runner-behaviour 12; faults H08.
    """
    for message in said.messages:
        turn, present = runner.durable.turn, runner.live.dialogue
        if turn is None or present is None or turn.generation != said.generation:
            return Transition(runner)
        counted = advance(
            runner,
            lines_accepted=runner.durable.lines_accepted + 1,
            turn=structs.replace(turn, lines=turn.lines + 1),
        )
        heard = _hear(counted, turn, present, message, now)
        if soft_room(heard) < TURN_END_ROOM_BYTES:
            return Transition(ending.stop_turn(runner, "overflow"))
        runner = heard
    return Transition(runner)


def on_told(runner: Runner, told: HarnessTold) -> Runner:
    """Settle what the program's pipe has taken."""
    runner, settled = dialogue.take_told(runner, told.generation, told.number)
    for what, name in settled:
        runner = (requests if what == "request" else tool_calls).told(runner, name)
    return runner


def _hear(
    runner: Runner, turn: Turn, present: Dialogue, message: HarnessMessage, now: Now
) -> Runner:
    if isinstance(message, Logged):
        return runner
    if isinstance(message, Ready):
        return _on_ready(runner, turn, present, now)
    if isinstance(message, Diagnosed):
        return _diagnosed(runner, message.code, {"message": bounded_diagnostic(message.text)}, now)
    if isinstance(message, Concluded) and present.conclusion is not None:
        return _diagnosed(runner, ErrorCode.DUPLICATE_TERMINAL_IGNORED.value, {}, now)
    if present.conclusion is not None:
        return _refused(runner, "the program had concluded", now)
    match message:
        case Reported():
            return _on_reported(runner, present, message, now)
        case Asked():
            outcome = requests.ask(runner, turn, message, now)
            return _or_refused(
                runner, outcome, lambda code: _no_request(runner, message.request_id, code, now)
            )
        case Called():
            outcome = tool_calls.call(runner, turn, message, now)
            if outcome is ErrorCode.BUDGET_EXCEEDED:
                runner = budget.stop_over_calls(runner)
            return _or_refused(runner, outcome, lambda code: _no_call(runner, message, code, now))
        case Proposed():
            return _on_proposed(runner, present, message, now)
        case Concluded():
            return _on_concluded(runner, present, message, now)
        case Misspoken():
            return _on_misspoken(runner, message, now)
        case _:
            assert_never(message)


# --- the life of the program ------------------------------------------------------------------


def _on_ready(runner: Runner, turn: Turn, present: Dialogue, now: Now) -> Runner:
    if present.is_ready:
        return _refused(runner, "it was ready before", now)
    facts: dict[str, JsonValue] = {
        "generation": turn.generation,
        "driverKind": "jsonl",
        "transport": "stdio_jsonl",
    }
    if turn.restarts:
        drafts = turns.reconciled(runner, turn, facts)
    else:
        drafts = [
            Draft("harness.ready", 1, facts),
            Draft("turn.started", 0, {"turnOrdinal": turn.ordinal}),
        ]
    return dialogue.greet(produce(runner, drafts, now), turn)


def _on_proposed(runner: Runner, present: Dialogue, message: Proposed, now: Now) -> Runner:
    if present.has_result:
        return _diagnosed(runner, ErrorCode.DUPLICATE_SEMANTIC_RESULT_IGNORED.value, {}, now)
    result = redact_value(message.result)
    assert isinstance(result, dict), "an object stays one"
    try:
        longer = produce(runner, (Draft("run.result.proposed", 0, result),), now)
    except PrpError as error:
        return _refused(runner, f"no result: {_lack(result) or error.message}", now)
    known = structs.replace(
        present, has_result=True, disposition=str(result["reportedWorkDisposition"])
    )
    return with_live(longer, dialogue=known)


def _lack(result: dict[str, JsonValue]) -> str:
    """Name what a result is without: the place of the misfit would only be the whole of it."""
    from protocol.event_payloads import RUN_RESULT_NEEDS

    missing = [name for name in RUN_RESULT_NEEDS if name not in result]
    return f"it lacks {', '.join(missing)}" if missing else ""


def _on_concluded(runner: Runner, present: Dialogue, message: Concluded, now: Now) -> Runner:
    proposal = redact_value(message.proposal)
    assert isinstance(proposal, dict), "an object stays one"
    concluded = Conclusion(
        proposal=proposal,
        turn_state=_word(proposal, "turnTerminalState", _TURN_STATES),
        run_state=_word(proposal, "runTerminalState", _RUN_STATES),
        disposition=_word(proposal, "reportedWorkDisposition", _DISPOSITIONS),
    )
    told = dialogue.tell(runner, "session.close", {})
    closing = told.live.dialogue
    assert closing is not None, "it was just told something"
    return with_live(
        told,
        dialogue=structs.replace(closing, conclusion=concluded),
        linger_deadline_mono_ms=MonoMs(now.mono_ms + HARNESS_GRACE_MS),
    )


def _word(proposal: dict[str, JsonValue], member: str, words: frozenset[str]) -> str | None:
    said = proposal.get(member)
    return said if isinstance(said, str) and said in words else None


# --- events -----------------------------------------------------------------------------------


def _on_reported(runner: Runner, present: Dialogue, message: Reported, now: Now) -> Runner:
    event_type = message.event_type
    if event_type in _CONFIRMS:
        return runner
    if event_type == budget.USAGE_EVENT and runner.durable.turn is not None:
        runner = budget.take_usage(runner, runner.durable.turn, message.payload)
    if event_type.partition(".")[0] in _OWN_FAMILIES or event_type in _OWN_TYPES:
        return _refused(runner, "the runner states this itself", now, event_type)
    if event_type.startswith("item."):
        items = _with_item(present, event_type, message.item_id)
        if isinstance(items, str):
            return _refused(runner, items, now, event_type)
        runner = with_live(runner, dialogue=items)
    payload = redact_value(message.payload)
    assert isinstance(payload, dict), "an object stays one"
    if message.item_id:
        payload[ITEM_MEMBER] = message.item_id
    try:
        if event_type == _DELTA:
            payload.pop(COUNT, None)
            return produce_updates(runner, event_type, (payload,), now)
        return produce(runner, (Draft(event_type, 1, payload),), now)
    except PrpError as error:
        return _refused(runner, error.message, now, event_type)


def _with_item(present: Dialogue, event_type: str, item_id: str) -> Dialogue | str:
    """Return the dialogue with an item begun or ended, or why that cannot be."""
    is_open = item_id in present.open_items
    if event_type == "item.started":
        if is_open or item_id in present.ended_items:
            return "this item was started before"
        if len(present.open_items) >= HARNESS_ITEMS_OPEN_MAX:
            return "too many items are open"
        return structs.replace(present, open_items=(*present.open_items, item_id))
    if not is_open:
        return "this item has ended or was never started"
    if event_type not in _ITEM_ENDS:
        return present
    ended = (*present.ended_items, item_id)[-HARNESS_ITEMS_ENDED_MAX:]
    left = tuple(item for item in present.open_items if item != item_id)
    return structs.replace(present, open_items=left, ended_items=ended)


# --- what is refused --------------------------------------------------------------------------


def _or_refused(
    runner: Runner, outcome: Runner | ErrorCode, refuse: Callable[[ErrorCode], Runner]
) -> Runner:
    return refuse(outcome) if isinstance(outcome, ErrorCode) else outcome


def _no_request(runner: Runner, request_id: str, code: ErrorCode, now: Now) -> Runner:
    refused = requests.tell_refusal(runner, request_id, code)
    return _diagnosed(refused, code.value, {"requestId": bounded_diagnostic(request_id)}, now)


def _no_call(runner: Runner, called: Called, code: ErrorCode, now: Now) -> Runner:
    refused = tool_calls.tell_refusal(runner, called.call_id, called.operation_id, code)
    members: dict[str, JsonValue] = {
        "reason": code.value,
        "callId": bounded_diagnostic(called.call_id),
        "operationId": bounded_diagnostic(called.operation_id),
    }
    known = tool_calls.find(runner, called.call_id)
    tools = runner.durable.tools
    if code is ErrorCode.TOOL_INPUT_INVALID and tools is not None and called.fault is None:
        words = tool_schemas.input_misfit(tools, called.operation_id, called.input)
        members["misfit"] = None if words is None else bounded_diagnostic(words)
    if code is ErrorCode.TOOL_CALL_CONFLICT and known is not None:
        members["storedInputDigest"] = known.input_digest
        members["inputDigest"] = tool_calls.input_digest(called)
    return _diagnosed(refused, ErrorCode.SEMANTIC_TOOL_NOT_DISPATCHED.value, members, now)


def _on_misspoken(runner: Runner, message: Misspoken, now: Now) -> Runner:
    code = ErrorCode.HARNESS_MESSAGE_REFUSED
    if message.request_id is not None:
        runner = requests.tell_refusal(runner, message.request_id, code)
    if message.call_id is not None:
        runner = tool_calls.tell_refusal(runner, message.call_id, "", code)
    return _refused(runner, message.reason, now, message.type)


def _refused(runner: Runner, reason: str, now: Now, what: str | None = None) -> Runner:
    members: dict[str, JsonValue] = {"reason": bounded_diagnostic(reason)}
    if what is not None:
        members["refused"] = bounded_diagnostic(what)
    return _diagnosed(runner, ErrorCode.HARNESS_MESSAGE_REFUSED.value, members, now)


def _diagnosed(runner: Runner, code: str, members: dict[str, JsonValue], now: Now) -> Runner:
    turn = runner.durable.turn
    payload: dict[str, JsonValue] = {
        "code": bounded_diagnostic(code),
        "generation": None if turn is None else turn.generation,
        **members,
    }
    return produce(runner, (Draft("harness.diagnostic", 2, payload),), now)
