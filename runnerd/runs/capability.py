"""Which class a tool has: the built-in table, what others declare, and what policy tightens.

It decides whether a declaration is believed. It refuses to know what a tool does, and never
trusts a name: a tool that nobody described has the strictest class there is.
"""

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from protocol.canonical_json import JsonValue
from runnerd.runs.fingerprints import CallIdentity, fingerprint
from runnerd.runs.records import struct_members
from runnerd.runs.tool_classes import (
    STRICTEST,
    CapabilityResolution,
    CapabilitySource,
    CheckpointClass,
    ConcurrencyClass,
    DurabilityClass,
    EffectClass,
    RecoveryDisposition,
    ReplayClass,
    ToolCapability,
    recovery_disposition,
)
from runnerd.runs.trace_rules import CAPABILITY_RESOLVED

Classes: TypeAlias = tuple[
    EffectClass, ReplayClass, ConcurrencyClass, CheckpointClass, DurabilityClass
]

UNREGISTERED: Final = "capability_unregistered"
MISSING: Final = "capability_missing"
INVALID: Final = "capability_invalid"
LOOSENED: Final = "capability_loosened"

EXTERNAL_KEY: Final = "externalKey"
HONOURED: Final = "honoured"
"""Member and value of a `capability_resolved` event that say: the other system takes the
idempotency key of a call and does nothing twice under one key."""

_DIMENSIONS: Final[Mapping[str, type[enum.StrEnum]]] = MappingProxyType(
    {
        "effect": EffectClass,
        "replay": ReplayClass,
        "concurrency": ConcurrencyClass,
        "checkpoint": CheckpointClass,
        "durability": DurabilityClass,
    }
)
_READING: Final[Classes] = (
    EffectClass.NONE,
    ReplayClass.SAFE,
    ConcurrencyClass.PARALLEL,
    CheckpointClass.NONE,
    DurabilityClass.ORDINARY,
)
_WRITING: Final[Classes] = (
    EffectClass.WORKSPACE,
    ReplayClass.IDEMPOTENT,
    ConcurrencyClass.WORKSPACE_EXCLUSIVE,
    CheckpointClass.REQUIRED,
    DurabilityClass.CRITICAL,
)
_RUNNING: Final[Classes] = (
    EffectClass.PROCESS,
    ReplayClass.UNKNOWN,
    ConcurrencyClass.RUN_SERIAL,
    CheckpointClass.UNSUPPORTED,
    DurabilityClass.CRITICAL,
)
_FETCHING: Final[Classes] = (
    EffectClass.NETWORK,
    ReplayClass.UNKNOWN,
    ConcurrencyClass.RUN_SERIAL,
    CheckpointClass.NONE,
    DurabilityClass.CRITICAL,
)
BUILT_IN: Final[Mapping[str, Classes]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("read", "ls", "find", "grep", "git_status", "git_diff", "git_log"), _READING
        ),
        **dict.fromkeys(("write", "edit"), _WRITING),
        "bash": _RUNNING,
        **dict.fromkeys(("web-fetch", "web-search"), _FETCHING),
    }
)
"""Source: durable-runs 3."""


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What the one who registers a tool says of it."""

    classes: Mapping[str, JsonValue]
    """The five dimensions by name, as given."""
    source: CapabilitySource = CapabilitySource.REGISTERED
    honours_key: bool = False
    """The other system takes the idempotency key and does nothing twice under one key."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy asks beyond a declaration: some dimensions, none of them looser."""

    origin: str
    classes: Mapping[str, JsonValue]


class ResolvedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's class and what follows from it."""

    capability: ToolCapability
    honours_key: bool = False

    @property
    def disposition(self) -> RecoveryDisposition:
        """What may become of an interrupted call."""
        return recovery_disposition(self.capability.effect, self.capability.replay)

    @property
    def fingerprint(self) -> str:
        """The digest that receipts bind."""
        return fingerprint(struct_members(self.capability))


def resolve_capability(
    tool: str,
    declaration: Declaration | None = None,
    constraints: Sequence[Constraint] = (),
) -> ResolvedTool:
    """Return the class that holds for a tool.

    Args:
        declaration: None for a tool that nobody registered; then the built-in table or
            nothing describes it.
        constraints: applied in order; each dimension may only become stricter.

    Returns:
        The tool with the class that was declared and tightened. Or the strictest class,
        source `fallback`, and the reasons in ``issues``: nothing declared, a dimension
        missing or unknown, dimensions that contradict each other, a constraint that
        loosens, a false claim to be built in.

    Source: durable-runs 3.
    """
    if declaration is None:
        built_in = BUILT_IN.get(tool)
        if built_in is None:
            return unregistered(tool)
        return _tightened(tool, built_in, CapabilitySource.BUILTIN, constraints, False)
    issues = _issues(declaration.classes)
    if issues:
        return _fallback(tool, issues)
    classes = _classes(declaration.classes)
    source = declaration.source
    if source is CapabilitySource.BUILTIN and BUILT_IN.get(tool) != classes:
        return _fallback(tool, (f"{INVALID}:builtin_source",))
    if source is CapabilitySource.FALLBACK:
        return _fallback(tool, (f"{INVALID}:source",))
    return _tightened(tool, classes, source, constraints, declaration.honours_key)


def unregistered(tool: str) -> ResolvedTool:
    """Return the strictest class: nothing is known of a tool but its name, which proves nothing."""
    return _fallback(tool, (UNREGISTERED, MISSING))


def capability_event(call: CallIdentity, resolved: ResolvedTool) -> dict[str, JsonValue]:
    """Return the fact that a call was judged by this class."""
    event: dict[str, JsonValue] = {
        "type": CAPABILITY_RESOLVED,
        "agent": call.agent,
        "callId": call.call_id,
        "tool": resolved.capability.tool,
        "capability": struct_members(resolved.capability),
        "recoveryDisposition": resolved.disposition.value,
    }
    if call.step_id:
        event["stepId"] = call.step_id
    if resolved.honours_key:
        event[EXTERNAL_KEY] = HONOURED
    return event


def _tightened(
    tool: str,
    classes: Classes,
    source: CapabilitySource,
    constraints: Sequence[Constraint],
    honours_key: bool,
) -> ResolvedTool:
    asked: dict[str, JsonValue] = {
        name: value.value for name, value in zip(_DIMENSIONS, classes, strict=True)
    }
    for constraint in constraints:
        for name, value in constraint.classes.items():
            dimension = _DIMENSIONS.get(name)
            wanted = None if dimension is None else _member(dimension, value)
            if dimension is None or wanted is None:
                return _fallback(tool, (f"{INVALID}:{name}",))
            if _rank(dimension, wanted) < _rank(dimension, asked[name]):
                return _fallback(tool, (f"{LOOSENED}:{name}",))
            asked[name] = wanted
    tightened = _classes(asked)
    if _is_contradiction(tightened):
        return _fallback(tool, (f"{INVALID}:checkpoint",))
    return _resolved(tool, tightened, source, honours_key)


def _issues(classes: Mapping[str, JsonValue]) -> tuple[str, ...]:
    missing = tuple(f"{MISSING}:{name}" for name in _DIMENSIONS if classes.get(name) is None)
    return missing or tuple(
        f"{INVALID}:{name}"
        for name, dimension in _DIMENSIONS.items()
        if _member(dimension, classes[name]) is None
    )


def _classes(classes: Mapping[str, JsonValue]) -> Classes:
    effect, replay, concurrency, checkpoint, durability = (
        str(classes[name]) for name in _DIMENSIONS
    )
    return (
        EffectClass(effect),
        ReplayClass(replay),
        ConcurrencyClass(concurrency),
        CheckpointClass(checkpoint),
        DurabilityClass(durability),
    )


def _is_contradiction(classes: Classes) -> bool:
    effect, checkpoint = classes[0], classes[3]
    may_change_files = effect in (EffectClass.WORKSPACE, EffectClass.UNKNOWN)
    return may_change_files and checkpoint is CheckpointClass.NONE


def _member(dimension: type[enum.StrEnum], value: JsonValue) -> str | None:
    return next((member.value for member in dimension if member.value == value), None)


def _rank(dimension: type[enum.StrEnum], value: JsonValue) -> int:
    return [member.value for member in dimension].index(str(value))


def _fallback(tool: str, issues: tuple[str, ...]) -> ResolvedTool:
    return _resolved(tool, STRICTEST, CapabilitySource.FALLBACK, False, issues)


def _resolved(
    tool: str,
    classes: Classes,
    source: CapabilitySource,
    honours_key: bool,
    issues: tuple[str, ...] = (),
) -> ResolvedTool:
    is_fallback = source is CapabilitySource.FALLBACK
    effect, replay, concurrency, checkpoint, durability = classes
    capability = ToolCapability(
        tool=tool,
        effect=effect,
        replay=replay,
        concurrency=concurrency,
        checkpoint=checkpoint,
        durability=durability,
        source=source,
        resolution=(
            CapabilityResolution.FALLBACK if is_fallback else CapabilityResolution.RESOLVED
        ),
        issues=issues,
    )
    return ResolvedTool(capability=capability, honours_key=honours_key)
