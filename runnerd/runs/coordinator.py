"""Which receipts go with the tool calls of a live run, and when a tool may run at all.

It decides the receipt of every call: not started, started, committed or unknown. It refuses
to write them, and to know what a tool does: the host appends what is returned here and says
when it is durable.

    record(call) ▶ policy, approval, lease, checkpoint ▶ start ▶ append, sync ▶ began_durably
        ▶ begin_execution ▶ the tool runs ▶ record(result)

    call refused before `start`      not_started
    result without an error          committed
    result with an error             unknown
    cancelled or timed out           unknown if it had started, else not_started
"""

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.effects import KeyOwners
from runnerd.runs.fingerprints import CallIdentity, idempotency_key
from runnerd.runs.receipts import (
    TOOL_CALL,
    CallProof,
    EffectStatus,
    call_proof,
    identity_of,
    receipt_event,
)
from runnerd.runs.trace_rules import CAPABILITY_RESOLVED

TOOL_RESULT: Final = "tool_result"
_KEY: Final = "idempotencyKey"


class _Progress(enum.Enum):
    """How far a call has come."""

    RECORDED = "recorded"
    STARTED = "started"
    DURABLE = "durable"
    EXECUTING = "executing"
    CLOSED = "closed"


_HAS_STARTED: Final = (_Progress.STARTED, _Progress.DURABLE, _Progress.EXECUTING)


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    call: CallIdentity
    key: str
    tool: str
    turn_id: str | None = None
    progress: _Progress = _Progress.RECORDED
    touched: bool = False
    """A receipt other than not_started was given."""


class EffectCoordinator:
    """The receipts of one attempt of one run.

    Args:
        owners: the keys that are taken; a resumed run passes those of its plan.
    """

    def __init__(self, run_id: str, owners: KeyOwners | None = None) -> None:
        self._run_id = run_id
        self._owners = KeyOwners(run_id) if owners is None else owners
        self._calls: dict[str, _Call] = {}
        self._proofs: dict[CallIdentity, CallProof] = {}

    def record(self, event: Mapping[str, JsonValue]) -> tuple[dict[str, JsonValue], ...]:
        """Return what must be appended for a trace event: the event, and a receipt if due.

        A `tool_call` claims its key; a `tool_result` ends its call. Any other event, and
        one without a call id, is returned as it is. A result that comes after its call was
        closed changes nothing that is known.

        Raises PrpError ``effect_receipt_conflict`` for a key that is taken; nothing may be
        appended or executed then.
        """
        kind = event.get("type")
        call = identity_of(event)
        if kind == CAPABILITY_RESOLVED:
            self._proofs[call] = call_proof(self._proofs.get(call), event)
        if kind not in (TOOL_CALL, TOOL_RESULT) or not call.call_id:
            return (dict(event),)
        if kind == TOOL_CALL:
            return (self._opened(call, event),)
        return self._ended(call, event)

    def start(self, call: CallIdentity, tool: str) -> dict[str, JsonValue]:
        """Return the `started` receipt of a call, to be appended as a critical record.

        To be asked for after approval, lease and checkpoint, immediately before execution.

        Raises PrpError ``effect_receipt_conflict`` for an unknown call, for another tool
        than was recorded, and for a call that started or ended before.
        """
        known = self._known(call)
        if known is None or known.progress is not _Progress.RECORDED or known.tool != tool:
            raise PrpError(ErrorCode.EFFECT_RECEIPT_CONFLICT, "no recorded call waits for a start")
        self._calls[known.key] = msgspec.structs.replace(
            known, progress=_Progress.STARTED, touched=True
        )
        return self._receipt(known, EffectStatus.STARTED)

    def began_durably(self, call: CallIdentity) -> None:
        """Note that the `started` receipt of a call is on disk."""
        self._advance(call, _Progress.STARTED, _Progress.DURABLE)

    def begin_execution(self, call: CallIdentity) -> None:
        """Allow the one execution of a call.

        Raises PrpError ``tool_lifecycle_invalid`` unless its start is durable, and for a
        second execution.
        """
        self._advance(call, _Progress.DURABLE, _Progress.EXECUTING)

    def close(self, call: CallIdentity) -> tuple[dict[str, JsonValue], ...]:
        """Return the receipt that ends a call which was cancelled or timed out.

        What had started is unknown, for its answer will never be believed; what had not is
        not_started. A call that has ended gets no second receipt.
        """
        known = self._known(call)
        if known is None or known.progress is _Progress.CLOSED:
            return ()
        has_started = known.progress in _HAS_STARTED
        return self._closed(known, EffectStatus.UNKNOWN if has_started else None)

    def close_open(self) -> tuple[dict[str, JsonValue], ...]:
        """Return the receipts that end every open call, in the order the calls were made."""
        receipts: list[dict[str, JsonValue]] = []
        for known in tuple(self._calls.values()):
            receipts.extend(self.close(known.call))
        return tuple(receipts)

    def step_retry_refusal(self, step_id: str) -> ErrorCode | None:
        """Return why a step may not be retried as a whole after a failed model request.

        ``unclassified_error`` once any of its calls began: a person has to look.
        """
        for known in self._calls.values():
            if known.touched and known.call.step_id == step_id:
                return ErrorCode.UNCLASSIFIED_ERROR
        return None

    def _opened(self, call: CallIdentity, event: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        proof = call_proof(self._proofs.get(call), event)
        key = self._owners.claim(call)
        self._proofs[call] = proof
        turn_id = event.get("turnId")
        self._calls[key] = _Call(
            call=call,
            key=key,
            tool=str(event.get("tool", "")),
            turn_id=turn_id if isinstance(turn_id, str) else None,
        )
        return {**event, _KEY: key}

    def _ended(
        self, call: CallIdentity, event: Mapping[str, JsonValue]
    ) -> tuple[dict[str, JsonValue], ...]:
        known = self._known(call)
        if known is None:
            # Nothing was recorded before, so nothing of ours can have run.
            key = self._owners.claim(call)
            known = _Call(call=call, key=key, tool=str(event.get("tool", "")))
        marked = {**event, _KEY: known.key}
        if known.progress is _Progress.CLOSED:
            return (marked,)
        if known.progress is _Progress.RECORDED:
            status = None
        elif event.get("isError") is False:
            status = EffectStatus.COMMITTED
        else:
            status = EffectStatus.UNKNOWN
        return (marked, *self._closed(known, status))

    def _closed(
        self, known: _Call, status: EffectStatus | None
    ) -> tuple[dict[str, JsonValue], ...]:
        self._calls[known.key] = msgspec.structs.replace(known, progress=_Progress.CLOSED)
        return (self._receipt(known, status or EffectStatus.NOT_STARTED),)

    def _advance(self, call: CallIdentity, expected: _Progress, target: _Progress) -> None:
        known = self._known(call)
        if known is None or known.progress is not expected:
            raise PrpError(
                ErrorCode.TOOL_LIFECYCLE_INVALID, f"no call waits to become {target.value}"
            )
        self._calls[known.key] = msgspec.structs.replace(known, progress=target)

    def _known(self, call: CallIdentity) -> _Call | None:
        """Return a recorded call; who asks may leave out its agent."""
        known = self._calls.get(idempotency_key(self._run_id, call.step_id, call.call_id))
        if known is None or call.agent not in ("", known.call.agent):
            return None
        is_same = (known.call.step_id, known.call.call_id) == (call.step_id, call.call_id)
        return known if is_same else None

    def _receipt(self, known: _Call, status: EffectStatus) -> dict[str, JsonValue]:
        proof = self._proofs.get(known.call)
        return receipt_event(self._run_id, known.call, known.tool, known.turn_id, status, proof)
