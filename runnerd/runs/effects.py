"""What kind of effect a call has, and which call owns an idempotency key.

It decides whether an effect can be undone, may be repeated, and under which key. It refuses
to know whether the effect happened: that is `receipts`.
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from runnerd.runs.fingerprints import CallIdentity, idempotency_key
from runnerd.runs.receipts import conflict
from runnerd.runs.tool_classes import (
    CheckpointClass,
    EffectClass,
    RecoveryDisposition,
    ReplayClass,
    ToolCapability,
    recovery_disposition,
)

_COLON: Final = ":"
_CALL_ID_BYTES: Final = 16


class EffectKind(enum.StrEnum):
    """Where an effect lands, in the words of the recovery procedure."""

    NONE = "none"
    FILE = "file"
    PROCESS = "process"
    NETWORK = "network"
    EXTERNAL = "external"
    UNKNOWN = "unknown"


_KINDS: Final[Mapping[EffectClass, EffectKind]] = MappingProxyType(
    {
        EffectClass.NONE: EffectKind.NONE,
        EffectClass.WORKSPACE: EffectKind.FILE,
        EffectClass.PROCESS: EffectKind.PROCESS,
        EffectClass.NETWORK: EffectKind.NETWORK,
        EffectClass.EXTERNAL: EffectKind.EXTERNAL,
        EffectClass.UNKNOWN: EffectKind.UNKNOWN,
    }
)
_NEEDS_HONOURED_KEY: Final = (EffectClass.EXTERNAL, EffectClass.UNKNOWN)


class EffectTraits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is confirmed about a tool before it is used."""

    kind: EffectKind
    is_reversible: bool
    """A checkpoint stands before it, from which the old content can be put back."""
    is_replay_safe: bool
    """Making the call again does no more than making it once, and no key is needed."""


class ClosedStep(msgspec.Struct, frozen=True):
    """What is remembered of a completed step whose calls were forgotten."""

    step_id: str
    had_colon_call: bool = False
    """One of its call ids held a colon, so that its key may be read in several ways."""


def new_call_id(random: bytes) -> str:
    """Return a call id for a call that its maker did not name.

    Args:
        random: at least 16 bytes of entropy.
    """
    assert len(random) >= _CALL_ID_BYTES, "a call id must not repeat"
    return f"call_{random.hex()}"


def effect_traits(capability: ToolCapability) -> EffectTraits:
    """Return what a tool's class means in the words of the recovery procedure."""
    disposition = recovery_disposition(capability.effect, capability.replay)
    is_none = capability.effect is EffectClass.NONE
    return EffectTraits(
        kind=_KINDS[capability.effect],
        is_reversible=is_none or capability.checkpoint is CheckpointClass.REQUIRED,
        is_replay_safe=disposition is RecoveryDisposition.REPLAY_SAFE,
    )


def may_be_replayed(capability: ToolCapability, *, honours_key: bool) -> bool:
    """Tell whether an interrupted call of this class may be offered again under its key.

    Args:
        honours_key: the other system does nothing twice under one key. Without it no
            effect outside is ever offered, whatever the tool calls itself.

    Source: durable-runs 4, "Replay candidate".
    """
    if capability.replay is not ReplayClass.IDEMPOTENT:
        return False
    return honours_key or capability.effect not in _NEEDS_HONOURED_KEY


class KeyOwners:
    """Which call of one run owns which idempotency key.

    A key keeps the original's text form, in which two calls may share one text since ids
    may hold colons. So a key is claimed before its call is made, and only once.

    Args:
        owners: keys that calls of earlier attempts own.
        closed: completed steps of earlier attempts; their calls are not known any more.
    """

    def __init__(
        self,
        run_id: str,
        owners: Mapping[str, CallIdentity] = MappingProxyType({}),
        closed: Iterable[ClosedStep] = (),
    ) -> None:
        self._run_id = run_id
        self._owners = dict(owners)
        self._closed = {step.step_id: step for step in closed}

    def owner(self, key: str) -> CallIdentity | None:
        """Return who owns a key."""
        return self._owners.get(key)

    def claim(self, call: CallIdentity) -> str:
        """Return the key of a new call, which owns it from now on.

        Raises PrpError ``effect_receipt_conflict`` if another call owns it or may own it,
        and if the same call was made before: a call id is used once.

        Source: architecture 7.4.
        """
        key = idempotency_key(self._run_id, call.step_id, call.call_id)
        owner = self._owners.get(key)
        if owner is not None:
            same = "this very call" if owner == call else "another call"
            raise conflict(f"the key belongs to {same} already")
        if self._may_be_forgotten(call):
            raise conflict("the key may belong to a call of a completed step")
        self._owners[key] = call
        return key

    def _may_be_forgotten(self, call: CallIdentity) -> bool:
        """Tell whether a call of a completed step may have had the same text for a key."""
        rest = idempotency_key(self._run_id, call.step_id, call.call_id)[len(self._run_id) + 1 :]
        parts = rest.split(_COLON)
        for size in range(1, len(parts)):
            step = self._closed.get(_COLON.join(parts[:size]))
            if step is not None and (len(parts) == size + 1 or step.had_colon_call):
                return True
        return False
