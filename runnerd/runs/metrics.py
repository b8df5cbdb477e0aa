"""The metrics of a run, counted from its trace and nothing else.

It decides what each event adds. It refuses to invent: tokens and cost are absent when no
turn reported usage, and a prompt cache that nobody mentioned is unknown.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from protocol.canonical_json import JsonValue
from runnerd.runs.budget import number, whole

PromptCacheStatus = Literal["available", "unavailable", "unknown"]
Event = Mapping[str, JsonValue]


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Steps that ended."""

    total: int = 0
    succeeded: int = 0
    failed: int = 0


class ContextMetrics(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False
):
    """What requests carried and what compaction took away."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    prompt_cache_status: PromptCacheStatus = "unknown"
    compactions: int = 0
    last_summary_fingerprint: str | msgspec.UnsetType = msgspec.UNSET
    stable_prefix_fingerprints: tuple[str, ...] = ()
    """Distinct and sorted."""
    last_budget: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ArtifactMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Artifacts that were stored or kept back."""

    stored: int = 0
    blocked: int = 0
    total_bytes: int = 0


class RunMetrics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Source: durable-runs 6."""

    duration_ms: int
    turns: int
    steps: StepMetrics
    tool_calls: int
    tool_failures: int
    retries: int
    output_chars: int
    context: ContextMetrics | msgspec.UnsetType = msgspec.UNSET
    artifacts: ArtifactMetrics | msgspec.UnsetType = msgspec.UNSET
    tokens: int | msgspec.UnsetType = msgspec.UNSET
    cost_usd: float | msgspec.UnsetType = msgspec.UNSET
    rejected_after_abort: int | msgspec.UnsetType = msgspec.UNSET
    """Present only when positive."""


def run_metrics(
    events: Iterable[Event], *, duration_ms: int, output_chars: int, rejected_after_abort: int = 0
) -> RunMetrics:
    """Count a run's trace events in order, in one pass."""
    seen = list(events)
    by_type: dict[str, list[Event]] = {}
    for event in seen:
        kind = event.get("type")
        if isinstance(kind, str):
            by_type.setdefault(kind, []).append(event)
    turn_ends = by_type.get("turn_end", [])
    step_ends = by_type.get("step_end", [])
    succeeded = sum(event.get("ok") is True for event in step_ends)
    results = by_type.get("tool_result", [])
    return RunMetrics(
        duration_ms=duration_ms,
        turns=len(turn_ends),
        steps=StepMetrics(
            total=len(step_ends), succeeded=succeeded, failed=len(step_ends) - succeeded
        ),
        tool_calls=len(by_type.get("tool_call", [])),
        tool_failures=sum(event.get("isError") is True for event in results),
        retries=len(by_type.get("retry", [])),
        output_chars=output_chars,
        context=_context(turn_ends, by_type),
        artifacts=_artifacts(by_type.get("artifact_created", [])),
        tokens=_reported_tokens(turn_ends),
        cost_usd=_reported_cost(turn_ends),
        rejected_after_abort=rejected_after_abort or msgspec.UNSET,
    )


def _reported_tokens(turn_ends: list[Event]) -> int | msgspec.UnsetType:
    numbers = [whole(event.get("tokens")) for event in turn_ends]
    given = [value for value in numbers if value is not None]
    return sum(given) if given else msgspec.UNSET


def _reported_cost(turn_ends: list[Event]) -> float | msgspec.UnsetType:
    numbers = [number(event.get("costUsd")) for event in turn_ends]
    given = [value for value in numbers if value is not None]
    return sum(given) if given else msgspec.UNSET


def _context(turn_ends: list[Event], by_type: Mapping[str, list[Event]]) -> ContextMetrics:
    compacted = by_type.get("context_compacted", [])
    summaries = [event.get("summaryFingerprint") for event in compacted]
    named = [summary for summary in summaries if isinstance(summary, str)]
    prefixes = [event.get("fingerprint") for event in by_type.get("context_prefix", [])]
    distinct = sorted({prefix for prefix in prefixes if isinstance(prefix, str)})
    budgets = by_type.get("context_budget", [])
    return ContextMetrics(
        input_tokens=_total(turn_ends, "inputTokens"),
        output_tokens=_total(turn_ends, "outputTokens"),
        cache_read_tokens=_total(turn_ends, "cacheReadTokens"),
        cache_write_tokens=_total(turn_ends, "cacheWriteTokens"),
        prompt_cache_status=_cache_status(turn_ends),
        compactions=len(compacted),
        last_summary_fingerprint=named[-1] if named else msgspec.UNSET,
        stable_prefix_fingerprints=tuple(distinct),
        last_budget=(
            msgspec.Raw(msgspec.json.encode(dict(budgets[-1]))) if budgets else msgspec.UNSET
        ),
    )


def _cache_status(turn_ends: list[Event]) -> PromptCacheStatus:
    """Available once a turn had it; unavailable only if a turn said so and none had it."""
    said = [event.get("promptCacheStatus") for event in turn_ends]
    if "available" in said:
        return "available"
    return "unavailable" if "unavailable" in said else "unknown"


def _total(events: list[Event], member: str) -> int:
    return sum(whole(event.get(member)) or 0 for event in events)


def _artifacts(created: list[Event]) -> ArtifactMetrics:
    statuses = [event.get("status") for event in created]
    return ArtifactMetrics(
        stored=statuses.count("stored"),
        blocked=statuses.count("blocked"),
        total_bytes=_total(created, "sizeBytes"),
    )
