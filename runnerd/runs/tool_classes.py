"""The classes of a tool: five dimensions, and what they allow after a crash.

It decides which class is stricter and what may become of a call that was interrupted. It
refuses to know which tool has which class.
"""

import enum
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import PrpError
from runnerd.runs.records import corrupt, struct_from

# Each dimension's members stand from the least to the most strict one (durable-runs 3).


class EffectClass(enum.StrEnum):
    """What a call may change."""

    NONE = "none"
    WORKSPACE = "workspace"
    PROCESS = "process"
    NETWORK = "network"
    EXTERNAL = "external"
    UNKNOWN = "unknown"


class ReplayClass(enum.StrEnum):
    """Whether a call may be made again."""

    SAFE = "safe"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


class ConcurrencyClass(enum.StrEnum):
    """What else may run beside a call."""

    PARALLEL = "parallel"
    RUN_SERIAL = "run_serial"
    WORKSPACE_EXCLUSIVE = "workspace_exclusive"


class CheckpointClass(enum.StrEnum):
    """Whether what a call changes is saved before."""

    NONE = "none"
    REQUIRED = "required"
    UNSUPPORTED = "unsupported"


class DurabilityClass(enum.StrEnum):
    """How durable the facts about a call are."""

    ORDINARY = "ordinary"
    CRITICAL = "critical"


class RecoveryDisposition(enum.StrEnum):
    """What may become of a call that began and is not known to have ended."""

    REPLAY_SAFE = "replay_safe"
    REQUIRES_PROOF = "requires_proof"
    FORBIDDEN = "forbidden"
    REQUIRES_HUMAN = "requires_human"


class CapabilitySource(enum.StrEnum):
    """Who declared a tool's class."""

    BUILTIN = "builtin"
    REGISTERED = "registered"
    FALLBACK = "fallback"


class CapabilityResolution(enum.StrEnum):
    """Whether a declaration was believed."""

    RESOLVED = "resolved"
    FALLBACK = "fallback"


class ToolCapability(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's class, as the fact `capability_resolved` has it."""

    tool: str
    effect: EffectClass
    replay: ReplayClass
    concurrency: ConcurrencyClass
    checkpoint: CheckpointClass
    durability: DurabilityClass
    source: CapabilitySource
    resolution: CapabilityResolution
    issues: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The five dimensions alone."""
        return (self.effect, self.replay, self.concurrency, self.checkpoint, self.durability)


STRICTEST: Final = (
    EffectClass.UNKNOWN,
    ReplayClass.UNKNOWN,
    ConcurrencyClass.RUN_SERIAL,
    CheckpointClass.UNSUPPORTED,
    DurabilityClass.CRITICAL,
)
"""What holds for a tool whose declaration is missing or not believed."""


def recovery_disposition(effect: EffectClass, replay: ReplayClass) -> RecoveryDisposition:
    """Return what may become of an interrupted call of these classes (durable-runs 3)."""
    if replay is ReplayClass.SAFE and effect is EffectClass.NONE:
        return RecoveryDisposition.REPLAY_SAFE
    if replay in (ReplayClass.SAFE, ReplayClass.IDEMPOTENT):
        return RecoveryDisposition.REQUIRES_PROOF
    if replay is ReplayClass.UNSAFE:
        return RecoveryDisposition.FORBIDDEN
    return RecoveryDisposition.REQUIRES_HUMAN


def check_capability(event: dict[str, JsonValue]) -> ToolCapability:
    """Return the capability that a `capability_resolved` event tells.

    Raises PrpError ``run_state_corrupt`` if it is incomplete, if it does not belong to the
    event's tool, if its disposition is not the one that follows from it, or if a fallback
    is anything but the strictest class.
    """
    capability = struct_from(event.get("capability"), ToolCapability)
    if capability.tool != event.get("tool"):
        raise corrupt("a capability of another tool")
    disposition = recovery_disposition(capability.effect, capability.replay)
    if event.get("recoveryDisposition") != disposition.value:
        raise corrupt("a disposition that does not follow from the capability")
    if (misfit := _inconsistency(capability)) is not None:
        raise misfit
    return capability


def _inconsistency(capability: ToolCapability) -> PrpError | None:
    is_fallback = capability.resolution is CapabilityResolution.FALLBACK
    if is_fallback != (capability.source is CapabilitySource.FALLBACK):
        return corrupt("a capability whose source and resolution disagree")
    if is_fallback and capability.classes != STRICTEST:
        return corrupt("a fallback that is not the strictest class")
    return None
