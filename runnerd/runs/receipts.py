"""Effect receipts: what one says, what may follow it under its key, and what proves it.

It decides whether a receipt continues the chain of its key and whether its binding is
proven by the facts before it. It refuses to know who writes a receipt and what a resumed
run does with one.

    (none) ──▶ not_started            refused before the start mark; final
       └─────▶ started ──▶ committed  the tool said so; final
                  └──────▶ unknown    begun and not known to have ended; final

Whatever else is `effect_receipt_conflict`: nothing repeats and nothing goes back. Only a
recorded decision, see `reconcile`, says more about a key that ended unknown.
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.fingerprints import CallIdentity, call_identity, fingerprint, idempotency_key
from runnerd.runs.records import UNFIT, struct_members

EFFECT_RECEIPT: Final = "effect_receipt"
TOOL_CALL: Final = "tool_call"
BINDING_VERSION: Final = 1

Fingerprint: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class EffectStatus(enum.StrEnum):
    """What is known of an effect; `unknown` is an answer of its own, never rounded."""

    NOT_STARTED = "not_started"
    STARTED = "started"
    COMMITTED = "committed"
    UNKNOWN = "unknown"


SETTLED: Final = (EffectStatus.NOT_STARTED, EffectStatus.COMMITTED)
"""Statuses after which nobody has to ask what happened."""

NEXT_STATUS: Final[Mapping[EffectStatus | None, tuple[EffectStatus, ...]]] = MappingProxyType(
    {
        None: (EffectStatus.NOT_STARTED, EffectStatus.STARTED),
        EffectStatus.NOT_STARTED: (),
        EffectStatus.STARTED: (EffectStatus.COMMITTED, EffectStatus.UNKNOWN),
        EffectStatus.COMMITTED: (),
        EffectStatus.UNKNOWN: (),
    }
)


class Provenance(enum.StrEnum):
    """Whether a key's chain is bound to a call from its first receipt on."""

    LEGACY = "legacy"
    BOUND = "bound"


class ReceiptBinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What exactly was begun: the call, its arguments and the class that allowed it."""

    version: int
    run_id: str
    turn_id: str
    agent: str
    step_id: str | UnsetType = UNSET
    call_id: str
    tool: str
    arguments_fingerprint: Fingerprint
    capability_fingerprint: Fingerprint

    @property
    def call(self) -> CallIdentity:
        """The call that is bound."""
        return call_identity(self.agent, self.step_id or None, self.call_id)


class EffectReceipt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One receipt as the log has it."""

    idempotency_key: str
    tool: str
    status: EffectStatus
    agent: str | UnsetType = UNSET
    step_id: str | UnsetType = UNSET
    turn_id: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    binding: ReceiptBinding | UnsetType = UNSET


class ReceiptState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the chain of one key stands."""

    idempotency_key: str
    tool: str
    status: EffectStatus
    provenance: Provenance
    step_id: str | UnsetType = UNSET
    binding: ReceiptBinding | UnsetType = UNSET

    @property
    def is_final(self) -> bool:
        """Whether no receipt may follow."""
        return not NEXT_STATUS[self.status]


class CallProof(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about a call apart from its receipts; absent parts prove nothing."""

    tool: str | None = None
    turn_id: str | None = None
    arguments_fingerprint: str | None = None
    capability_fingerprint: str | None = None


def read_receipt(event: Mapping[str, JsonValue]) -> EffectReceipt:
    """Return the receipt that an `effect_receipt` event is.

    Raises PrpError ``effect_receipt_conflict`` if a member is missing or malformed.
    """
    try:
        return msgspec.convert(event, EffectReceipt)
    except UNFIT as error:
        raise conflict(str(error)) from None


def next_receipt_state(
    before: ReceiptState | None, receipt: EffectReceipt, *, run_id: str | None = None
) -> ReceiptState:
    """Return where a key's chain stands after one more receipt.

    Args:
        before: None for the first receipt of its key.
        run_id: of the log, if it is known.

    Returns:
        The state; its binding is that of the first receipt, and a chain that began without
        one stays `legacy`.
        Raises PrpError ``effect_receipt_conflict`` for a status that may not follow, a
        binding that contradicts the receipt, a binding that changed or was lost, and
        another tool under the same key.

    Source: durable-runs 3.
    """
    status = None if before is None else before.status
    if receipt.status not in NEXT_STATUS[status]:
        raise conflict(f"{receipt.status.value} after {status.value if status else 'nothing'}")
    binding = receipt.binding
    if isinstance(binding, ReceiptBinding):
        check_binding(receipt, binding, run_id)
    if before is None:
        is_bound = isinstance(binding, ReceiptBinding)
        return ReceiptState(
            idempotency_key=receipt.idempotency_key,
            tool=receipt.tool,
            status=receipt.status,
            provenance=Provenance.BOUND if is_bound else Provenance.LEGACY,
            step_id=receipt.step_id,
            binding=binding,
        )
    if receipt.tool != before.tool:
        raise conflict("another tool under the same key")
    if before.provenance is Provenance.BOUND and binding != before.binding:
        raise conflict("the binding changed or was lost")
    return msgspec.structs.replace(before, status=receipt.status)


def check_binding(receipt: EffectReceipt, binding: ReceiptBinding, run_id: str | None) -> None:
    """Refuse a binding that does not belong to its receipt: ``effect_receipt_conflict``."""
    said = (receipt.agent, receipt.step_id or UNSET, receipt.turn_id, receipt.call_id)
    bound = (binding.agent, binding.step_id or UNSET, binding.turn_id, binding.call_id)
    if said != bound or receipt.tool != binding.tool:
        raise conflict("the binding names another call")
    if binding.version != BINDING_VERSION:
        raise conflict("an unknown version of the binding")
    if run_id is not None and binding.run_id != run_id:
        raise conflict("the binding names another run")
    key = idempotency_key(binding.run_id, binding.step_id or None, binding.call_id)
    if key != receipt.idempotency_key:
        raise conflict("the key is not that of the bound call")


def check_proof(binding: ReceiptBinding, proof: CallProof | None) -> None:
    """Refuse a binding that the facts before it do not reproduce: ``effect_receipt_conflict``."""
    if proof is None or proof.arguments_fingerprint is None:
        raise conflict("no call proves the receipt")
    if proof.capability_fingerprint is None:
        raise conflict("no capability proves the receipt")
    if (proof.tool, proof.arguments_fingerprint, proof.capability_fingerprint) != (
        binding.tool,
        binding.arguments_fingerprint,
        binding.capability_fingerprint,
    ):
        raise conflict("the facts about the call contradict the receipt")
    if proof.turn_id is not None and proof.turn_id != binding.turn_id:
        raise conflict("the call belongs to another turn")


def call_proof(before: CallProof | None, event: Mapping[str, JsonValue]) -> CallProof:
    """Return what is proven after a `tool_call` or a `capability_resolved`.

    An explicit `argumentsFingerprint` holds before the arguments, which may be redacted.

    Raises PrpError ``effect_receipt_conflict`` if the event tells something else than an
    earlier one about the same call.
    """
    if event.get("type") == TOOL_CALL:
        told = CallProof(
            tool=_text(event.get("tool")),
            turn_id=_text(event.get("turnId")),
            arguments_fingerprint=_arguments_fingerprint(event),
        )
    else:
        told = CallProof(
            tool=_text(event.get("tool")),
            capability_fingerprint=_fingerprint_or_none(event.get("capability")),
        )
    if before is None:
        return told
    merged: dict[str, str | None] = {}
    for name in CallProof.__struct_fields__:
        old: str | None = getattr(before, name)
        new: str | None = getattr(told, name)
        if old is not None and new is not None and old != new:
            raise conflict(f"the call was told differently before: {name}")
        merged[name] = new if old is None else old
    return CallProof(**merged)


def receipt_event(
    run_id: str,
    call: CallIdentity,
    tool: str,
    turn_id: str | None,
    status: EffectStatus,
    proof: CallProof | None,
) -> dict[str, JsonValue]:
    """Return a receipt as an event, bound to its call as far as the facts prove it."""
    receipt: dict[str, JsonValue] = {
        "type": EFFECT_RECEIPT,
        "idempotencyKey": idempotency_key(run_id, call.step_id, call.call_id),
        "tool": tool,
        "callId": call.call_id,
        "status": status.value,
    }
    if call.agent:
        receipt["agent"] = call.agent
    if call.step_id:
        receipt["stepId"] = call.step_id
    if turn_id is not None:
        receipt["turnId"] = turn_id
    binding = _binding(run_id, call, tool, turn_id, proof)
    if binding is not None:
        receipt["binding"] = struct_members(binding)
    return receipt


def _binding(
    run_id: str, call: CallIdentity, tool: str, turn_id: str | None, proof: CallProof | None
) -> ReceiptBinding | None:
    if (
        proof is None
        or turn_id is None
        or not call.agent
        or proof.arguments_fingerprint is None
        or proof.capability_fingerprint is None
    ):
        return None
    return ReceiptBinding(
        version=BINDING_VERSION,
        run_id=run_id,
        turn_id=turn_id,
        agent=call.agent,
        step_id=call.step_id or UNSET,
        call_id=call.call_id,
        tool=tool,
        arguments_fingerprint=proof.arguments_fingerprint,
        capability_fingerprint=proof.capability_fingerprint,
    )


def project_receipts(
    events: Iterable[Mapping[str, JsonValue]],
    *,
    run_id: str | None = None,
    against_facts: bool = False,
) -> tuple[ReceiptState, ...]:
    """Return where every key stands after these trace events, in the order of first receipts.

    Holds one state for each key; to plan a resumption use `resume`, which forgets.

    Args:
        run_id: of the log, if it is known.
        against_facts: whether the calls and capabilities among the events must prove each
            bound receipt.

    Raises:
        PrpError: ``effect_receipt_conflict``.
    """
    states: dict[str, ReceiptState] = {}
    proofs: dict[CallIdentity, CallProof] = {}
    for event in events:
        kind = event.get("type")
        if kind == EFFECT_RECEIPT:
            receipt = read_receipt(event)
            key = receipt.idempotency_key
            state = next_receipt_state(states.get(key), receipt, run_id=run_id)
            if against_facts and isinstance(receipt.binding, ReceiptBinding):
                check_proof(receipt.binding, proofs.get(receipt.binding.call))
            states[key] = state
        elif against_facts and kind in (TOOL_CALL, "capability_resolved"):
            call = identity_of(event)
            proofs[call] = call_proof(proofs.get(call), event)
    return tuple(states.values())


def identity_of(event: Mapping[str, JsonValue]) -> CallIdentity:
    """Return whose call an event is about; what is not named counts as empty."""
    return call_identity(
        _text(event.get("agent")) or "",
        _text(event.get("stepId")),
        _text(event.get("callId")) or "",
    )


def conflict(what: str) -> PrpError:
    """Return the refusal of a receipt or of a key."""
    return PrpError(ErrorCode.EFFECT_RECEIPT_CONFLICT, what)


def _arguments_fingerprint(event: Mapping[str, JsonValue]) -> str | None:
    explicit = _text(event.get("argumentsFingerprint"))
    return _fingerprint_or_none(event.get("args")) if explicit is None else explicit


def _fingerprint_or_none(value: JsonValue) -> str | None:
    """Return the fingerprint of a value, or None for none and for what cannot have one."""
    if value is None:
        return None
    try:
        return fingerprint(value)
    except PrpError:
        return None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
