"""Requests of a harness to people: asked once, answered once, and late answers refused by name.

It decides what becomes of a question and of an answer. It refuses to know what either says:
the question goes out with the digest of its exact content, the answer goes back as it came.

    asked ─▶ pending ─request.resolve─▶ answered ─program was told─▶ resolved
               │   └─ the program was lost: the next one that asks the same gets the answer
               ├─ its time passes ─▶ expired
               └─ the run ends    ─▶ cancelled
"""

from typing import Final, Literal

import msgspec
from msgspec import structs

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.canonical_json import JsonValue, canonical_bytes, parse_strict
from protocol.commands import WireCommand
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.ids import is_stable_id
from protocol.limits import (
    REQUEST_ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS_PENDING_MAX,
    REQUESTS_SETTLED_MAX,
    TURN_END_ROOM_BYTES,
    TURN_ID_LENGTH_MAX,
)
from protocol.redaction import redact_value
from protocol.timestamps import rfc3339_ms
from runnerd.core import dialogue
from runnerd.core.admission import Refused
from runnerd.core.answer import Answer
from runnerd.core.conversation import RuntimeRequest
from runnerd.core.harness_messages import Asked
from runnerd.core.outbox import Draft, produce, soft_room
from runnerd.core.state import Runner, Turn
from runnerd.core.transition import advance, with_live

_FATES: Final = {
    "resolved": ErrorCode.REQUEST_RESOLVED,
    "answered": ErrorCode.REQUEST_RESOLVED,
    "expired": ErrorCode.REQUEST_EXPIRED,
    "cancelled": ErrorCode.REQUEST_CANCELLED,
}


# --- the harness asks -----------------------------------------------------------------------


def ask(runner: Runner, turn: Turn, asked: Asked, now: Now) -> Runner | ErrorCode:
    """Take a question of the live program.

    Returns:
        The question as pending, with one `runtime_request.created` in the same revision. A
        question that an earlier program asked with the same content waits for the same
        answer, or gets the one that is stored. Or the code of a refusal: ``request_invalid``,
        ``request_conflict`` for a known id with another question, ``requests_full``,
        ``outbox_full``, or what became of a request that is over.

    Source: runner-behaviour 15; issue "Requests and approvals".
    """
    if not is_stable_id(asked.request_id, TURN_ID_LENGTH_MAX):
        return ErrorCode.REQUEST_INVALID
    try:
        exact = canonical_bytes(asked.question)
    except PrpError:
        return ErrorCode.REQUEST_INVALID
    if len(exact) > REQUEST_BYTES_MAX:
        return ErrorCode.REQUEST_INVALID
    digest = sha256_label(exact)
    known = find(runner, asked.request_id)
    if known is not None:
        return _ask_again(runner, turn, known, digest)
    open_ = sum(request.is_open for request in runner.durable.requests)
    if open_ >= REQUESTS_PENDING_MAX or not dialogue.end_fits(runner):
        return ErrorCode.REQUESTS_FULL
    expires = None if asked.expires_in_ms is None else now.unix_ms + asked.expires_in_ms
    request = RuntimeRequest(
        request_id=asked.request_id,
        kind=asked.kind,
        digest=digest,
        generation=turn.generation,
        expires_at_unix_ms=expires,
    )
    try:
        created = produce(runner, (_created(request, asked.question),), now)
    except PrpError:
        return ErrorCode.REQUEST_INVALID
    if soft_room(created) < TURN_END_ROOM_BYTES:
        return ErrorCode.OUTBOX_FULL
    return armed(advance(created, requests=_kept((*created.durable.requests, request))), now)


def _ask_again(
    runner: Runner, turn: Turn, known: RuntimeRequest, digest: str
) -> Runner | ErrorCode:
    if known.digest != digest:
        return ErrorCode.REQUEST_CONFLICT
    if not known.is_open:
        return _FATES[known.state]
    if known.generation == turn.generation:
        return runner
    waiting = _replace(runner, structs.replace(known, generation=turn.generation))
    return waiting if known.state == "pending" else _tell_answer(waiting, known)


def _created(request: RuntimeRequest, question: dict[str, JsonValue]) -> Draft:
    shown = redact_value(question)
    payload: dict[str, JsonValue] = {
        **_facts(request),
        "request": shown,
        "requestRedacted": shown != question,
    }
    if request.expires_at_unix_ms is not None:
        payload["expiresAt"] = rfc3339_ms(UnixMs(max(0, request.expires_at_unix_ms)))
    return Draft("runtime_request.created", 0, payload)


# --- the controller answers -----------------------------------------------------------------


def resolve(runner: Runner, command: WireCommand, now: Now) -> Answer | Refused:
    """Take the answer to a question: what the first one says holds.

    Returns:
        Completed, status ``resolved`` with what becomes of the answer: ``delivered`` to the
        program that waits, or ``stored`` for the next that asks the same. The same answer
        once more: completed, ``duplicate``. Or a rejection: ``request_invalid``,
        ``request_unknown``, ``request_conflict`` if it names another question,
        ``request_resolved`` if another answer holds, ``request_expired``,
        ``request_cancelled``.
    """
    read = _read_resolution(command)
    if isinstance(read, Refused):
        return read
    request_id, question_digest, answer, answer_digest = read
    request = find(runner, request_id)
    if request is None:
        return Refused(ErrorCode.REQUEST_UNKNOWN, "no such request, or it is long over")
    if question_digest not in (None, request.digest):
        return Refused(ErrorCode.REQUEST_CONFLICT, f"the question has digest {request.digest}")
    if request.state == "pending" and _is_over(request, now):
        runner = expire_due(runner, now)
        request = find(runner, request_id)
        assert request is not None, "what expires is remembered"
    if request.state != "pending":
        return _late(runner, command, request, answer_digest, now)
    answered = structs.replace(
        request, state="answered", answer=msgspec.Raw(answer), answer_digest=answer_digest
    )
    is_waited_for = dialogue.listens(runner, request.generation)
    delivery = "delivered" if is_waited_for else "stored"
    draft = Draft(
        "runtime_request.resolved",
        0,
        {**_facts(request), "answerDigest": answer_digest, "delivery": delivery},
    )
    resolved = armed(produce(_replace(runner, answered), (draft,), now), now)
    if is_waited_for:
        resolved = _tell_answer(resolved, answered)
    members: dict[str, JsonValue] = {
        "requestId": request_id,
        "status": "resolved",
        "delivery": delivery,
    }
    return Answer(runner=resolved, members=members)


def _late(
    runner: Runner, command: WireCommand, request: RuntimeRequest, answer_digest: str, now: Now
) -> Answer:
    if request.answer_digest == answer_digest:
        members: dict[str, JsonValue] = {"requestId": request.request_id, "status": "duplicate"}
        return Answer(runner=runner, members=members)
    code = _FATES[request.state].value
    members = {"code": code, "requestId": request.request_id, "requestState": request.state}
    # Who answers too late finds its fate in the log of the run too, if there is room to tell.
    told: dict[str, JsonValue] = {
        **members,
        "commandId": command.command_id,
        "answerDigest": answer_digest,
        "fate": "not_applied",
    }
    noted = produce(runner, (Draft("runner.diagnostic", 2, told),), now)
    if soft_room(noted) < TURN_END_ROOM_BYTES:
        noted = runner
    return Answer(runner=noted, members=members, status="rejected")


def _read_resolution(command: WireCommand) -> tuple[str, str | None, bytes, str] | Refused:
    payload = parse_strict(bytes(command.payload))
    assert isinstance(payload, dict), "validate_command has seen an object"
    request_id, digest = payload.get("requestId"), payload.get("requestDigest")
    resolution = payload.get("resolution")
    if not isinstance(request_id, str) or not isinstance(resolution, dict):
        return Refused(
            ErrorCode.REQUEST_INVALID, "payload needs requestId (text) and resolution (object)"
        )
    if digest is not None and not isinstance(digest, str):
        return Refused(ErrorCode.REQUEST_INVALID, "requestDigest must be a text")
    answer = msgspec.json.encode(resolution)
    if len(answer) > REQUEST_ANSWER_BYTES_MAX:
        return Refused(ErrorCode.REQUEST_INVALID, "the resolution is too large")
    return request_id, digest, answer, sha256_label(canonical_bytes(resolution))


def _tell_answer(runner: Runner, request: RuntimeRequest) -> Runner:
    assert isinstance(request.answer, msgspec.Raw), "an answer is kept until it was told"
    return dialogue.tell(
        runner,
        "request.resolve",
        {
            "requestId": request.request_id,
            "outcome": "resolved",
            "resolution": request.answer,
        },
        ("request", request.request_id),
    )


def tell_refusal(runner: Runner, request_id: str, code: ErrorCode) -> Runner:
    """Tell the program that nobody will answer its question."""
    return dialogue.tell(
        runner,
        "request.resolve",
        {"requestId": request_id, "outcome": "refused", "code": code.value},
    )


def told(runner: Runner, request_id: str) -> Runner:
    """Settle a request whose answer the program has."""
    request = find(runner, request_id)
    if request is None or request.state != "answered":
        return runner
    return _replace(runner, structs.replace(request, state="resolved", answer=msgspec.UNSET))


# --- time and the end of the run ------------------------------------------------------------


def expire_due(runner: Runner, now: Now) -> Runner:
    """Expire every pending request whose time has passed by the wall clock."""
    for request in runner.durable.requests:
        if request.state == "pending" and _is_over(request, now):
            runner = _ended(runner, request, "expired", now)
    return armed(runner, now)


def cancel_open(runner: Runner, now: Now) -> Runner:
    """Cancel what nobody can wait for any more: the run has ended."""
    for request in runner.durable.requests:
        if request.state == "pending":
            runner = _ended(runner, request, "cancelled", now)
        elif request.state == "answered":
            over = structs.replace(request, state="resolved", answer=msgspec.UNSET)
            runner = _replace(runner, over)
    return armed(runner, now)


def _ended(
    runner: Runner, request: RuntimeRequest, state: Literal["expired", "cancelled"], now: Now
) -> Runner:
    runner = _replace(runner, structs.replace(request, state=state))
    if dialogue.listens(runner, request.generation):
        runner = dialogue.tell(
            runner, "request.resolve", {"requestId": request.request_id, "outcome": state}
        )
    return produce(runner, (Draft(f"runtime_request.{state}", 0, _facts(request)),), now)


def _is_over(request: RuntimeRequest, now: Now) -> bool:
    return request.expires_at_unix_ms is not None and now.unix_ms >= request.expires_at_unix_ms


def armed(runner: Runner, now: Now) -> Runner:
    """Return the runner with the moment of the next expiry, reckoned from the wall clock now."""
    expiries = [
        request.expires_at_unix_ms
        for request in runner.durable.requests
        if request.state == "pending" and request.expires_at_unix_ms is not None
    ]
    if not expiries and runner.live.request_deadline_mono_ms is None:
        return runner
    due = MonoMs(now.mono_ms + max(1, min(expiries) - now.unix_ms)) if expiries else None
    return with_live(runner, request_deadline_mono_ms=due)


# --- what is remembered -----------------------------------------------------------------------


def find(runner: Runner, request_id: str) -> RuntimeRequest | None:
    """Return a request that is remembered."""
    for request in runner.durable.requests:
        if request.request_id == request_id:
            return request
    return None


def _facts(request: RuntimeRequest) -> dict[str, JsonValue]:
    return {
        "requestId": request.request_id,
        "requestKind": request.kind,
        "requestDigest": request.digest,
    }


def _replace(runner: Runner, changed: RuntimeRequest) -> Runner:
    return advance(
        runner,
        requests=_kept(
            tuple(
                changed if request.request_id == changed.request_id else request
                for request in runner.durable.requests
            )
        ),
    )


def _kept(requests: tuple[RuntimeRequest, ...]) -> tuple[RuntimeRequest, ...]:
    over = sum(not request.is_open for request in requests) - REQUESTS_SETTLED_MAX
    kept: list[RuntimeRequest] = []
    for request in requests:
        if over > 0 and not request.is_open:
            over -= 1
        else:
            kept.append(request)
    return tuple(kept)
